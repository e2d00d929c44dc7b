package service

import (
	"context"
	"crypto/cipher"
	"errors"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/store"
)

// ClientResult is the result of a call that a client has carried out.
type ClientResult = agent.ClientResult

// clientTools returns the tools of a request for the loop. A call changes nothing on this machine, so it only reads
// unless the client says otherwise. But it carries its arguments out, and its result is untrusted data.
func (s *Service) clientTools(specs []toolcrib.Spec) []toolcrib.Spec {
	all := make([]toolcrib.Spec, len(specs))
	for i, given := range specs {
		all[i] = toolcrib.Spec{
			Name: given.Name, Description: given.Description, Parameters: given.Parameters, Effect: given.Effect,
			Sink: true, Untrusted: true,
		}
		if given.Effect == "" {
			all[i].Effect = toolcrib.EffectReadOnly
		}
		if set := s.Env.Config.Tools.Settings[given.Name]; set.Untrusted != nil {
			all[i].Untrusted = *set.Untrusted
		}
	}
	return all
}

// withClientTools adds the names of a client's tools to the list of the agent's tools that a request chooses. A nil
// list does not restrict them.
func withClientTools(list []string, own []toolcrib.Spec) []string {
	if list == nil {
		return nil
	}
	all := append(make([]string, 0, len(list)+len(own)), list...)
	for _, spec := range own {
		all = append(all, spec.Name)
	}
	return all
}

// recorder returns a runner that appends to the journals of runs, without a gate or a model.
func (s *Service) recorder() (*agent.Runner, error) {
	s.Env.LearnSecrets()
	return agent.New(agent.Options{
		Journal: s.Env.Store, Contents: s.Env.Store, Mask: s.Env.Mask,
		Models: func(context.Context, journal.ModelInfo) (toolcrib.Model, error) {
			return nil, toolcrib.Errorf(toolcrib.CodeInternal, "this runner has no model")
		},
		Host: agent.Host{NewID: s.ids.next, Seal: func() (cipher.AEAD, error) { return s.Env.Sealer("answer") }},
	})
}

// GiveResults appends the results of calls that a run waits for its client to carry out, all or none. A call that has a
// result is a conflict, and an unknown call is not found.
func (s *Service) GiveResults(ctx context.Context, who toolcrib.Principal, run string, results []ClientResult) (Run,
	error,
) {
	rec, err := s.Env.Find(ctx, who, run)
	if err != nil {
		return Run{}, err
	}
	r, err := s.recorder()
	if err != nil {
		return Run{}, err
	}
	if _, err := r.GiveResults(ctx, rec.ID, agent.NameOf(who), results); err != nil {
		return Run{}, err
	}
	s.tellReady(ctx, rec)
	return s.FindRun(ctx, who, string(rec.ID))
}

// resultWait is how long a result waits until its run has parked.
const resultWait = time.Minute

// Pauses waits until a run has ended or parked, for at most [resultWait].
func (p *Pool) Pauses(ctx context.Context, run toolcrib.RunID) {
	ctx, cancel := context.WithTimeout(ctx, resultWait)
	defer cancel()
	_ = p.Drive(run).Wait(ctx) // giving the result returns the error
}

// GiveResults does what [Service.GiveResults] does. The run continues when no call is open. After [agent.ErrEarly] the
// run may park for the results soon ([Pool.Pauses]).
func (p *Pool) GiveResults(ctx context.Context, who toolcrib.Principal, run string, results []ClientResult) (Run,
	error,
) {
	found, err := p.s.GiveResults(ctx, who, run, results)
	if err != nil || found.Status != toolcrib.StatusQueued {
		return found, err
	}
	p.Wake(found.ID)
	return p.s.FindRun(ctx, who, string(found.ID))
}

// Say stores a message to a run. The model reads it before its next reply, whichever process drives the run; if the run
// is parked, after it continues.
func (s *Service) Say(ctx context.Context, who toolcrib.Principal, run, text string) error {
	rec, err := s.Env.Find(ctx, who, run)
	if err != nil {
		return err
	}
	s.Env.LearnSecrets()
	text = s.Env.Mask.Clean(text)
	switch {
	case strings.TrimSpace(text) == "":
		return env.BadRequestf("the message is empty")
	case len(text) > store.MaxMessageBytes:
		return toolcrib.Errorf(toolcrib.CodeTooLarge, "the message has more than %d bytes", store.MaxMessageBytes)
	case rec.Model == "":
		return toolcrib.Errorf(toolcrib.CodeConflict, "run %s is a single call without a model and reads no messages", rec.ID)
	}
	err = s.Env.Store.PutMessage(ctx, rec.ID, store.Message{
		ID: s.ids.next("msg_"), Text: text, By: agent.NameOf(who), At: time.Now(),
	})
	if errors.Is(err, toolcrib.ErrConflict) {
		err = toolcrib.Errorf(toolcrib.CodeConflict, "run %s has ended; start a run in its session, or fork it", rec.ID)
	}
	return err
}

// inbox returns the messages that a run has not read.
func (s *Service) inbox(ctx context.Context, run toolcrib.RunID) ([]journal.Said, error) {
	all, err := s.Env.Store.Messages(ctx, run)
	said := make([]journal.Said, len(all))
	for i, m := range all {
		said[i] = journal.Said{ID: m.ID, Text: m.Text, By: m.By}
	}
	return said, err
}
