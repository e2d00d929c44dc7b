package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/bench/stat"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// pages is how many pages of a list are asked for, from the newest on.
const pages = 20

// lists are asked for page by page. What fits a few runs only is somewhere in the middle.
var lists = []string{
	"/api/runs", "/api/runs?limit=1000", "/api/runs?prompts=true", "/api/runs?top_level=true",
	"/api/runs?user=user7", "/api/runs?user=rare", "/api/runs?agent=agent3", "/api/runs?agent=rare",
	"/api/runs?user=user7&agent=rare", "/api/runs?user=user7&status=failed", "/api/runs?agent=agent3&status=failed",
	"/api/runs?status=completed", "/api/runs?status=failed", "/api/runs?status=cancelled",
	"/api/runs?status=cancelled,failed",
	"/api/runs?status=parked", "/api/runs?status=interrupted", "/api/runs?session=ses_rare", "/api/runs?parent=run_050000",
	"/api/runs?since=%s", "/api/runs?since=%s&agent=rare", "/api/runs?since=%s&status=cancelled",
	"/api/runs?id=run_050001", "/api/runs?id=last", "/api/sessions", "/api/sessions?user=user7", "/api/approvals?limit=50",
	"/api/approvals",
	"/api/usage?by=day", "/api/usage?by=user", "/api/usage?by=agent", "/api/usage?by=model", "/api/usage?by=provider",
	"/api/usage?by=tool", "/api/usage?by=session", "/api/usage?by=run",
	"/api/usage?by=user&since=%s", "/api/usage?by=agent&user=user7",
	"/api/usage?by=run&user=user7", "/api/usage?by=day&user=rare", "/api/audit", "/api/audit?user=user7",
	"/api/audit?user=rare",
}

