package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// RoleApprover is the role of people who may decide about the runs of other users.
const RoleApprover = "approver"

// ErrFourEyes is the cause of a refusal if only another person may approve.
var ErrFourEyes = errors.New("another person must approve")

// forbidden returns the error for a decision that the principal may not make; nothing was written.
func forbidden(cause error, format string, args ...any) error {
	e := toolcrib.Errorf(toolcrib.CodeForbidden, format, args...)
	e.Err = cause
	return e
}

// NameOf returns the name of a principal, with both names if it acts for another user.
func NameOf(who toolcrib.Principal) string {
	if who.Actor != "" {
		return fmt.Sprintf("%s (for %s)", who.Actor, who.User)
	}
	return who.User
}

// MayDecide reports whether a principal may decide about a user's runs at all: the user,
// administrators and approvers may. All others must not learn of the runs.
func MayDecide(who toolcrib.Principal, user string) bool {
	return who.User != "" && (who.Admin || who.User == user || slices.Contains(who.Roles, RoleApprover))
}

// checkPrincipal refuses principals who may not decide about the run.
func checkPrincipal(s *State, who toolcrib.Principal) error {
	if who.Token != "" && who.Token != s.Start.Principal.Token {
		return forbidden(nil, "an access token decides only about runs that it started, and it did not start run %s", s.Run)
	}
	if MayDecide(who, s.Start.Principal.User) {
		return nil
	}
	name := NameOf(who)
	if name == "" {
		name = "nobody"
	}
	return forbidden(nil, "%s may not decide about run %s: only its user, an administrator or the role %s may", name,
		s.Run, RoleApprover)
}

// mayDecide refuses decisions that this person may not make. To let a call run, or run once more, the
// gate must allow them the tool too, and under four eyes they must not be the user of the run.
// Everybody who may decide can deny, answer, and report whether a call took effect.
func (r *Runner) mayDecide(ctx context.Context, s *State, who toolcrib.Principal,
	b *journal.ConfirmationResolved,
) error {
	if b.Remember != nil && who.Token != "" {
		return forbidden(nil, "remember: an access token can approve only this call")
	}
	tools := approvedTools(s, b)
	own := who.User == s.Start.Principal.User
	if r.FourEyes && own && len(tools) > 0 {
		return forbidden(ErrFourEyes, "approvals.four_eyes: run %s acts for %s, so another person must approve its calls; denying is open to all who may decide", s.Run, who.User)
	}
	for _, tool := range tools {
		err := r.Gate.MayApprove(ctx, who, scopeOf(s.Start), tool)
		if err == nil || judgedLater(s, who, err) {
			continue
		}
		return forbidden(err, "%v", err)
	}
	return r.mayUseAgents(ctx, s, who, b)
}

// mayUseAgents refuses the approval of a call of another agent that the approver may not use.
func (r *Runner) mayUseAgents(ctx context.Context, s *State, who toolcrib.Principal,
	b *journal.ConfirmationResolved,
) error {
	for _, item := range s.Approval.Calls {
		word := b.Of(item.ID)
		c, err := s.Find(item.ID)
		if err != nil || word.Decision != journal.DecisionApprove || c.Verdict == nil {
			continue
		}
		for _, target := range c.Verdict.Targets {
			if target.Kind != toolcrib.TargetAgent {
				continue
			}
			name := target.Name
			if len(word.Arguments) > 0 {
				sub, _ := journal.ReadSubtask(word.Arguments) // the gate refuses what cannot be read
				name = sub.Agent
			}
			refused, err := r.Gate.MayRun(ctx, who, name)
			if err != nil {
				refused = err.Error()
			}
			if refused != "" {
				return forbidden(err, "%s may not let the agent %s work: %s", NameOf(who), name, refused)
			}
		}
	}
	return nil
}

// deciderToday returns the principal who decides, with current rights, since a prompt can stay open
// for long. An access token gives rights only over the runs that it started.
func (r *Runner) deciderToday(ctx context.Context, s *State, who toolcrib.Principal) (toolcrib.Principal, error) {
	today, err := r.Gate.Today(ctx, who)
	if err != nil {
		return who, forbidden(err, "%v", err)
	}
	if today.Token != "" {
		today.Admin, today.Roles = false, nil
	}
	return today, checkPrincipal(s, today)
}

// judgedLater reports whether a refusal concerns the tool in this run, not the rights of the decider.
// Then the approval is harmless: the gate judges the call again before it runs, and the model learns
// the reason. It is always false for an access token, and for deciders who are neither the user of the
// run nor an administrator.
func judgedLater(s *State, who toolcrib.Principal, err error) bool {
	var no *gate.ApproverError
	if !errors.As(err, &no) || who.Token != "" {
		return false
	}
	about := no.Reason != toolcrib.ReasonRequiresAdmin && no.Reason != toolcrib.ReasonNotPermitted
	return about && (who.Admin || who.User == s.Start.Principal.User)
}

// approvedTools returns the tools whose calls a decision lets run, without duplicates.
func approvedTools(s *State, b *journal.ConfirmationResolved) []string {
	var tools []string
	for _, item := range s.Approval.Calls {
		switch b.Of(item.ID).Decision {
		case journal.DecisionApprove, journal.DecisionRetry:
			if !slices.Contains(tools, item.Name) {
				tools = append(tools, item.Name)
			}
		}
	}
	return tools
}

// decider returns the user behind the [Approver].
func (d *driver) decider() toolcrib.Principal {
	if d.r.Who.User != "" {
		return d.r.Who
	}
	return d.s.Start.Principal
}

// ownDecision reports whether the user of the run made a decision. If that is unknown, it is assumed.
func ownDecision(s *State, b *journal.ConfirmationResolved) bool {
	if b.User != "" {
		return b.User == s.Start.Principal.User
	}
	return b.By == core.ByAll || ownName(b.By, s.Start.Principal.User)
}

// ownName reports whether by, as [NameOf] writes it, is this user.
func ownName(by, user string) bool {
	return by == "" || by == user || strings.HasSuffix(by, " (for "+user+")")
}

// OfOthers returns the remembered approvals that were not given by this user: those that apply under
// four eyes, whenever that was switched on.
func OfOthers(user string, all []journal.Remembered) []journal.Remembered {
	others := make([]journal.Remembered, 0, len(all))
	for _, m := range all {
		if !ownName(m.By, user) {
			others = append(others, m)
		}
	}
	return others
}
