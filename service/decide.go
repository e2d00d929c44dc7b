package service

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/internal/propose"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service/env"
)

// Decision is a person's decision on an approval.
type Decision struct {
	journal.CallDecision
	Calls []string // IDs of the calls that it is about; if empty, all open calls
	// Each are decisions on calls by their IDs, instead of CallDecision and Calls. The other calls stay open.
	Each   map[string]journal.CallDecision
	Digest string // digest of what the person was shown
	Reason string
	// Remember makes an approval apply to later calls like these. If nil, it applies to these only.
	Remember *journal.Remember
}

// Decisions returns the valid decisions on an approval of a kind.
func Decisions(kind journal.ApprovalKind, calls int) []string {
	switch {
	case kind == journal.ApprovalInDoubt:
		return []string{journal.DecisionRetry, journal.DecisionHappened, journal.DecisionNotHappened}
	case kind == journal.ApprovalInput && calls > 0:
		return []string{journal.DecisionAnswer, journal.DecisionDeny}
	case kind == journal.ApprovalInput:
		return []string{journal.DecisionDeny}
	}
	return []string{journal.DecisionApprove, journal.DecisionDeny}
}

// Fits reports whether a decision is valid for this kind of approval.
func (v *Approval) Fits(d string) bool { return slices.Contains(Decisions(v.Kind, len(v.Calls)), d) }

// Items returns the calls of an approval with these IDs.
func (v *Approval) Items(ids []string) []journal.ApprovalItem {
	var items []journal.ApprovalItem
	for _, c := range v.Calls {
		if slices.Contains(ids, c.ID) {
			items = append(items, c.ApprovalItem)
		}
	}
	return items
}

// Check returns the error that [Service.Decide] would return for a decision now; the digest may still be missing. It
// writes nothing, but an expired approval is denied.
func (s *Service) Check(ctx context.Context, who toolcrib.Principal, v *Approval, d Decision) error {
	r, decision, err := s.prepare(ctx, who, v, d)
	if err != nil {
		return err
	}
	return r.Check(ctx, v.Run, decision)
}

// Decide appends a decision to the journal, once. d.Digest must be the digest of what the person was shown.
func (s *Service) Decide(ctx context.Context, who toolcrib.Principal, v *Approval, d Decision) (api.Decided, error) {
	if d.Digest == "" {
		return api.Decided{}, toolcrib.Errorf(toolcrib.CodeBadRequest,
			"a decision needs the digest of what was shown (approval %s)", v.ID)
	}
	r, decision, err := s.prepare(ctx, who, v, d)
	if err != nil {
		return api.Decided{}, err
	}
	state, err := r.Decide(ctx, v.Run, decision)
	if err != nil {
		return api.Decided{}, err
	}
	s.tellReady(ctx, v.record)
	said := journal.ConfirmationResolved{Decision: cmp.Or(d.Decision, journal.DecisionMixed), Calls: decision.Calls}
	outcome, _ := said.Overall()
	out := api.Decided{
		ID: v.ID, Run: v.Run, Decision: outcome, By: agent.NameOf(who),
		Reason: d.Reason, Calls: []string{}, Open: []string{}, Status: state.Status, Remember: decision.Remember,
	}
	if state.Approval != nil {
		for _, c := range openCalls(state) {
			out.Open = append(out.Open, c.ID)
		}
	}
	for _, id := range v.Open() {
		if !slices.Contains(out.Open, id) {
			out.Calls = append(out.Calls, id)
		}
	}
	return out, nil
}

// prepare returns a decision for the loop, or an error if it is not valid.
func (s *Service) prepare(ctx context.Context, who toolcrib.Principal, v *Approval, d Decision) (*agent.Runner,
	agent.Decision, error,
) {
	out := agent.Decision{ApprovalID: v.ID, Digest: d.Digest, Who: who, Reason: d.Reason, Remember: d.Remember}
	if !env.Decides(who, &v.record) {
		return nil, out, toolcrib.Errorf(toolcrib.CodeNotFound, "there is no approval %s", v.ID)
	}
	if err := s.current(ctx, v); err != nil {
		return nil, out, err
	}
	if err := v.takes(d); err != nil {
		return nil, out, err
	}
	ids := d.Calls
	if len(ids) == 0 {
		ids = v.Open()
	}
	if v.Kind == journal.ApprovalCall && !propose.Storable(v.Items(ids)) {
		// These calls are asked about each time; the decision itself is valid.
		out.Remember = nil
	}
	switch {
	case len(d.Each) > 0:
		out.Calls = d.Each
	case len(d.Calls) == 0 && d.Arguments == nil:
		out.Decision, out.Result = d.Decision, d.Result
	default:
		out.Calls = make(map[string]journal.CallDecision, len(ids))
		for _, id := range ids {
			out.Calls[id] = d.CallDecision
		}
	}
	r, err := s.runner(v.record)
	return r, out, err
}

// current returns an error if an approval is not pending. An expired approval is denied.
func (s *Service) current(ctx context.Context, v *Approval) error {
	switch v.Status {
	case api.ApprovalPending:
		return nil
	case api.ApprovalDecided:
		last := v.Decisions[len(v.Decisions)-1]
		return toolcrib.Errorf(toolcrib.CodeConflict, "approval %s was decided already (%s by %s); run %s is %s",
			v.ID, last.Text(), last.By, v.Run, v.record.Status)
	case api.ApprovalExpired:
		r, err := s.runner(v.record)
		if err == nil {
			_, err = r.Expire(ctx, v.Run, s.expireAfter())
		}
		if err != nil && !errors.Is(err, toolcrib.ErrConflict) {
			return err
		}
		return toolcrib.Errorf(toolcrib.CodeConflict, "approval %s has expired and counts as denied", v.ID)
	}
	return toolcrib.Errorf(toolcrib.CodeConflict, "approval %s is no longer open; run %s is %s", v.ID, v.Run,
		v.record.Status)
}

// takes returns an error if a decision does not fit a pending approval.
func (v *Approval) takes(d Decision) error {
	open, named, decisions, at := v.Open(), d.Calls, []journal.CallDecision{d.CallDecision}, "--call "
	if len(d.Each) > 0 {
		at = "calls."
		named, decisions = slices.Sorted(maps.Keys(d.Each)), slices.Collect(maps.Values(d.Each))
	}
	for _, one := range decisions {
		if !v.Fits(one.Decision) {
			return toolcrib.Errorf(toolcrib.CodeBadRequest, "approval %s does not take %s (valid: %s)",
				v.ID, one.Decision, strings.Join(Decisions(v.Kind, len(v.Calls)), ", "))
		}
	}
	switch {
	case len(v.Calls) > 0 && len(open) == 0: // decided by another person since it was found
		return toolcrib.Errorf(toolcrib.CodeConflict, "approval %s was decided just now; run %s is %s", v.ID, v.Run,
			v.record.Status)
	case d.Arguments != nil && len(d.Calls) != 1 && len(open) != 1:
		return toolcrib.Errorf(toolcrib.CodeBadRequest, "approval %s has %d open calls; name one of them", v.ID, len(open))
	}
	for _, id := range named {
		switch {
		case slices.Contains(open, id):
		case slices.ContainsFunc(v.Calls, func(c api.ApprovalCall) bool { return c.ID == id }):
			return toolcrib.Errorf(toolcrib.CodeConflict, "call %s of approval %s was decided already", id, v.ID)
		default:
			return toolcrib.Errorf(toolcrib.CodeBadRequest, "%s%s: approval %s has no such open call; open are: %s", at, id,
				v.ID, strings.Join(open, ", "))
		}
	}
	return nil
}
