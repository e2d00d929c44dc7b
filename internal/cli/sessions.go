package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/internal/version"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/store"
)

func (a *app) sessionsListCommand(cmd *cobra.Command) {
	var f struct {
		user  string
		limit int
		json  bool
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if f.limit < 1 || f.limit > store.MaxLimit {
			return usagef("--limit: must be 1 to %d", store.MaxLimit)
		}
		return a.listSessions(cmd.Context(), store.SessionFilter{User: f.user, Limit: f.limit}, f.json)
	}

	flags := cmd.Flags()
	flags.StringVar(&f.user, "user", "", "")
	flags.IntVar(&f.limit, "limit", store.DefaultLimit, fmt.Sprintf("at most so many, up to %d", store.MaxLimit))
	flags.BoolVar(&f.json, "json", false, "")
}

func (a *app) listSessions(ctx context.Context, f store.SessionFilter, asJSON bool) error {
	s, who, err := a.reading(ctx)
	if err != nil {
		return err
	}
	page, err := s.Sessions(ctx, who, f)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(a.out, append([]store.SessionInfo{}, page.Sessions...), true)
	}
	rows := [][]string{{"SESSION", "NAME", "RUNS", "LAST", "STATUS", "USER", "TITLE"}}
	narrow := a.outTerminal && a.outStyle.Width < wideList
	if narrow {
		rows = [][]string{{"SESSION", "RUNS", "LAST", "NAME OR TITLE"}}
	}
	now := time.Now()
	for _, info := range page.Sessions {
		if narrow {
			rows = append(rows, []string{
				string(info.ID), fmt.Sprint(info.Runs), shortTime(info.UpdatedAt.Local(), now), cmp.Or(info.Name, info.Title),
			})
			continue
		}
		rows = append(rows, []string{
			string(info.ID), info.Name, fmt.Sprint(info.Runs), shortTime(info.UpdatedAt.Local(), now), string(info.Status), info.User, info.Title,
		})
	}
	a.outStyle.Table(a.out, rows)
	if page.Next != "" {
		a.notice("there are more sessions; see --limit")
	}
	return nil
}

// sessionView is a session with its runs.
type sessionView struct {
	store.SessionInfo
	Items []service.Run `json:"items"` // its runs, oldest first
}

// sessionRuns finds a session and its runs, oldest first.
func (a *app) sessionRuns(ctx context.Context, name string) (info store.SessionInfo, runs []service.Run, who toolcrib.Principal, err error) {
	s, who, err := a.reading(ctx)
	if err != nil {
		return info, nil, who, err
	}
	if info, err = a.findSession(ctx, name); err != nil {
		return info, nil, who, err
	}
	runs, err = s.SessionRuns(ctx, who, info.ID)
	return info, runs, who, err
}

func (a *app) sessionsShowCommand(cmd *cobra.Command) {
	var asJSON, whole bool
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		info, runs, who, err := a.sessionRuns(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		if asJSON {
			return printJSON(a.out, sessionView{SessionInfo: info, Items: runs}, true)
		}
		return a.paged(func(w io.Writer) error { return a.tellSession(cmd.Context(), w, who, info, runs, whole) })
	}

	cmd.Flags().BoolVar(&asJSON, "json", false, "")
	cmd.Flags().BoolVar(&whole, "whole", false, "")
}

func (a *app) tellSession(ctx context.Context, w io.Writer, who toolcrib.Principal, info store.SessionInfo, runs []service.Run, whole bool) error {
	style := a.outStyle
	fmt.Fprintf(w, "%s  %s\n", style.Bold(guard.Visible(cmp.Or(info.Name, string(info.ID)))), style.Dim(guard.Visible(string(info.ID))))
	fmt.Fprintf(w, "%s\n", guard.Visible(fmt.Sprintf("%s of %s, since %s", render.Count(info.Runs, "run"), info.User, info.CreatedAt.Local().Format("2006-01-02 15:04"))))
	if len(runs) < info.Runs {
		fmt.Fprintf(w, "%s\n", style.Dim(fmt.Sprintf("the newest %d of them:", len(runs))))
	}
	for _, rec := range runs {
		fmt.Fprintf(w, "\n%s  %s\n", style.Bold(string(rec.ID)), statusText(rec))
		if err := a.tellRun(ctx, w, who, rec, whole); err != nil {
			return err
		}
	}
	return nil
}

// The export of a session: a header, then the exports of its runs.
type exportSession struct {
	Export  string             `json:"export"`
	Version string             `json:"version"`
	Session store.SessionInfo  `json:"session"`
	Runs    []toolcrib.RunID   `json:"runs"` // in the order in which they follow
	ID      toolcrib.SessionID `json:"session_id"`
}

// exportSessionFormat names the form of an exported session.
const exportSessionFormat = "toolcrib-session-1"

func (a *app) sessionsExportCommand(cmd *cobra.Command) {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		info, runs, who, err := a.sessionRuns(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		head := exportSession{Export: exportSessionFormat, Version: version.Version(), ID: info.ID, Session: info, Runs: []toolcrib.RunID{}}
		for _, rec := range runs {
			if rec.PrunedAt != nil {
				a.notice("the content of run %s was pruned; it is left out", rec.ID)
				continue
			}
			head.Runs = append(head.Runs, rec.ID)
		}
		if err := printJSON(a.out, head, false); err != nil {
			return err
		}
		for _, run := range head.Runs {
			if err := a.service.ExportRun(cmd.Context(), who, string(run), a.out); err != nil {
				return err
			}
		}
		return nil
	}
}

// findSession finds a session by its ID, the name that its user gave it, or as last.
func (a *app) findSession(ctx context.Context, name string) (store.SessionInfo, error) {
	who, err := a.principal(ctx)
	if err != nil {
		return store.SessionInfo{}, err
	}
	info, err := a.service.Session(ctx, who, name)
	if name == "last" && toolcrib.CodeOf(err) == toolcrib.CodeNotFound {
		return info, hint(err, "", "`toolcrib run --session NAME` begins one")
	}
	return info, hint(err, name, "`toolcrib sessions list` shows what there is")
}
