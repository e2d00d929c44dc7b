package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/internal/propose"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/store"
)

// Approval is an approval, with the record of its run.
type Approval struct {
	api.Approval
	record store.RunRecord
	judged bool // the verdicts about its calls were read
}

// RunStatus returns the status of its run.
func (v *Approval) RunStatus() toolcrib.Status { return v.record.Status }

// Driver returns the kind of process that drives its run, or "" if it is not known, as over HTTP.
func (v *Approval) Driver() string { return v.record.Driver }

// Session returns the session of its run, or "".
func (v *Approval) Session() toolcrib.SessionID { return v.record.Session }

// Taint returns the sources of untrusted data that its run has read.
func (v *Approval) Taint() []string {
	return strings.FieldsFunc(v.record.Taint, func(r rune) bool { return r == '\n' })
}

// pendingOf returns the approval that a run waits for, or nil. It reads the end of the journal, where the question and
// what was judged of its calls are, and more of it if they are further back.
func (s *Service) pendingOf(ctx context.Context, who toolcrib.Principal, rec store.RunRecord) (*Approval, error) {
	if rec.Pending == nil || rec.Pending.ApprovalID == "" || !rec.Decides() {
		return nil, nil
	}
	for events := toolcrib.Seq(8); ; events *= 8 {
		after := max(rec.LastSeq, events) - events
		all, err := s.approvalsIn(ctx, who, rec, after, rec.LastSeq)
		if err != nil {
			return nil, err
		}
		for _, v := range all {
			if v.ID == rec.Pending.ApprovalID && (v.judged || after == 0) {
				return v, nil
			}
		}
		if after == 0 {
			return nil, nil
		}
	}
}

// approvalsOf returns the approvals of a run in their order, from its journal as who may read it.
func (s *Service) approvalsOf(
	ctx context.Context, who toolcrib.Principal, rec store.RunRecord,
) ([]*Approval, error) {
	return s.approvalsIn(ctx, who, rec, 0, math.MaxInt64)
}

// approvalsIn is approvalsOf for the events after one and up to another.
func (s *Service) approvalsIn(
	ctx context.Context, who toolcrib.Principal, rec store.RunRecord, after, until toolcrib.Seq,
) (all []*Approval, err error) {
	var last time.Time
	verdicts := map[string]journal.Verdict{}
	for e, err := range s.Env.ReadRun(ctx, who, rec.ID, after) {
		if err != nil {
			return nil, err
		}
		if e.Seq > until {
			break
		}
		last = e.Time
		switch b := e.Body.(type) {
		case *journal.ConfirmationRequired:
			v := &Approval{record: rec, judged: true, Approval: api.Approval{
				ID: b.ApprovalID, Run: rec.ID, Parent: rec.Parent, Status: api.ApprovalDecided, Kind: b.Kind, Digest: b.Digest,
				Agent: rec.Agent, User: rec.User, Reason: b.Reason, Question: b.Question, Schema: b.Schema, CreatedAt: e.Time,
				Calls: []api.ApprovalCall{}, Decisions: []api.ApprovalWord{}, LetPass: []string{}, Workspace: rec.Workspace,
			}}
			for _, c := range b.Calls {
				why, ok := verdicts[c.ID]
				v.judged = v.judged && ok
				if !env.ReadsConfig(who) {
					why.Position = ""
				}
				v.Calls = append(v.Calls, api.ApprovalCall{ApprovalItem: c, Rule: why.Rule, Position: why.Position})
			}
			all = append(all, v)
		case *journal.ConfirmationResolved:
			if n := len(all); n > 0 && all[n-1].ID == b.ApprovalID {
				all[n-1].resolved(e.Time, b)
			}
		case *journal.Verdicts:
			recordAllowed(all, b)
			for _, v := range b.Verdicts {
				verdicts[v.CallID] = v
			}
		case *journal.Granted:
			if n := len(all); n > 0 && len(all[n-1].Calls) == 0 {
				all[n-1].Decisions = append(all[n-1].Decisions, api.ApprovalWord{Decision: "grant", By: b.By, At: e.Time})
			}
		}
	}
	s.conclude(all, &rec, last)
	return all, nil
}

