package service

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/channel"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service/channels"
	"github.com/toolcrib/toolcrib/service/worker"
	"github.com/toolcrib/toolcrib/store"
)

// Channels begins to receive the messages of the configured channels, whose runs the pool drives. The caller closes it
// before the pool.
func (p *Pool) Channels(log *slog.Logger) *channels.Channels {
	h := chats{p, log}
	return channels.New(channels.Options{Host: h, Runs: h, Log: log})
}

// chats implements [channels.Host] and [channels.Runs].
type chats struct {
	*Pool
	log *slog.Logger
}

func (h chats) Config() *config.Config { return h.s.Current().Env.Config }

func (h chats) Files() channels.Files { return h.s.Env.Store }

func (h chats) Open(name string) (channel.Channel, error) {
	opened, err := h.s.Current().Env.OpenChannel(name)
	if err != nil {
		return nil, err
	}
	both, ok := opened.(channel.Channel)
	if !ok {
		return nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "channels.%s: nothing is received from its type", name)
	}
	return both, nil
}

func leaseOf(name string) toolcrib.RunID { return worker.KeptLease("channel " + name) }

func (h chats) Hold(ctx context.Context, name string, lasts time.Duration) (bool, error) {
	_, err := h.s.Env.Store.TakeLease(ctx, leaseOf(name), lasts, false)
	if errors.Is(err, store.ErrLeased) {
		return false, nil
	}
	return err == nil, err
}

func (h chats) Leave(name string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	leases, err := h.s.Env.Store.Leases(ctx, store.LeaseFilter{Runs: []toolcrib.RunID{leaseOf(name)}})
	for i := range leases {
		if leases[i].Owner.ID == h.s.Env.Owner().ID {
			err = h.s.Env.Store.ReleaseLease(ctx, leases[i])
		}
	}
	if err != nil { // it ends with its time
		h.log.Debug("the lease of a channel was not released", "channel", name, "error", err)
	}
}

func (h chats) Notice(text string) { h.s.Env.Notice(text) }

// Act returns the principal of a sender: a user outside of the directory, with the rights of a user without grants of
// their own, or the user that the configuration names.
func (h chats) Act(ctx context.Context, user string, known bool) (toolcrib.Principal, error) {
	s := h.s.Current()
	if known {
		if _, err := s.Env.Store.Access().User(ctx, user); errors.Is(err, toolcrib.ErrNotFound) {
			return toolcrib.Principal{}, toolcrib.Errorf(toolcrib.CodeForbidden, "there is no user %s", user)
		} else if err != nil {
			return toolcrib.Principal{}, err
		}
	}
	now, err := s.People.Standing().Standing(ctx, toolcrib.Principal{User: user})
	if err == nil && now.Refused != "" {
		err = toolcrib.Errorf(toolcrib.CodeForbidden, "%s", now.Refused)
	}
	return now.Principal, err
}

func (h chats) Begin(ctx context.Context, who toolcrib.Principal, r channels.Request) (toolcrib.RunID, error) {
	s := h.s.Current()
	workspace, err := s.Policy.OwnWorkspace(who)
	if err != nil {
		return "", err
	}
	d, err := h.Pool.Start(context.WithoutCancel(ctx), who, StartRequest{
		Agent: r.Agent, Session: r.Session, Prompt: r.Prompt, Taint: r.Taint, Workspace: workspace,
		Approve: agent.ApproveNone, Once: Once(who, r.Key, r.Prompt),
		Notice: func(text string) { h.log.Info(s.Env.Mask.Mask(text), "user", who.User) },
	})
	if err != nil {
		return "", err
	}
	return d.ID(), nil
}

func (h chats) Wait(ctx context.Context, run toolcrib.RunID) error {
	return h.Pool.Drive(run).Wait(ctx)
}

func (h chats) Look(ctx context.Context, run toolcrib.RunID) (store.RunRecord, error) {
	return h.s.Env.Store.Run(ctx, run)
}

func (h chats) Approval(ctx context.Context, who toolcrib.Principal, id string) (*api.Approval, error) {
	v, err := h.s.Current().Approval(ctx, who, id)
	if err != nil {
		return nil, err
	}
	return &v.Approval, nil
}

func (h chats) Decide(ctx context.Context, who toolcrib.Principal, d channels.Decision) error {
	s := h.s.Current()
	v, err := s.Approval(ctx, who, d.Approval)
	if err != nil {
		return err
	}
	word := journal.CallDecision{Decision: d.Decision}
	if d.Decision == journal.DecisionAnswer {
		if word.Result, err = AnswerJSON(d.Schema, d.Answer); err != nil {
			return err
		}
	}
	out, err := s.Decide(ctx, who, v, Decision{CallDecision: word, Digest: d.Digest, Reason: d.Reason})
	if err != nil || len(out.Open) > 0 {
		return err
	}
	q := ResumeRequest{Run: string(out.Run), Decided: true}
	if _, err := h.Pool.Resume(context.WithoutCancel(ctx), who, q); err != nil {
		h.log.Info("a run was decided on and does not continue yet", "run", out.Run, "error", err)
	}
	return nil
}

func (h chats) Cancel(ctx context.Context, who toolcrib.Principal, run toolcrib.RunID) error {
	_, err := h.Pool.Cancel(ctx, who, string(run))
	return err
}
