package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
)

// another reports whether another person than the one at the command line must approve
// what a run asks about (approvals.four_eyes).
func (d *drive) another(s *agent.State) bool {
	return needsAnother(d.config, d.who, s.Start.Principal.User)
}

func needsAnother(c *config.Config, who toolcrib.Principal, user string) bool {
	return c.Approvals.FourEyes && who.User == user
}

// tellFourEyes tells at the start that --approve all approves nothing under four eyes.
func (a *app) tellFourEyes(c *config.Config, who toolcrib.Principal, user string, approve agent.Approve) {
	if approve == agent.ApproveAll && needsAnother(c, who, user) {
		a.notice("approvals.four_eyes: --approve all is your own word and approves nothing; calls that need an approval wait for another person")
	}
}

// anotherText says who must approve; "" = whoever sits here may.
func anotherText(c *config.Config, who toolcrib.Principal, user string, kind journal.ApprovalKind) string {
	if !needsAnother(c, who, user) {
		return ""
	}
	const text = "approvals.four_eyes: another person than %s must %s, an administrator or one with the role " + agent.RoleApprover
	switch kind {
	case journal.ApprovalCall:
		return fmt.Sprintf(text, guard.Visible(user), "approve")
	case journal.ApprovalInDoubt:
		return fmt.Sprintf(text, guard.Visible(user), "decide that calls run once more")
	}
	return ""
}

// withWay adds to the refusal of a decision what to do.
func (a *app) withWay(err error, v *service.Approval, word journal.CallDecision) error {
	switch {
	case errors.Is(err, agent.ErrFourEyes):
		return fmt.Errorf("%w\nAnother person, who is an administrator or has the role %s, decides with: %s approvals show %s",
			err, agent.RoleApprover, a.self(), v.ID)
	case v.Status == service.ApprovalExpired:
		return fmt.Errorf("%w; to continue: %s runs resume %s", err, a.self(), v.Run)
	case v.Status == service.ApprovalPending && !v.Fits(word.Decision):
		what, commands := wayOn(a.self(), v.Run, v.Request(), true)
		return usagef("approval %s waits for %s, and %s does not fit; use: %s", v.ID, what,
			strings.ReplaceAll(word.Decision, "_", " "), strings.Join(commands, "\n  or: "))
	}
	return err
}