// conclude sets the status of the approvals of a run, whose last event was at this time.
func (s *Service) conclude(all []*Approval, rec *store.RunRecord, last time.Time) {
	for _, v := range all {
		switch {
		case rec.Pending != nil && rec.Pending.ApprovalID == v.ID && rec.Status.Parked():
			v.Status, v.ExpiresAt = api.ApprovalPending, s.expiry(v, last)
			if v.ExpiresAt != nil && !time.Now().Before(*v.ExpiresAt) {
				v.Status = api.ApprovalExpired
				continue
			}
			v.propose()
		case len(v.Open()) > 0, len(v.Decisions) == 0:
			v.Status = api.ApprovalEnded
		}
	}
}

// propose adds the rules that a person could add for the open calls of an approval, each of them once.
func (v *Approval) propose() {
	known := map[string]bool{}
	for i := range v.Calls {
		if c := &v.Calls[i]; c.Decision == "" && v.Kind == journal.ApprovalCall {
			if r := propose.Asked(&c.ApprovalItem); r != nil && !known[r.Name] {
				c.Proposed, known[r.Name] = r, true
			}
		}
	}
}

func (v *Approval) resolved(at time.Time, b *journal.ConfirmationResolved) {
	decision, edited := b.Overall()
	v.Decisions = append(v.Decisions, api.ApprovalWord{
		Decision: decision, Edited: edited, By: b.By, Token: b.Token,
		Own: b.User != "" && b.User == v.User, Reason: b.Reason, At: at, Calls: b.Calls, Remember: b.Remember,
	})
	for i := range v.Calls {
		if d := b.Of(v.Calls[i].ID); d.Decision != "" && v.Calls[i].Decision == "" {
			v.Calls[i].Decision, v.Calls[i].Edited = d.Decision, d.Arguments
		}
	}
}

// recordAllowed records the calls that were allowed because an earlier approval was remembered.
func recordAllowed(all []*Approval, b *journal.Verdicts) {
	for _, verdict := range b.Verdicts {
		for _, v := range all {
			own := func(c api.ApprovalCall) bool { return c.ID == verdict.CallID }
			if v.ID == verdict.Approval && verdict.Decision == toolcrib.Allow && !slices.ContainsFunc(v.Calls, own) &&
				!slices.Contains(v.LetPass, verdict.CallID) {
				v.LetPass = append(v.LetPass, verdict.CallID)
			}
		}
	}
}

// expiry returns when a pending approval is denied, or nil if it does not expire.
func (s *Service) expiry(v *Approval, last time.Time) *time.Time {
	if v.Kind != journal.ApprovalCall || s.expireAfter() <= 0 {
		return nil
	}
	at := last.Add(s.expireAfter())
	return &at
}

// waiting are the runs that wait for an approval or an answer.
func waiting() store.Filter {
	return store.Filter{Status: []toolcrib.Status{toolcrib.StatusWaitingForApproval, toolcrib.StatusWaitingForInput}}
}

// Approvals returns the pending and the expired approvals about which who may decide, newest first. It writes nothing.
func (s *Service) Approvals(ctx context.Context, who toolcrib.Principal) ([]*Approval, error) {
	pending := []*Approval{}
	for rec, err := range s.Env.EachDecidable(ctx, who, waiting()) {
		if err == nil {
			err = s.addPending(ctx, who, rec, &pending)
		}
		if err != nil {
			return pending, err
		}
	}
	return pending, nil
}

// ApprovalPage returns a page of Approvals: those of at most limit runs ([store.Bound]), and the cursor of the next
// page.
func (s *Service) ApprovalPage(
	ctx context.Context, who toolcrib.Principal, limit int, cursor string,
) (pending []*Approval, next string, err error) {
	pending = []*Approval{}
	f := waiting()
	f.Deciding, f.Limit, f.Cursor = true, limit, cursor
	if who.Token != "" || !agent.MayDecide(who, "") {
		f.User = who.User
		var ok bool
		if f, ok = env.Seen(who, f); !ok {
			return pending, "", nil
		}
	}
	page, err := s.Env.Store.Runs(ctx, f)
	for i := 0; err == nil && i < len(page.Runs); i++ {
		err = s.addPending(ctx, who, page.Runs[i], &pending)
	}
	return pending, page.Next, err
}

