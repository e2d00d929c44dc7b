package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/policy"
	"github.com/toolcrib/toolcrib/store"
)

func (a *app) approvalsListCommand(cmd *cobra.Command) {
	listing(a, cmd, a.reading, "APPROVAL|RUN|KIND|AGE|EXPIRES IN|AGENT|USER|CALLS",
		func(c call) ([]*service.Approval, error) { return c.at.Approvals(c, c.who) },
		func(of **service.Approval) []string {
			v := *of
			return []string{
				short(v.ID), short(v.Run), string(v.Kind), render.Duration(time.Since(v.CreatedAt)), expiresText(v), v.Agent,
				v.User, callsText(v),
			}
		})
}

func expiresText(v *service.Approval) string {
	if v.ExpiresAt == nil {
		return "never"
	}
	if v.Status == api.ApprovalExpired {
		return "expired"
	}
	return render.Duration(time.Until(*v.ExpiresAt))
}

// callColumns bounds the width of a call in a list.
const callColumns = 120

func callsText(v *service.Approval) string {
	if v.Question != "" {
		return v.Question
	}
	parts := make([]string, 0, len(v.Calls))
	for _, c := range v.Request().Calls {
		parts = append(parts, callText(c.Name, c.Arguments))
	}
	return strings.Join(parts, "; ")
}

func callText(name string, arguments json.RawMessage) string {
	return name + " " + render.Arguments(arguments, callColumns)
}

func (a *app) approvalsShowCommand(cmd *cobra.Command) {
	a.answering(cmd, a.reading, func(c call) (any, func(), error) {
		v, err := c.at.Approval(c, c.who, c.args[0])
		return v, func() { a.showApproval(c.who, v) }, noApproval(err, c.args[0])
	})
}

// noApproval adds to an error about an approval how to find one.
func noApproval(err error, name string) error {
	return hint(err, name, "`toolcrib approvals list` shows what waits")
}

func (a *app) showApproval(who toolcrib.Principal, v *service.Approval) {
	s := a.outStyle
	fmt.Fprintf(a.out, "%s  %s\n", s.Bold(short(v.ID)), v.Status)
	a.fields(11, "run", short(v.Run), "part of", string(v.Parent), "agent", v.Agent, "user", v.User,
		"kind", string(v.Kind), "workspace", v.Workspace, "reason", v.Reason,
		"age", render.Duration(time.Since(v.CreatedAt)), "digest", v.Digest)
	if v.Status == api.ApprovalPending {
		a.fields(11, "expires in", expiresText(v))
	}
	if v.Question != "" {
		fmt.Fprintf(a.out, "%s\n%s", s.Dim("question"), s.Quoted(v.Question))
	}
	for _, c := range v.Calls {
		head := s.Bold(guard.Visible(c.Name)) + " " + s.Dim(guard.Visible(c.ID)) + "  " + guard.Visible(c.Decision)
		fmt.Fprintf(a.out, "\n%s\n", strings.TrimRight(head, " "))
		fmt.Fprint(a.out, s.Quoted(render.Indented(c.Arguments)))
		if len(c.Edited) > 0 {
			fmt.Fprintf(a.out, "%s\n%s", s.Yellow("with other arguments, which a person gave:"),
				s.Quoted(render.Indented(c.Edited)))
		}
		if text := strings.Trim(string(c.Effect.OrStrictest())+" · "+c.Reason, " ·"); text != "" {
			fmt.Fprint(a.out, s.Note(text))
		}
		if c.Position != "" {
			fmt.Fprint(a.out, s.Note("asked by "+c.Position))
		}
		if len(c.Edited) == 0 { // its preview is of the model's arguments
			fmt.Fprint(a.out, s.Preview(c.Preview, true))
		}
		if text := proposedText(c.Proposed); text != "" {
			fmt.Fprintln(a.out, text)
		}
	}
	a.showDecisions(v)
	if v.Status == api.ApprovalExpired {
		fmt.Fprintf(a.out, "\nit has expired and counts as denied; %s\n", a.toContinue(v.Driver(), v.Run))
	}
	if v.Status != api.ApprovalPending {
		return
	}
	fmt.Fprintln(a.out)
	if text := a.anotherText(who, v.User, v.Kind); text != "" {
		fmt.Fprintln(a.out, text)
	}
	_, commands := service.NextCommands(a.self(), a.resumer(v.Driver()), v.Run, v.Request(), true)
	for i, command := range commands {
		if i > 0 {
			fmt.Fprint(a.out, "or: ")
		}
		fmt.Fprintln(a.out, command)
	}
}

