package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// approvalMemory keeps approvals that hold for a session or a user, as the loop
// asks for them (contract §6).
type approvalMemory struct{ store *sqlite.Store }

// alwaysAsked are the tools about whose calls tools.settings.X.confirm: always asks.
func alwaysAsked(c *config.Config) map[string]bool {
	always := map[string]bool{}
	for name, set := range toolSettings(c) {
		always[name] = set.Confirm == gate.ConfirmAlways
	}
	return always
}

// Remembered implements [agent.Memory].
func (m approvalMemory) Remembered(ctx context.Context, user string, session toolcrib.SessionID) ([]gate.Remembered, error) {
	kept, err := m.store.Remembered(ctx, user, session)
	if err != nil {
		return nil, err
	}
	list := make([]gate.Remembered, len(kept))
	for i, k := range kept {
		list[i] = gateRemembered(k)
	}
	return list, nil
}

func gateRemembered(k store.Remembered) gate.Remembered {
	return gate.Remembered{
		Tool: k.Tool, Arguments: k.Arguments, Path: k.Path, Folder: k.Folder, Effect: k.Effect, Scope: k.Scope,
		ApprovalID: k.ApprovalID, By: k.By, Workspace: k.Workspace, FolderID: k.FolderID,
	}
}

// Remember implements [agent.Memory].
func (m approvalMemory) Remember(ctx context.Context, user string, session toolcrib.SessionID, run toolcrib.RunID, approvals []gate.Remembered) error {
	for _, r := range approvals {
		keep := store.Remembered{
			Scope: r.Scope, User: user, Tool: r.Tool, Arguments: r.Arguments, Path: r.Path, Folder: r.Folder,
			Workspace: r.Workspace, FolderID: r.FolderID, Effect: r.Effect, Run: run, ApprovalID: r.ApprovalID, By: r.By,
		}
		if r.Scope == journal.RememberSession {
			keep.Session = session
		}
		if _, _, err := m.store.Remember(ctx, keep); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) approvalsRememberedCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "remembered",
		Short:   "List and revoke approvals that hold for a session or a user",
		Example: "toolcrib approvals remembered list\ntoolcrib approvals remembered revoke rem_0123456789abcdef0123",
		Args:    cobra.ArbitraryArgs,
		RunE:    group,
	}
	cmd.AddCommand(a.rememberedListCommand(), a.rememberedRevokeCommand())
	return cmd
}

func (a *app) rememberedListCommand() *cobra.Command {
	var asJSON, all bool
	var limit int
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List what later calls pass without a question",
		Example: "toolcrib approvals remembered list\ntoolcrib approvals remembered list --all --json",
		Args:    positional,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 || limit > store.MaxLimit {
				return usagef("--limit: must be 1 to %d", store.MaxLimit)
			}
			return a.listRemembered(cmd.Context(), store.RememberedFilter{Revoked: all, Limit: limit}, asJSON)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&all, "all", false, "also those that were revoked")
	flags.IntVar(&limit, "limit", store.DefaultLimit, fmt.Sprintf("at most so many, up to %d", store.MaxLimit))
	flags.BoolVar(&asJSON, "json", false, "one JSON value")
	return cmd
}

func (a *app) listRemembered(ctx context.Context, f store.RememberedFilter, asJSON bool) error {
	who, err := a.principal(ctx)
	if err != nil {
		return err
	}
	if !who.Admin {
		f.User = who.User
	}
	s, err := a.databaseToRead(ctx)
	if err != nil {
		return err
	}
	list, err := s.ListRemembered(ctx, f)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(a.out, append([]store.Remembered{}, list...), true)
	}
	rows := [][]string{{"REMEMBERED", "FOR", "CALLS", "WORKSPACE", "EFFECT", "BY", "SINCE", "REVOKED"}}
	now := time.Now()
	for _, m := range list {
		revoked := ""
		if !m.RevokedAt.IsZero() {
			revoked = shortTime(m.RevokedAt.Local(), now) + " by " + m.RevokedBy
		}
		rows = append(rows, []string{
			m.ID, rememberedFor(m), render.RememberedText(gateRemembered(m)), m.Workspace, string(m.Effect), m.By, shortTime(m.At.Local(), now), revoked,
		})
	}
	a.outStyle.Table(a.out, rows)
	return nil
}

