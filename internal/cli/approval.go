package cli

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/internal/propose"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// approvalView is an approval with what was decided so far.
type approvalView struct {
	ID        string               `json:"approval_id"`
	Run       toolcrib.RunID       `json:"run_id"`
	Parent    toolcrib.RunID       `json:"parent_id,omitempty"` // the run that started it
	Status    string               `json:"status"`              // pending | expired | decided | ended
	Kind      journal.ApprovalKind `json:"kind"`
	Digest    string               `json:"digest"`
	Agent     string               `json:"agent"`
	User      string               `json:"user"`
	Reason    string               `json:"reason"`
	Question  string               `json:"question,omitempty"` // of kind input
	Schema    json.RawMessage      `json:"schema,omitempty"`   // of its answer
	Calls     []approvalCall       `json:"calls"`
	CreatedAt time.Time            `json:"created_at"`
	ExpiresAt *time.Time           `json:"expires_at"` // null = never, or not pending any more
	Decisions []approvalWord       `json:"decisions"`
	LetPass   []string             `json:"let_pass"` // later calls that passed because it was remembered

	rec store.RunRecord
}

type approvalCall struct {
	journal.ApprovalItem
	Decision string `json:"decision"` // "" = open
	// Edited are the arguments that a person gave in place of the model's.
	Edited json.RawMessage `json:"edited_arguments,omitempty"`
	// Rule asks, and Position is where the configuration says that it is asked.
	Rule     string `json:"rule,omitempty"`
	Position string `json:"position,omitempty"`
	// Proposed is a rule that would let calls like this one pass, while it is open.
	Proposed *propose.Rule `json:"proposed_rule,omitempty"`
}

type approvalWord struct {
	Decision string    `json:"decision"`
	By       string    `json:"by"`
	Own      bool      `json:"own"` // it is the word of the user for whom the run acts
	Reason   string    `json:"reason,omitempty"`
	At       time.Time `json:"at"`

	Calls    map[string]journal.CallDecision `json:"calls,omitempty"` // by call ID; absent = Decision, or still open
	Remember *journal.Remember               `json:"remember,omitempty"`

	edited bool // a call runs with other arguments
}

// text is the word for people.
func (w *approvalWord) text() string {
	text := strings.ReplaceAll(w.Decision, "_", " ")
	if w.edited {
		text += " with other arguments"
	}
	return text
}

const (
	approvalPending = "pending"
	approvalExpired = "expired" // it has waited for too long: what goes on with the run next denies it
	approvalDecided = "decided"
	approvalEnded   = "ended" // its run ended before it was decided
)