// showDecisions writes the decisions so far, and the calls that they have let pass since.
func (a *app) showDecisions(v *service.Approval) {
	for _, d := range v.Decisions {
		by := d.By
		if d.Own {
			by += " (for whom the run acts)"
		}
		text := fmt.Sprintf("%s by %s, %s", wordText(v, &d), by, d.At.Local().Format("2006-01-02 15:04:05"))
		if d.Remember != nil {
			text += ", remembered for the " + d.Remember.Scope
		}
		if d.Reason != "" {
			text += ": " + d.Reason
		}
		fmt.Fprintf(a.out, "\n%s %s\n", a.outStyle.Yellow("■"), guard.Visible(text))
	}
	if len(v.LetPass) > 0 {
		fmt.Fprintf(a.out, "%s\n", guard.Visible("let pass since, because it was remembered: "+strings.Join(v.LetPass, ", ")))
	}
}

// wordText formats a decision, per call if it was made per call.
func wordText(v *service.Approval, d *api.ApprovalWord) string {
	if len(d.Calls) == 0 {
		return d.Text()
	}
	var parts []string
	for _, c := range v.Calls {
		if one, ok := d.Calls[c.ID]; ok {
			text := c.ID + " " + strings.ReplaceAll(one.Decision, "_", " ")
			if len(one.Arguments) > 0 {
				text += " with other arguments"
			}
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, ", ")
}

func (a *app) notifyTestCommand(cmd *cobra.Command) {
	secrets := cmd.Flags().Bool("show-secrets", false, "")
	a.answering(cmd, a.changing, func(c call) (any, func(), error) {
		told, err := c.TestNotify(c, c.who, *secrets)
		for _, t := range told {
			if !t.OK {
				err = silent(exitFailed)
			}
		}
		return told, func() {
			table(a, "KEY|WHERE|RESULT", told, func(t *service.NotifyResult) []string {
				return []string{t.Key, t.Where, toldText(t, *secrets)}
			})
		}, err
	})
}

func toldText(t *service.NotifyResult, secrets bool) string {
	secret, _ := t.Secret.(*string)
	switch {
	case !t.OK:
		return t.Error
	case !secrets:
		return "told"
	case t.SecretFrom == "":
		return "not signed"
	case secret != nil:
		return *secret
	}
	return "as configured"
}

// proposedText formats that rule for people. It returns "" if r is nil.
func proposedText(r *api.Rule) string {
	if r == nil {
		return ""
	}
	return "to allow calls like this without a question, add to the rules of the configuration:\n" + r.Line()
}

func (a *app) rememberedListCommand(cmd *cobra.Command) {
	var limit int
	all := cmd.Flags().Bool("all", false, "")
	limitFlag(cmd.Flags(), &limit, store.DefaultLimit, store.MaxLimit)
	listing(a, cmd, a.reading, "REMEMBERED|FOR|CALLS|WORKSPACE|EFFECT|BY|SINCE|REVOKED",
		func(c call) ([]store.Remembered, error) { return c.at.Remembered(c, c.who, *all, limit) },
		func(m *store.Remembered) []string {
			revoked := ""
			if !m.RevokedAt.IsZero() {
				revoked = day(m.RevokedAt) + " by " + m.RevokedBy
			}
			return []string{
				short(m.ID), rememberedFor(m), render.RememberedText(policy.RememberedCalls(*m)), m.Workspace,
				string(m.Effect), m.By, day(m.At), revoked,
			}
		})
}

// rememberedFor describes the calls that a remembered decision applies to.
func rememberedFor(m *store.Remembered) string {
	switch m.Scope {
	case journal.RememberRun:
		return "run " + short(m.Run) + " of " + m.User
	case journal.RememberSession:
		return "session " + short(m.Session) + " of " + m.User
	}
	return "user " + m.User
}

func (a *app) rememberedRevokeCommand(cmd *cobra.Command) {
	a.answering(cmd, a.changing, func(c call) (any, func(), error) {
		m, changed, err := c.at.Forget(c, c.who, c.args[0])
		word := "revoked"
		if !changed {
			word += " already"
		}
		return m, func() { a.says(short(m.ID), word) }, noSuch("approvals remembered", err, c.args[0])
	})
}
