package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

func (a *app) approvalsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "approvals",
		Short:   "List, show and decide what parked runs wait for",
		Example: "toolcrib approvals list\ntoolcrib approvals show last\ntoolcrib approvals approve last --resume",
		Args:    cobra.ArbitraryArgs,
		RunE:    group,
	}
	cmd.AddCommand(a.approvalsListCommand(), a.approvalsShowCommand(),
		a.approvalsDecideCommand(journal.DecisionApprove), a.approvalsDecideCommand(journal.DecisionDeny),
		a.approvalsResolveCommand())
	return cmd
}

// approvalView is an approval with what was decided so far.
type approvalView struct {
	ID        string               `json:"approval_id"`
	Run       toolcrib.RunID       `json:"run_id"`
	Status    string               `json:"status"` // pending | decided | ended
	Kind      journal.ApprovalKind `json:"kind"`
	Digest    string               `json:"digest"`
	Agent     string               `json:"agent"`
	User      string               `json:"user"`
	Reason    string               `json:"reason"`
	Calls     []approvalCall       `json:"calls"`
	CreatedAt time.Time            `json:"created_at"`
	ExpiresAt *time.Time           `json:"expires_at"` // null = never, or not pending any more
	Decisions []approvalWord       `json:"decisions"`

	rec store.RunRecord
}

type approvalCall struct {
	journal.ApprovalItem
	Decision string `json:"decision"` // "" = open
}

type approvalWord struct {
	Decision string    `json:"decision"`
	By       string    `json:"by"`
	Reason   string    `json:"reason,omitempty"`
	At       time.Time `json:"at"`
}

const (
	approvalPending = "pending"
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
	ask := &journal.ConfirmationRequired{ApprovalID: v.ID, Digest: v.Digest, Kind: v.Kind, Reason: v.Reason}
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
	for e, err := range s.Read(ctx, rec.ID, 0) {
		if err != nil {
			return nil, err
		}
		last = e.Time
		switch b := e.Body.(type) {
		case *journal.ConfirmationRequired:
			v := &approvalView{
				ID: b.ApprovalID, Run: rec.ID, Status: approvalDecided, Kind: b.Kind, Digest: b.Digest, Agent: rec.Agent,
				User: rec.User, Reason: b.Reason, CreatedAt: e.Time, Calls: []approvalCall{}, Decisions: []approvalWord{}, rec: rec,
			}
			for _, c := range b.Calls {
				v.Calls = append(v.Calls, approvalCall{ApprovalItem: c})
			}
			all = append(all, v)
		case *journal.ConfirmationResolved:
			if n := len(all); n > 0 && all[n-1].ID == b.ApprovalID {
				all[n-1].resolved(e.Time, b)
			}
		}
	}
	for _, v := range all {
		if len(v.open()) == 0 {
			continue
		}
		v.Status = approvalEnded
		if rec.Pending != nil && rec.Pending.ApprovalID == v.ID && rec.Status.Parked() {
			v.Status = approvalPending
			v.ExpiresAt = a.expiry(v, last)
		}
	}
	return all, nil
}

func (v *approvalView) resolved(at time.Time, b *journal.ConfirmationResolved) {
	v.Decisions = append(v.Decisions, approvalWord{Decision: b.Decision, By: b.By, Reason: b.Reason, At: at})
	for i := range v.Calls {
		if d := b.Of(v.Calls[i].ID); d.Decision != "" {
			v.Calls[i].Decision = d.Decision
		}
	}
}

// expiry is when an approval that nobody decides is denied; nil = never.
func (a *app) expiry(v *approvalView, last time.Time) *time.Time {
	c, err := a.configuration()
	if err != nil || v.Kind != journal.ApprovalCall {
		return nil
	}
	at := last.Add(c.Approvals.Expire.Std())
	return &at
}

// pendingApprovals are those of all parked runs, newest first. Those that have
// waited for too long are denied here and now.
func (a *app) pendingApprovals(ctx context.Context, s *sqlite.Store) ([]*approvalView, error) {
	var pending []*approvalView
	f := store.Filter{Status: []toolcrib.Status{toolcrib.StatusWaitingForApproval}}
	err := a.eachRun(ctx, s, f, func(rec store.RunRecord) error {
		views, err := a.approvalsOf(ctx, s, rec)
		if err != nil {
			return err
		}
		for _, v := range views {
			if v.Status != approvalPending {
				continue
			}
			expired, err := a.expire(ctx, v)
			if err != nil {
				return err
			}
			if !expired {
				pending = append(pending, v)
			}
		}
		return nil
	})
	return pending, err
}

