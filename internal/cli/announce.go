package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/notify"
	"github.com/toolcrib/toolcrib/journal"
)

// noticeNotifyFailed begins the line that says that an address was not told, and is its
// message in the log.
const noticeNotifyFailed = "notify_failed"

// announcer tells the addresses of approvals.notify that a run waits for people. What
// this process will put to a person itself, or decide as it was told, is kept until it
// is clear that nobody has answered.
type announcer struct {
	d    *drive
	mu   sync.Mutex
	kept map[string]toolcrib.RunID // approvals of which nobody was told yet, and whose they are
}

// announcer makes the drive's; nil = nobody is to be told.
func (d *drive) announcer() agent.Announcer {
	if len(d.config.Approvals.Notify) == 0 {
		return nil
	}
	d.announcing = &announcer{d: d, kept: map[string]toolcrib.RunID{}}
	return d.announcing
}

// Announce implements [agent.Announcer].
func (n *announcer) Announce(ctx context.Context, s *agent.State) {
	if n.d.answers(s) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.kept[s.Approval.ApprovalID] = s.Run
		return
	}
	n.d.tell(ctx, s)
}

// answers reports whether this process puts to a person what a run waits for, or decides
// it as it was told.
func (d *drive) answers(s *agent.State) bool {
	present := d.ask != nil || d.screen
	switch s.Approval.Kind {
	case journal.ApprovalCall:
		switch d.approve {
		case agent.ApproveDeny:
			return true
		case agent.ApproveAll:
			return !d.another(s)
		}
		return d.approve == agent.ApproveAsk && present && !d.another(s)
	case journal.ApprovalInput:
		return present || d.approve == agent.ApproveDeny
	}
	return present
}

// announceLeft tells of what nobody answered here after all.
func (d *drive) announceLeft(ctx context.Context, s *agent.State) {
	n := d.announcing
	if n == nil || s == nil || s.Pending == nil || ctx.Err() != nil {
		return
	}
	n.mu.Lock()
	kept := n.kept
	n.kept = map[string]toolcrib.RunID{}
	n.mu.Unlock()
	for _, approval := range slices.Sorted(maps.Keys(kept)) {
		at, err := d.a.load(ctx, d.a.store, kept[approval])
		if err == nil && at.Pending != nil && at.Approval != nil && at.Approval.ApprovalID == approval {
			d.locks.Leave(s.Run) // it is the one that is resumed
			d.tell(ctx, at)
		}
	}
}

// tell sends the message, and says on standard error and in the log what went wrong.
// This process has nothing more to do with the run before it was decided, so it lets go
// of it first: whoever is told may decide and go on with it at once.
func (d *drive) tell(ctx context.Context, s *agent.State) {
	d.locks.Leave(s.Run)
	sender, problems := d.a.service.Notifier()
	for _, f := range sender.Send(ctx, d.message(s)) {
		problems = append(problems, fmt.Sprintf("%s was not told of approval %s: %s", f.Where, s.Approval.ApprovalID, f.Reason))
	}
	mask := d.a.mask()
	for _, text := range problems {
		text = mask.Mask(text)
		d.a.noticeBeside("%s: %s", noticeNotifyFailed, text)
		d.log.WarnContext(ctx, noticeNotifyFailed, "run", s.Run, "error", text)
	}
}

// message is what is told of the approval that a run waits for.
func (d *drive) message(s *agent.State) notify.Message {
	ask := s.Approval
	m := notify.Message{
		ID: "msg_" + ask.ApprovalID, Type: notify.TypeApproval, Time: time.Now().UTC().Truncate(time.Millisecond),
		ApprovalID: ask.ApprovalID, Digest: ask.Digest, Run: s.Run, Agent: s.Start.Agent.Name, User: s.Start.Principal.User,
		Kind: ask.Kind, Reason: ask.Reason, Question: ask.Question, Schema: ask.Schema, Calls: []notify.Call{},
	}
	if ask.Kind == journal.ApprovalCall && d.config.Approvals.Expire > 0 {
		at := s.Updated.Add(d.config.Approvals.Expire.Std()) // as it is counted
		m.ExpiresAt = &at
	}
	for _, c := range ask.Calls {
		m.Calls = append(m.Calls, notify.Call{ID: c.ID, Name: c.Name, Effect: c.Effect.OrStrictest(), Arguments: c.Arguments, Preview: c.Preview})
	}
	_, commands := wayOn("toolcrib", s.Run, ask, true)
	m.Commands = append([]string{"toolcrib approvals show " + guard.Visible(ask.ApprovalID)}, commands...)
	return m
}