// addPending adds what a run waits for. If that cannot be read, those of other runs can.
func (s *Service) addPending(
	ctx context.Context, who toolcrib.Principal, rec store.RunRecord, pending *[]*Approval,
) error {
	v, err := s.pendingOf(ctx, who, rec)
	var failed *store.Error
	switch {
	case ctx.Err() != nil, errors.As(err, &failed):
		return cmp.Or(err, ctx.Err())
	case err != nil:
		s.Env.Notice(fmt.Sprintf("what run %s waits for cannot be read: %v", rec.ID, err))
	case v != nil && (v.Status == api.ApprovalPending || v.Status == api.ApprovalExpired):
		*pending = append(*pending, v)
	}
	return nil
}

// maxWaiting bounds what [Service.Waiting] returns: pages ask it again and again.
const maxWaiting = 200

// Waiting returns the IDs of the approvals that [Service.Approvals] returns, newest first, at most maxWaiting. It reads
// no journal, and so includes an approval of a run whose journal is damaged.
func (s *Service) Waiting(ctx context.Context, who toolcrib.Principal) ([]string, error) {
	ids := []string{}
	for rec, err := range s.Env.EachDecidable(ctx, who, waiting()) {
		if err != nil {
			return ids, err
		}
		if rec.Pending != nil && rec.Pending.ApprovalID != "" && rec.Pending.Run == "" {
			if ids = append(ids, rec.Pending.ApprovalID); len(ids) == maxWaiting {
				break
			}
		}
	}
	return ids, nil
}

// decidedBack is how many events before a decision are read for what was asked, at first.
const decidedBack = 64

// Decided returns the approvals that were decided last, of at most runs runs, without those that still wait. Those of a
// run are near its last decision.
func (s *Service) Decided(ctx context.Context, who toolcrib.Principal, runs int) ([]*Approval, error) {
	f := store.AuditFilter{
		Kinds: []toolcrib.Kind{store.AuditApprovalDecided, store.AuditLimitsRaised}, Limit: store.MaxLimit,
	}
	if !(who.Token == "" && agent.MayDecide(who, "")) {
		f.User = who.User
	}
	page, err := s.Env.Store.Audit(ctx, f)
	if err != nil {
		return nil, err
	}
	var all []*Approval
	found, seen := 0, map[toolcrib.RunID]bool{}
	for _, e := range page.Entries {
		if found == runs {
			break
		}
		if seen[e.Run] {
			continue
		}
		seen[e.Run] = true
		rec, err := s.Env.Store.Run(ctx, e.Run)
		if errors.Is(err, toolcrib.ErrNotFound) || err == nil && !env.Decides(who, &rec) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if views := s.decidedUntil(ctx, who, rec, e.Seq); len(views) > 0 {
			all = append(all, views...)
			found++
		}
	}
	slices.SortStableFunc(all, func(a, b *Approval) int {
		return b.Decisions[len(b.Decisions)-1].At.Compare(a.Decisions[len(a.Decisions)-1].At)
	})
	return all, nil
}

// decidedUntil returns the approvals of a run that were decided shortly before an event, or the last one. Those whose
// verdicts are further back are left out.
func (s *Service) decidedUntil(
	ctx context.Context, who toolcrib.Principal, rec store.RunRecord, until toolcrib.Seq,
) []*Approval {
	for events := toolcrib.Seq(decidedBack); ; events *= 8 {
		after := max(until, events) - events
		all, err := s.approvalsIn(ctx, who, rec, after, until)
		all = slices.DeleteFunc(all, func(v *Approval) bool {
			waits := v.Status == api.ApprovalPending || v.Status == api.ApprovalExpired
			return waits || len(v.Decisions) == 0 || !v.judged && after > 0
		})
		if len(all) > 0 || after == 0 || err != nil { // runs show reports a journal that cannot be read
			return all
		}
	}
}

