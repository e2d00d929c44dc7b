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
	"github.com/toolcrib/toolcrib/internal/notify"
	"github.com/toolcrib/toolcrib/journal"
)

// NoticeNotifyFailed begins the line that says that an address was not told, and is its
// message in the log.
const NoticeNotifyFailed = "notify_failed"

// Announce implements [agent.Announcer]: it tells the addresses of approvals.notify that a
// run waits for people. What this process will put to a person itself, or decide as it was
// told, is kept until it is clear that nobody has answered.
func (d *drive) Announce(ctx context.Context, s *agent.State) {
	if d.answers(s) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.waiting[s.Approval.ApprovalID] = s.Run
		return
	}
	d.tell(ctx, s)
}

// announceLeft tells of what nobody answered here after all.
func (d *drive) announceLeft(ctx context.Context, s *agent.State) {
	if s == nil || s.Pending == nil || ctx.Err() != nil {
		return
	}
	d.mu.Lock()
	kept := d.waiting
	d.waiting = map[string]toolcrib.RunID{}
	d.mu.Unlock()
	for _, approval := range slices.Sorted(maps.Keys(kept)) {
		at, err := agent.Load(ctx, d.s.store, kept[approval])
		if err == nil && at.Pending != nil && at.Approval != nil && at.Approval.ApprovalID == approval {
			d.leave(s.Run) // it is the one that is resumed
			d.tell(ctx, at)
		}
	}
}

// tell sends the message, and says in a notice and in the log what went wrong. This
// process has nothing more to do with the run before it was decided, so it frees it first:
// whoever is told may decide and continue it at once.
func (d *drive) tell(ctx context.Context, at *agent.State) {
	s := d.s
	d.leave(at.Run)
	sender, problems := s.Notifier()
	for _, f := range sender.Send(ctx, s.message(at)) {
		problems = append(problems, fmt.Sprintf("%s was not notified of approval %s: %s", f.Where, at.Approval.ApprovalID,
			f.Reason))
	}
	for _, text := range problems {
		text = s.Mask.Mask(text)
		s.Notice(NoticeNotifyFailed + ": " + text)
		d.log.WarnContext(ctx, NoticeNotifyFailed, "run", at.Run, "error", text)
	}
}

// message is what is told of the approval that a run waits for.
func (s *Service) message(at *agent.State) notify.Message {
	ask := at.Approval
	m := notify.Message{
		ID: "msg_" + ask.ApprovalID, Type: notify.TypeApproval, Time: time.Now().UTC().Truncate(time.Millisecond),
		ApprovalID: ask.ApprovalID, Digest: ask.Digest, Run: at.Run, Agent: at.Start.Agent.Name,
		User: at.Start.Principal.User,
		Kind: ask.Kind, Reason: ask.Reason, Question: ask.Question, Schema: ask.Schema, Calls: []notify.Call{},
	}
	if ask.Kind == journal.ApprovalCall && s.expireAfter() > 0 {
		expires := at.Updated.Add(s.expireAfter()) // as it is counted
		m.ExpiresAt = &expires
	}
	for _, c := range ask.Calls {
		m.Calls = append(m.Calls, notify.Call{
			ID: c.ID, Name: c.Name, Effect: c.Effect.OrStrictest(), Arguments: c.Arguments,
			Preview: c.Preview,
		})
	}
	_, commands := WayOn(s.Self, at.Run, ask, true)
	show := s.Self + " approvals show " + guard.Visible(toolcrib.ShortID(ask.ApprovalID))
	m.Commands = append([]string{show}, commands...)
	return m
}