// manyStored asks for lists among many runs, with SQLite and with PostgreSQL.
func (b *bench) manyStored(ctx context.Context, dir string) error {
	if b.kept != "" {
		dir = b.kept
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	s, err := b.start(ctx, dir, false)
	if err != nil {
		return err
	}
	s.kill()
	began := time.Now()
	if err := b.fill(ctx, filepath.Join(dir, "data", "toolcrib.db")); err != nil {
		return err
	}
	fmt.Printf("(%d runs stored in %s)\n", b.stored, time.Since(began).Round(time.Second))
	if s, err = b.start(ctx, dir, false); err != nil {
		return err
	}
	err = s.manyLists(ctx)
	s.kill()
	if err != nil {
		return err
	}
	return b.listsOfCopy(ctx, dir)
}

// listsOfCopy copies the runs of a data folder to PostgreSQL, and asks for the same lists.
func (b *bench) listsOfCopy(ctx context.Context, dir string) (err error) {
	from, err := sqlite.Open(ctx, filepath.Join(dir, "data", "toolcrib.db"), sqlite.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	for toolcrib.CodeOf(from.CheckIdle(ctx)) == toolcrib.CodeConflict { // the leases of the server that was killed
		time.Sleep(time.Second)
	}
	to, err := os.MkdirTemp(dir, "copy-")
	if err != nil {
		return err
	}
	began := time.Now()
	d, err := newShared(ctx, to, from.Store)
	if err != nil {
		return err
	}
	defer d.close()
	row("copied to PostgreSQL", time.Since(began).Round(time.Second/10).String(), "")
	s, err := b.startOn(ctx, to, "data", d.more, false)
	if err != nil {
		return err
	}
	defer s.kill()
	token, err := os.ReadFile(filepath.Join(dir, "data", "first-token"))
	if err != nil {
		return err
	}
	s.token = strings.TrimSpace(string(token))
	return s.manyLists(ctx)
}

func (s *server) manyLists(ctx context.Context) error {
	for _, list := range lists {
		if strings.Contains(list, "%s") {
			list = fmt.Sprintf(list, time.Now().AddDate(0, 0, -10).UTC().Format(time.RFC3339))
		}
		took, rows, err := s.pages(ctx, list)
		if err != nil {
			return err
		}
		mark := ""
		if stat.Quantile(took, 100) > 50*time.Millisecond {
			mark = "  ←"
		}
		figure := fmt.Sprintf("%3d pages, %d rows, p50 %s, most %s%s", len(took), rows, round(stat.Quantile(took, 50)),
			round(stat.Quantile(took, 100)), mark)
		row(list, figure, "50 ms")
	}
	return nil
}

// pages reads pages of a list, and returns how long each took. The first is asked for twice, since what a
// process reads once counts once.
func (s *server) pages(ctx context.Context, list string) (took []time.Duration, rows int, err error) {
	if err := s.ask(ctx, "GET", list, nil, nil); err != nil {
		return nil, 0, err
	}
	for cursor := ""; len(took) < pages; {
		at := list
		if cursor != "" {
			joint := "?"
			if strings.Contains(list, "?") {
				joint = "&"
			}
			at += joint + "cursor=" + url.QueryEscape(cursor)
		}
		var page struct {
			Runs      []run
			Approvals []struct{}
			Next      string
		}
		began := time.Now()
		if err := s.ask(ctx, "GET", at, nil, &page); err != nil {
			return nil, 0, err
		}
		took, rows = append(took, time.Since(began)), rows+len(page.Runs)+len(page.Approvals)
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	return took, rows, nil
}

// fill writes, to an empty database, runs of two months: of 50 users and 20 agents, every tenth below another, every
// twentieth failed, and a few of what is rare.
func (b *bench) fill(ctx context.Context, path string) error {
	st, err := sqlite.Open(ctx, path, sqlite.Options{})
	if err != nil {
		return err
	}
	defer st.Close()
	if page, err := st.Runs(ctx, store.Filter{Limit: 1}); err != nil || len(page.Runs) > 0 {
		return err
	}
	first := time.Now().AddDate(0, 0, -60)
	err = inParallel(64, b.stored, func(i int) error {
		at := first.Add(60 * 24 * time.Hour / time.Duration(b.stored) * time.Duration(i))
		return st.Append(ctx, runName(i), 0, b.story(i, at)...)
	})
	if err != nil {
		return err
	}
	return inParallel(64, waitingRuns, func(i int) error {
		return st.Append(ctx, runName(b.stored+i), 0, asks(i, first.Add(time.Duration(i)*time.Minute))...)
	})
}

// Runs that wait for an approval, and the rounds that each has had.
const (
	waitingRuns   = 1000
	waitingRounds = 400
)

// asks is a run that has made many calls, and waits for the approval of one.
func asks(i int, at time.Time) []toolcrib.Event {
	bodies := []toolcrib.Body{&journal.RunStarted{
		Format: journal.Format, Agent: toolcrib.Agent{Name: "default", Model: "mock/rounds"},
		Principal: toolcrib.Principal{User: fmt.Sprint("user", i%50)}, Driver: "server", Workspace: "/tmp",
	}}
	for n := range waitingRounds + 1 {
		call := toolcrib.ToolCall{ID: fmt.Sprint("c", n), Name: "write_file", Arguments: []byte("{}")}
		verdict := journal.Verdict{CallID: call.ID, Tool: call.Name, Decision: toolcrib.Allow}
		bodies = append(bodies, &journal.ModelRequest{Request: n + 1, Iteration: n + 1, Attempt: 1},
			&journal.Message{Request: n + 1, Iteration: n + 1, Finish: toolcrib.FinishToolCalls},
			&journal.ToolCall{Iteration: n + 1, ToolCall: call})
		if n < waitingRounds {
			bodies = append(bodies, &journal.Verdicts{Iteration: n + 1, Verdicts: []journal.Verdict{verdict}},
				&journal.ToolResult{ToolCallID: call.ID, Name: call.Name, Status: toolcrib.ResultOK, Content: "text"})
			continue
		}
		verdict.Decision = toolcrib.Ask
		ask := &journal.ConfirmationRequired{
			ApprovalID: fmt.Sprintf("apr_%026d", i), Digest: "d", Kind: journal.ApprovalCall, Iteration: n + 1,
			Calls: []journal.ApprovalItem{{ID: call.ID, Name: call.Name, Arguments: call.Arguments}},
		}
		bodies = append(bodies, &journal.Verdicts{Iteration: n + 1, Verdicts: []journal.Verdict{verdict}}, ask,
			&journal.Paused{Status: toolcrib.StatusWaitingForApproval, Pending: journal.Pending{
				Kind: string(ask.Kind), ApprovalID: ask.ApprovalID, Digest: ask.Digest, Calls: ask.Calls,
			}})
	}
	events := make([]toolcrib.Event, len(bodies))
	for k, body := range bodies {
		events[k] = toolcrib.Event{Time: at.Add(time.Duration(k) * time.Millisecond), Body: body}
	}
	return events
}

func runName(i int) toolcrib.RunID { return toolcrib.RunID(fmt.Sprintf("run_%06d", i)) }

// story is a run of two rounds.
func (b *bench) story(i int, at time.Time) []toolcrib.Event {
	rare := i%(b.stored/3) == b.stored/6
	start := &journal.RunStarted{
		Format: journal.Format, Agent: toolcrib.Agent{Name: fmt.Sprint("agent", i%20), Model: "mock/rounds"},
		Principal: toolcrib.Principal{User: fmt.Sprint("user", i%50)}, Driver: "server", Workspace: "/tmp",
		Models: []journal.ModelInfo{{Ref: "mock/rounds", Provider: "mock", ID: fmt.Sprint("rounds", i%3)}},
		Input:  []toolcrib.Message{{Role: toolcrib.RoleUser, Parts: []toolcrib.Part{{Text: prompt}}}},
	}
	sum := func(n int) toolcrib.Usage {
		return toolcrib.Usage{
			InputTokens: 1000 * int64(n), OutputTokens: 100 * int64(n), TotalTokens: 1100 * int64(n), Requests: n,
		}
	}
	end := toolcrib.Body(&journal.Done{
		Status: toolcrib.StatusCompleted, StopReason: toolcrib.StopCompleted, Content: answer, Usage: sum(2),
	})
	switch {
	case rare:
		start.Agent.Name, start.Principal.User, start.Session = "rare", "rare", "ses_rare"
		end = &journal.Error{
			Status: toolcrib.StatusCancelled, Code: "cancelled", StopReason: toolcrib.StopCancelled,
			Usage: sum(2),
		}
	case i%20 == 7:
		end = &journal.Error{
			Status: toolcrib.StatusFailed, Code: "provider_failed", StopReason: toolcrib.StopProviderFailed,
			Usage: sum(2),
		}
	case i%10 == 1 && i > 10:
		start.Parent = runName(i - 1)
	case i%4 == 0:
		start.Session = toolcrib.SessionID(fmt.Sprint("conversation-", i%50, "-", i/200))
	}
	used := toolcrib.TokenUsage{InputTokens: 1000, OutputTokens: 100}
	bodies := []toolcrib.Body{
		start, &journal.TakenUp{Worker: "w", Epoch: 1}, &journal.ModelRequest{Request: 1, Iteration: 1, Attempt: 1},
		&journal.Message{Request: 1, Iteration: 1, Finish: toolcrib.FinishToolCalls},
		&journal.ToolCall{Iteration: 1, ToolCall: toolcrib.ToolCall{ID: "c1", Name: "read_file", Arguments: []byte("{}")}},
		&journal.Usage{Request: 1, Tokens: used, Sum: sum(1)}, &journal.Verdicts{Iteration: 1, Verdicts: []journal.Verdict{
			{CallID: "c1", Tool: "read_file", Decision: toolcrib.Allow},
		}},
		&journal.ToolResult{ToolCallID: "c1", Name: "read_file", Status: toolcrib.ResultOK, Content: "text"},
		&journal.ModelRequest{Request: 2, Iteration: 2, Attempt: 1},
		&journal.Message{Request: 2, Iteration: 2, Finish: toolcrib.FinishStop},
		&journal.Usage{Request: 2, Tokens: used, Sum: sum(2)},
		end,
	}
	events := make([]toolcrib.Event, len(bodies))
	for k, body := range bodies {
		events[k] = toolcrib.Event{Time: at.Add(time.Duration(k) * time.Millisecond), Body: body}
	}
	return events
}