// rememberedFor names whose calls are meant.
func rememberedFor(m store.Remembered) string {
	if m.Scope == journal.RememberSession {
		return "session " + string(m.Session) + " of " + m.User
	}
	return "user " + m.User
}

func (a *app) rememberedRevokeCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "revoke ID",
		Short:   "Ask about such calls again, also in runs that are on their way",
		Example: "toolcrib approvals remembered revoke rem_0123456789abcdef0123\ntoolcrib approvals remembered revoke rem_0123456789abcdef0123 --json",
		Args:    positional,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.revokeRemembered(cmd.Context(), args[0], asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON value")
	return cmd
}

func (a *app) revokeRemembered(ctx context.Context, id string, asJSON bool) error {
	who, err := a.principal(ctx)
	if err != nil {
		return err
	}
	s, err := a.database(ctx)
	if err != nil {
		return err
	}
	of := who.User
	if who.Admin {
		of = ""
	}
	changed, err := s.Forget(ctx, of, id, nameOf(who))
	switch {
	case errors.Is(err, toolcrib.ErrNotFound):
		return toolcrib.Errorf(toolcrib.CodeNotFound, "no approval is remembered as %s; `toolcrib approvals remembered list` shows what there is", guard.Visible(id))
	case err != nil:
		return err
	case asJSON:
		return a.printRemembered(ctx, s, of, id)
	case !changed:
		fmt.Fprintf(a.out, "%s: revoked already\n", id)
	default:
		fmt.Fprintf(a.out, "%s: revoked\n", id)
	}
	return nil
}

// printRemembered writes one as the list has it.
func (a *app) printRemembered(ctx context.Context, s *sqlite.Store, user, id string) error {
	// Those after its own beginning: it, and the few that differ in the last character.
	list, err := s.ListRemembered(ctx, store.RememberedFilter{User: user, Revoked: true, After: id[:len(id)-1]})
	if err != nil {
		return err
	}
	i := slices.IndexFunc(list, func(m store.Remembered) bool { return m.ID == id })
	if i < 0 {
		return fmt.Errorf("remembered approval %s: %w", guard.Visible(id), toolcrib.ErrNotFound)
	}
	return printJSON(a.out, list[i], true)
}

// remembered are the approvals that hold for whom a run acts for, in its session and
// workspace; what they mean for each tool is added to what is told of it.
func (a *app) remembered(ctx context.Context, about *explained, answers []gate.Explanation) ([]gate.Remembered, error) {
	c, err := a.configuration()
	if err != nil {
		return nil, err
	}
	always := alwaysAsked(c)
	kept, err := approvalMemory{a.store}.Remembered(ctx, about.who.User, about.facts.Session)
	if err != nil {
		return nil, err
	}
	if c.Approvals.FourEyes {
		kept = agent.OfOthers(about.who.User, kept)
	}
	kept = slices.DeleteFunc(kept, func(m gate.Remembered) bool { return !m.HoldsIn(about.scope.Workspace) })
	for i := range answers {
		for _, m := range kept {
			if m.Tool == answers[i].Tool {
				what := "needs no approval by tools.confirm"
				if always[m.Tool] {
					what = "is asked about all the same, because tools.settings." + m.Tool + ".confirm is always"
				}
				answers[i].Notes = append(answers[i].Notes, fmt.Sprintf(
					"remembered for the %s: %s %s; approved by %s (%s)", m.Scope, render.RememberedText(m), what, m.By, m.ApprovalID))
			}
		}
	}
	return kept, nil
}