// expire denies a pending approval that has waited for too long.
func (a *app) expire(ctx context.Context, v *approvalView) (bool, error) {
	if v.ExpiresAt == nil || time.Now().Before(*v.ExpiresAt) {
		return false, nil
	}
	r, err := a.runnerOf(ctx, v.rec)
	if err != nil {
		return false, err
	}
	c, err := a.configuration()
	if err != nil {
		return false, err
	}
	_, err = r.Expire(ctx, v.Run, c.Approvals.Expire.Std())
	switch {
	case errors.Is(err, store.ErrReadOnly), isConflict(err):
		// It has expired all the same, or somebody has decided it just now.
	case err != nil:
		return false, err
	}
	a.notice("approval %s has expired and counts as denied; to go on: toolcrib runs resume %s", v.ID, v.Run)
	return true, nil
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

func newest(views []*approvalView) *approvalView {
	last := views[0]
	for _, v := range views {
		if v.CreatedAt.After(last.CreatedAt) {
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
	err := a.eachRun(ctx, s, store.Filter{}, func(rec store.RunRecord) error {
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

func (a *app) approvalsListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List what parked runs wait for, newest first",
		Example: "toolcrib approvals list\ntoolcrib approvals list --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := a.configuration(); err != nil {
				return err
			}
			s, err := a.databaseToRead(cmd.Context())
			if err != nil {
				return err
			}
			views, err := a.pendingApprovals(cmd.Context(), s)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(a.out, append([]*approvalView{}, views...), true)
			}
			rows := [][]string{{"APPROVAL", "RUN", "KIND", "AGE", "EXPIRES IN", "AGENT", "USER", "CALLS"}}
			now := time.Now()
			for _, v := range views {
				rows = append(rows, []string{
					v.ID, string(v.Run), string(v.Kind), render.Duration(now.Sub(v.CreatedAt)), expiresText(v, now), v.Agent, v.User, callsText(v),
				})
			}
			a.outStyle.Table(a.out, rows)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON value")
	return cmd
}

func expiresText(v *approvalView, now time.Time) string {
	if v.ExpiresAt == nil {
		return "never"
	}
	return render.Duration(v.ExpiresAt.Sub(now))
}

const callColumns = 60

func callsText(v *approvalView) string {
	parts := make([]string, 0, len(v.Calls))
	for _, c := range v.request().Calls {
		parts = append(parts, c.Name+" "+render.Arguments(c.Arguments, callColumns))
	}
	return strings.Join(parts, "; ")
}

func (a *app) approvalsShowCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show the calls of an approval, what they would change, and the digest",
		Long: "Show what is asked: each call with its arguments, what it would change, and why it is asked about. " +
			"The digest says that a decision is about exactly this. ID is an approval, the beginning of one, or last.",
		Example: "toolcrib approvals show last\ntoolcrib approvals show apr_01K --json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := a.configuration(); err != nil {
				return err
			}
			s, err := a.databaseToRead(cmd.Context())
			if err != nil {
				return err
			}
			v, err := a.findApproval(cmd.Context(), s, args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(a.out, v, true)
			}
			a.showApproval(v)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON value")
	return cmd
}

func (a *app) showApproval(v *approvalView) {
	s, now := a.outStyle, time.Now()
	fmt.Fprintf(a.out, "%s  %s\n", s.Bold(guard.Visible(v.ID)), v.Status)
	rows := [][2]string{
		{"run", string(v.Run)}, {"agent", v.Agent}, {"user", v.User}, {"kind", string(v.Kind)},
		{"reason", v.Reason}, {"age", render.Duration(now.Sub(v.CreatedAt))}, {"digest", v.Digest},
	}
	if v.Status == approvalPending {
		rows = append(rows, [2]string{"expires in", expiresText(v, now)})
	}
	for _, row := range rows {
		fmt.Fprintf(a.out, "%s %s\n", s.Dim(fmt.Sprintf("%-11s", row[0])), guard.Visible(row[1]))
	}
	for _, c := range v.Calls {
		fmt.Fprintf(a.out, "\n%s %s  %s\n", s.Bold(guard.Visible(c.Name)), s.Dim(guard.Visible(c.ID)), guard.Visible(c.Decision))
		fmt.Fprintln(a.out, render.Indented(c.Arguments))
		if text := strings.Trim(string(c.Effect.OrStrictest())+" · "+c.Reason, " ·"); text != "" {
			fmt.Fprintf(a.out, "%s\n", s.Dim(guard.Visible(text)))
		}
		fmt.Fprint(a.out, s.Preview(c.Preview, 0))
	}
	for _, d := range v.Decisions {
		text := fmt.Sprintf("%s by %s, %s", d.Decision, d.By, d.At.Local().Format("2006-01-02 15:04:05"))
		if d.Reason != "" {
			text += ": " + d.Reason
		}
		fmt.Fprintf(a.out, "\n%s %s\n", s.Yellow("■"), guard.Visible(text))
	}
	if v.Status != approvalPending {
		return
	}
	fmt.Fprintln(a.out)
	if v.Kind == journal.ApprovalInDoubt {
		fmt.Fprintf(a.out, "toolcrib approvals resolve %s --digest %s --retry\n", v.ID, v.Digest)
		return
	}
	fmt.Fprintf(a.out, "toolcrib approvals approve %s --digest %s\ntoolcrib approvals deny %s --digest %s\n", v.ID, v.Digest, v.ID, v.Digest)
}
