package service

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/notify"
	"github.com/toolcrib/toolcrib/internal/notify/address"
	"github.com/toolcrib/toolcrib/internal/version"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service/env"
)

// Notifier returns a notifier for the addresses of approvals.notify, and the problems of those that cannot be resolved.
// It notifies the others anyway.
func (s *Service) Notifier() (n *notify.Notifier, problems []string) {
	var targets []notify.Target
	for i := range s.Env.Config.Approvals.Notify {
		t, err := s.Env.NotifyTarget(&s.Env.Config.Approvals.Notify[i])
		if err != nil {
			problems = append(problems, err.Error())
			continue
		}
		targets = append(targets, t)
	}
	return s.sender(targets...), problems
}

func (s *Service) sender(targets ...notify.Target) *notify.Notifier {
	return notify.New(targets, notify.Options{UserAgent: "toolcrib/" + version.Version(), Line: &s.line})
}

// NotifyResult is the outcome of a test message.
type NotifyResult struct {
	Key   string `json:"key"`   // approvals.notify[0]
	Where string `json:"where"` // host of a webhook, otherwise the scheme
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
	// Secret is the key of signatures, a *string. It is null if it is in the configuration, as SecretFrom says. Both are
	// returned only if secrets are asked for.
	Secret     any    `json:"secret,omitempty"`
	SecretFrom string `json:"secret_from,omitempty"` // configuration, or keys: the keys of the data folder
}

// TestNotify sends a test message to each address of approvals.notify, for administrators. If secrets is set, it sends
// nothing and returns the keys of signatures.
func (s *Service) TestNotify(ctx context.Context, who toolcrib.Principal, secrets bool) ([]NotifyResult, error) {
	if _, err := env.Administrator(who); err != nil {
		return nil, err
	}
	list := s.Env.Config.Approvals.Notify
	if len(list) == 0 {
		return nil, toolcrib.Errorf(toolcrib.CodeNotFound, "approvals.notify has no address")
	}
	results := make([]NotifyResult, len(list))
	for i := range list {
		results[i] = s.testOne(ctx, &list[i], fmt.Sprintf("approvals.notify[%d]", i), secrets)
	}
	return results, nil
}

func (s *Service) testOne(ctx context.Context, n *config.Notify, key string, secrets bool) NotifyResult {
	t, err := s.Env.NotifyTarget(n)
	v := NotifyResult{Key: key, Where: address.Where(t.Address)}
	switch {
	case err != nil:
		v.Error = err.Error()
		return v
	case secrets && address.IsWebhook(t.Address):
		secret := address.Secret(t.Key)
		v.Secret, v.SecretFrom = &secret, "keys"
		if !n.Secret.IsEmpty() {
			v.Secret, v.SecretFrom = (*string)(nil), "configuration"
		}
	case !secrets:
		for _, f := range s.sender(t).Send(ctx, notify.Message{
			ID: agent.NewID("msg_"), Type: notify.TypeTest, Time: time.Now().UTC().Truncate(time.Millisecond),
			Calls: []notify.Call{}, Commands: []string{},
		}) {
			v.Error = f.Reason
			return v
		}
	}
	v.OK = true
	return v
}

// NoticeNotifyFailed begins the notice that an address was not notified, and is its message in the log.
const NoticeNotifyFailed = "notify_failed"

// Announce implements [agent.Announcer]. It notifies the addresses of approvals.notify that a run waits for people. If
// this process asks a person or decides itself, it notifies them only when the approval remains open.
func (d *drive) Announce(ctx context.Context, s *agent.State) {
	if d.answers(s) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.waiting[s.Approval.ApprovalID] = s.Run
		return
	}
	d.notify(ctx, s)
}

// announceLeft notifies of approvals that remained open here.
func (d *drive) announceLeft(ctx context.Context, s *agent.State) {
	if s == nil || s.Pending == nil || ctx.Err() != nil {
		return
	}
	d.mu.Lock()
	kept := d.waiting
	d.waiting = map[string]toolcrib.RunID{}
	d.mu.Unlock()
	for _, approval := range slices.Sorted(maps.Keys(kept)) {
		at, err := agent.Load(ctx, d.s.Env.Store, kept[approval])
		if err == nil && at.Pending != nil && at.Approval != nil && at.Approval.ApprovalID == approval {
			d.leave(s.Run) // the run at the top is resumed
			d.notify(ctx, at)
		}
	}
}

// notify sends the message, and reports failures in a notice and in the log. It releases the run first, because a
// person who is notified may decide and continue it at once.
func (d *drive) notify(ctx context.Context, at *agent.State) {
	s := d.s
	d.leave(at.Run)
	sender, problems := s.Notifier()
	for _, f := range sender.Send(ctx, s.message(at)) {
		problems = append(problems, fmt.Sprintf("%s was not notified of approval %s: %s", f.Where, at.Approval.ApprovalID,
			f.Reason))
	}
	for _, text := range problems {
		text = s.Env.Mask.Mask(text)
		s.Env.Notice(NoticeNotifyFailed + ": " + text)
		d.log.WarnContext(ctx, NoticeNotifyFailed, "run", at.Run, "error", text)
	}
}

// message returns the notification of the approval that a run waits for.
func (s *Service) message(at *agent.State) notify.Message {
	ask := at.Approval
	m := notify.Message{
		ID: "msg_" + ask.ApprovalID, Type: notify.TypeApproval, Time: time.Now().UTC().Truncate(time.Millisecond),
		ApprovalID: ask.ApprovalID, Digest: ask.Digest, Run: at.Run, Agent: at.Start.Agent.Name,
		User: at.Start.Principal.User,
		Kind: ask.Kind, Reason: ask.Reason, Question: ask.Question, Schema: ask.Schema, Calls: []notify.Call{},
	}
	if ask.Kind == journal.ApprovalCall && s.expireAfter() > 0 {
		expires := at.Updated.Add(s.expireAfter()) // when the loop expires it
		m.ExpiresAt = &expires
	}
	for _, c := range ask.Calls {
		m.Calls = append(m.Calls, notify.Call{
			ID: c.ID, Name: c.Name, Effect: c.Effect.OrStrictest(), Arguments: c.Arguments, Preview: c.Preview,
		})
	}
	if origin := s.Env.Config.Server.Origin; origin != "" {
		m.URL = origin + "/approvals/" + ask.ApprovalID
	}
	_, commands := NextCommands(s.Env.SelfHere, Resumer(s.Env.Driver, s.Env.SelfHere), at.Run, ask, true)
	show := s.Env.SelfHere + " approvals show " + guard.Visible(toolcrib.ShortID(ask.ApprovalID))
	m.Commands = append([]string{show}, commands...)
	return m
}
