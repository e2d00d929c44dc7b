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

// ClientResult is what a client answers a call that it has carried out.
type ClientResult = agent.ClientResult

// clientTools are the tools of a request as the loop takes them. Nothing of this machine changes
// by a call, so it only reads unless the client says otherwise; but it carries arguments out, and
// brings back what nobody here has seen.
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

// withClientTools adds the tools of a client to the list of those that its request chooses of the
// agent's; null = no restriction.
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

// recorder makes a runner that writes something down about runs, and needs no gate.
func (s *Service) recorder() (*agent.Runner, error) {
	s.Env.LearnSecrets()
	return agent.New(agent.Options{
		Journal: s.Env.Store, Contents: s.Env.Store, Mask: s.Env.Mask, NewID: s.ids.next,
		Seal: func() (cipher.AEAD, error) { return s.Env.Sealer("answer") },
		Models: func(context.Context, journal.ModelInfo) (toolcrib.Model, error) {
			return nil, toolcrib.Errorf(toolcrib.CodeInternal, "this runner has no model")
		},
	})
}

// GiveResults writes down the results of calls that a run waits for its client to carry out, all
// or none. A call that has a result is a conflict; a call that nobody knows is not found.
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
	return s.FindRun(ctx, who, string(rec.ID))
}

// resultWait is how long a result waits for its run to wait for it.
const resultWait = time.Minute

// Pauses waits until a run ends or parks, or until a result for it has waited long enough.
func (p *Pool) Pauses(ctx context.Context, run toolcrib.RunID) {
	ctx, cancel := context.WithTimeout(ctx, resultWait)
	defer cancel()
	_ = p.Drive(run).Wait(ctx) // what became of the run shows when the result is given
}

// GiveResults does what [Service.GiveResults] does, and the run continues when no call is left
// open. With [agent.ErrEarly] the run may wait for the results soon ([Pool.Pauses]).
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

// Say keeps a message to a run durably. The model reads it before its next reply, whichever
// process drives the run; a parked run keeps it until it continues.
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
