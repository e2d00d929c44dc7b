package service

import (
	"context"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/journal"
)

// attended is who can be asked while a worker drives a run: those who follow it and say that a person is
// there. They are told what an MCP server asks in the middle of a call, and decide it as any approval. For
// what else the run waits, it parks.
type attended struct {
	p *Pool
	d *Drive
}

const (
	askedLook  = 200 * time.Millisecond
	askedEvery = 2 * time.Second // they are told again: some may have come since
)

// Answer implements [Person]. A decision from elsewhere is a conflict, and the run continues with it.
func (a attended) Answer(ctx context.Context, q Question) (Answer, bool, error) {
	frame := journal.Frame{Event: string(journal.KindConfirmationRequired), Data: journal.ConfirmationView{
		ApprovalID: q.Ask.ApprovalID, Digest: q.Ask.Digest, Kind: q.Ask.Kind, Calls: q.Ask.Calls, Reason: q.Ask.Reason,
		Question: q.Ask.Question, Schema: q.Ask.Schema, RunID: q.Run,
	}}
	look := time.NewTicker(askedLook)
	defer look.Stop()
	for told := (time.Time{}); q.Nested && ctx.Err() == nil; {
		again := time.Since(told) >= askedEvery
		if again {
			told = time.Now()
		}
		if !a.p.tellAttending(a.d.run, frame, again) {
			break
		}
		state, err := agent.Load(ctx, a.p.s.Env.Store, q.Run)
		if err == nil && (state.Approval == nil || state.Approval.ApprovalID != q.Ask.ApprovalID) {
			err = toolcrib.Errorf(toolcrib.CodeConflict, "it was decided meanwhile")
		}
		if err != nil {
			return Answer{}, false, err
		}
		select {
		case <-look.C:
		case <-ctx.Done():
		}
	}
	return Answer{}, false, nil
}

// tellAttending reports whether a person follows a run. If tell is set, it sends a frame to each who does.
func (p *Pool) tellAttending(run toolcrib.RunID, f journal.Frame, tell bool) (some bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	queued := queuedFrame{Frame: f}
	if d := p.runs[run]; d != nil {
		queued.after = d.told
	}
	for one := range p.follow[run] {
		if one.attends && tell {
			one.put(&queued)
		}
		some = some || one.attends
	}
	return some
}