// decidedLooked is the number of the newest runs in which an approval is looked for that is no longer pending.
const decidedLooked = 200

// Approval finds an approval by its ID, the beginning of its ID, or last, which is the newest pending one. Decided
// approvals are found only in the newest runs.
func (s *Service) Approval(ctx context.Context, who toolcrib.Principal, name string) (*Approval, error) {
	if strings.HasPrefix(name, approvalPrefix) && len(name) == approvalLength {
		return s.wholeApproval(ctx, who, name)
	}
	pending, err := s.Approvals(ctx, who)
	if err != nil {
		return nil, err
	}
	if name == "last" {
		if len(pending) == 0 {
			return nil, toolcrib.Errorf(toolcrib.CodeNotFound, "nothing waits for an approval")
		}
		return newest(pending), nil
	}
	id := func(v *Approval) string { return v.ID }
	found, err := env.ByPart("approval", approvalPrefix, name, pending, id)
	if toolcrib.CodeOf(err) != toolcrib.CodeNotFound {
		return found, err
	}
	decided, err := s.decidedApprovals(ctx, who, approvalPrefix+strings.TrimPrefix(name, approvalPrefix))
	if err != nil {
		return nil, err
	}
	return env.ByPart("approval", approvalPrefix, name, decided, id)
}

// wholeApproval finds an approval by its whole ID, however many others are pending.
func (s *Service) wholeApproval(ctx context.Context, who toolcrib.Principal, id string) (*Approval, error) {
	page, err := s.Env.Store.Runs(ctx, store.Filter{Approval: id, Deciding: true, Limit: 1})
	if err != nil {
		return nil, err
	}
	for _, rec := range page.Runs {
		if env.Decides(who, &rec) {
			if v, err := s.pendingOf(ctx, who, rec); v != nil || err != nil {
				return v, err
			}
		}
	}
	found, err := s.decidedApprovals(ctx, who, id)
	if err != nil {
		return nil, err
	}
	return env.ByPart("approval", approvalPrefix, id, found, func(v *Approval) string { return v.ID })
}

// IDs of approvals begin with approvalPrefix and have approvalLength bytes.
const (
	approvalPrefix = "apr_"
	approvalLength = len(approvalPrefix) + 26
)

// newest returns the newest approval. A pending approval is newer than an expired one.
func newest(views []*Approval) *Approval {
	last := views[0]
	for _, v := range views {
		open, was := v.Status == api.ApprovalPending, last.Status == api.ApprovalPending
		if open && !was || open == was && v.CreatedAt.After(last.CreatedAt) {
			last = v
		}
	}
	return last
}

// decidedApprovals returns the approvals of the newest runs whose IDs begin with begin.
func (s *Service) decidedApprovals(
	ctx context.Context, who toolcrib.Principal, begin string,
) (found []*Approval, err error) {
	looked := 0
	for rec, err := range s.Env.EachDecidable(ctx, who, store.Filter{}) {
		if looked++; err != nil || looked > decidedLooked {
			return found, err
		}
		views, err := s.approvalsOf(ctx, who, rec)
		if toolcrib.CodeOf(err) == toolcrib.CodeOverloaded { // the database; runs show reports a journal that cannot be read
			return found, err
		}
		for _, v := range views {
			if strings.HasPrefix(v.ID, begin) {
				found = append(found, v)
			}
			if v.ID == begin {
				return found, nil
			}
		}
	}
	return found, nil
}

// Edited returns a call of an approval with other arguments, which [Service.Check] has accepted, as it would be shown
// to a person.
func (s *Service) Edited(
	ctx context.Context, v *Approval, c journal.ApprovalItem, arguments []byte,
) (journal.ApprovalItem, error) {
	given := s.Policy.GivenCall(c.Name, arguments)
	judged, err := s.Policy.JudgeFor(ctx, v.record, given)
	if err != nil {
		return c, err
	}
	verdict := &judged.Verdict
	c.Arguments, c.Effect, c.Preview, c.Reason = given.Arguments, verdict.Effect, verdict.Preview, verdict.Message
	return c, nil
}