// open are the calls that nobody has decided on yet.
func (v *approvalView) open() []string {
	var ids []string
	for _, c := range v.Calls {
		if c.Decision == "" {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// request is the approval as it was asked, with the calls that are open.
func (v *approvalView) request() *journal.ConfirmationRequired {
	ask := &journal.ConfirmationRequired{
		ApprovalID: v.ID, Digest: v.Digest, Kind: v.Kind, Reason: v.Reason, Question: v.Question, Schema: v.Schema,
	}
	for _, c := range v.Calls {
		if c.Decision == "" {
			ask.Calls = append(ask.Calls, c.ApprovalItem)
		}
	}
	return ask
}

// approvalsOf reads the approvals of a run from its journal, in their order.
func (a *app) approvalsOf(ctx context.Context, s *sqlite.Store, rec store.RunRecord) ([]*approvalView, error) {
	var all []*approvalView
	var last time.Time
	verdicts := map[string]journal.Verdict{}
	for e, err := range s.Read(ctx, rec.ID, 0) {
		if err != nil {
			return nil, err
		}
		last = e.Time
		switch b := e.Body.(type) {
		case *journal.ConfirmationRequired:
			v := &approvalView{
				ID: b.ApprovalID, Run: rec.ID, Parent: rec.Parent, Status: approvalDecided, Kind: b.Kind, Digest: b.Digest, Agent: rec.Agent,
				User: rec.User, Reason: b.Reason, Question: b.Question, Schema: b.Schema, CreatedAt: e.Time, Calls: []approvalCall{}, Decisions: []approvalWord{}, LetPass: []string{}, rec: rec,
			}
			for _, c := range b.Calls {
				why := verdicts[c.ID]
				v.Calls = append(v.Calls, approvalCall{ApprovalItem: c, Rule: why.Rule, Position: why.Position})
			}
			all = append(all, v)
		case *journal.ConfirmationResolved:
			if n := len(all); n > 0 && all[n-1].ID == b.ApprovalID {
				all[n-1].resolved(e.Time, b)
			}
		case *journal.Verdicts:
			letPass(all, b)
			for _, v := range b.Verdicts {
				verdicts[v.CallID] = v
			}
		case *journal.Granted:
			if n := len(all); n > 0 && len(all[n-1].Calls) == 0 {
				all[n-1].Decisions = append(all[n-1].Decisions, approvalWord{Decision: "grant", By: b.By, At: e.Time})
			}
		}
	}
	for _, v := range all {
		switch {
		case rec.Pending != nil && rec.Pending.ApprovalID == v.ID && rec.Status.Parked():
			v.Status, v.ExpiresAt = approvalPending, a.expiry(v, last)
			if v.ExpiresAt != nil && !time.Now().Before(*v.ExpiresAt) {
				v.Status = approvalExpired
				continue
			}
			v.propose()
		case len(v.open()) > 0, len(v.Decisions) == 0:
			v.Status = approvalEnded
		}
	}
	return all, nil
}

// propose adds the rules that a person could add for the open calls of an approval,
// each of them once.
func (v *approvalView) propose() {
	known := map[string]bool{}
	for i := range v.Calls {
		if c := &v.Calls[i]; c.Decision == "" && v.Kind == journal.ApprovalCall {
			if r := proposed(&c.ApprovalItem); r != nil && !known[r.Name] {
				c.Proposed, known[r.Name] = r, true
			}
		}
	}
}

func (v *approvalView) resolved(at time.Time, b *journal.ConfirmationResolved) {
	word, edited := render.Decision(b)
	v.Decisions = append(v.Decisions, approvalWord{Decision: word, edited: edited, By: b.By, Own: b.User != "" && b.User == v.User, Reason: b.Reason, At: at, Calls: b.Calls, Remember: b.Remember})
	for i := range v.Calls {
		if d := b.Of(v.Calls[i].ID); d.Decision != "" && v.Calls[i].Decision == "" {
			v.Calls[i].Decision, v.Calls[i].Edited = d.Decision, d.Arguments
		}
	}
}

// letPass notes the calls that passed because an earlier approval was remembered.
func letPass(all []*approvalView, b *journal.Verdicts) {
	for _, verdict := range b.Verdicts {
		for _, v := range all {
			own := func(c approvalCall) bool { return c.ID == verdict.CallID }
			if v.ID == verdict.Approval && verdict.Decision == toolcrib.Allow && !slices.ContainsFunc(v.Calls, own) &&
				!slices.Contains(v.LetPass, verdict.CallID) {
				v.LetPass = append(v.LetPass, verdict.CallID)
			}
		}
	}
}

// expiry is when an approval that nobody decides is denied; nil = never.
func (a *app) expiry(v *approvalView, last time.Time) *time.Time {
	c, err := a.configuration()
	if err != nil || v.Kind != journal.ApprovalCall || c.Approvals.Expire <= 0 {
		return nil
	}
	at := last.Add(c.Approvals.Expire.Std())
	return &at
}

// pendingApprovals are those of all parked runs, newest first, also those that have
// waited for too long. It writes nothing.
func (a *app) pendingApprovals(ctx context.Context, s *sqlite.Store) ([]*approvalView, error) {
	var pending []*approvalView
	f := store.Filter{Status: []toolcrib.Status{toolcrib.StatusWaitingForApproval, toolcrib.StatusWaitingForInput}}
	err := a.eachDecidable(ctx, s, f, func(rec store.RunRecord) error {
		views, err := a.approvalsOf(ctx, s, rec)
		if err != nil {
			if ctx.Err() != nil || storeFailed(err) {
				return err
			}
			a.notice("what run %s waits for cannot be told: %v", rec.ID, err)
			return nil // the others can
		}
		for _, v := range views {
			if v.Status == approvalPending || v.Status == approvalExpired {
				pending = append(pending, v)
			}
		}
		return nil
	})
	return pending, err
}

// expire denies an approval that has waited for too long, for somebody who comes to
// decide about it, and tells them so.
func (a *app) expire(ctx context.Context, v *approvalView) error {
	r, err := a.runnerOf(ctx, v.rec)
	if err != nil {
		return err
	}
	c, err := a.configuration()
	if err != nil {
		return err
	}
	if _, err := r.Expire(ctx, v.Run, c.Approvals.Expire.Std()); err != nil && !isConflict(err) {
		return err
	}
	return failedf("conflict: approval %s has expired and counts as denied; to go on: %s runs resume %s", v.ID, a.self(), v.Run)
}

// eachDecidable goes through the runs about which the principal may decide, newest
// first: approvers see those of others, too.
func (a *app) eachDecidable(ctx context.Context, s *sqlite.Store, f store.Filter, do func(store.RunRecord) error) error {
	who, err := a.principal(ctx)
	if err != nil {
		return err
	}
	if !agent.MayDecide(who, "") {
		f.User = who.User
	}
	return everyRun(ctx, s, f, do)
}

// decidedLooked is how many of the newest runs are looked at for an approval that
// is not pending any more.
const decidedLooked = 200

// findApproval finds an approval by its ID, the beginning of it, or as last: the
// newest pending one. One that was decided is found by its whole ID only.
func (a *app) findApproval(ctx context.Context, s *sqlite.Store, name string) (*approvalView, error) {
	pending, err := a.pendingApprovals(ctx, s)
	if err != nil {
		return nil, err
	}
	if name == "last" {
		if len(pending) == 0 {
			return nil, failedf("not found: nothing waits for an approval")
		}
		return newest(pending), nil
	}
	full := name
	if !strings.HasPrefix(full, "apr_") {
		full = "apr_" + full
	}
	var fit []*approvalView
	for _, v := range pending {
		switch {
		case v.ID == full:
			return v, nil
		case name != "" && strings.HasPrefix(v.ID, full):
			fit = append(fit, v)
		}
	}
	if len(fit) == 1 {
		return fit[0], nil
	}
	if len(fit) > 1 {
		return nil, failedf("approval ID %s is ambiguous, give more of it; it fits %s and %s", name, fit[0].ID, fit[1].ID)
	}
	return a.findDecided(ctx, s, full)
}

// newest is the one that came last; what has expired comes before all others.
func newest(views []*approvalView) *approvalView {
	last := views[0]
	for _, v := range views {
		open, was := v.Status == approvalPending, last.Status == approvalPending
		if open && !was || open == was && v.CreatedAt.After(last.CreatedAt) {
			last = v
		}
	}
	return last
}

// errFound ends a search.
var errFound = errors.New("found")

func (a *app) findDecided(ctx context.Context, s *sqlite.Store, id string) (*approvalView, error) {
	var found *approvalView
	looked := 0
	err := a.eachDecidable(ctx, s, store.Filter{}, func(rec store.RunRecord) error {
		if looked++; looked > decidedLooked {
			return errFound
		}
		views, err := a.approvalsOf(ctx, s, rec)
		if err != nil {
			return nil // a journal that cannot be read is told by runs show
		}
		for _, v := range views {
			if v.ID == id {
				found = v
				return errFound
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, errFound) {
		return nil, err
	}
	if found == nil {
		return nil, failedf("not found: there is no approval %s; `toolcrib approvals list` shows what waits", id)
	}
	return found, nil
}
