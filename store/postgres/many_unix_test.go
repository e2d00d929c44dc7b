//go:build unix

package postgres_test

import (
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/postgres"
	"github.com/toolcrib/toolcrib/store/sqlite"
	"github.com/toolcrib/toolcrib/toolcribtest/storetest"
)

var copied = flag.Int("copied", 300, "how many runs TestMigrate_ManyRuns copies")

// storyOf is one of many runs: of 20 users, in sessions, parked, failed, or with a sub-run, over a year.
func storyOf(n int) []toolcrib.Event {
	start := &journal.RunStarted{
		Format: journal.Format, Agent: toolcrib.Agent{Name: fmt.Sprint("agent", n%7), Model: "mock/m"},
		Principal: toolcrib.Principal{User: fmt.Sprint("user", n%20)}, Session: toolcrib.SessionID(fmt.Sprint("ses_", n%20, "_", n/200)),
		Models: []journal.ModelInfo{{Ref: "mock/m", Provider: "mock", ID: fmt.Sprint("m", n%3)}},
		Input:  []toolcrib.Message{{Role: toolcrib.RoleUser, Parts: []toolcrib.Part{{Text: fmt.Sprint("Ünïcode ", n)}}}},
	}
	if n%5 == 0 { // a session waits for its run
		start.Session = ""
	} else if n%10 == 1 {
		start.Parent, start.Session = runOf(n-1), ""
	}
	sum := toolcrib.Usage{InputTokens: int64(1000 + n), OutputTokens: 100, TotalTokens: int64(1100 + n), Requests: 1, CostUSD: 0.001}
	bodies := []toolcrib.Body{
		start, &journal.TakenUp{Worker: "w", Epoch: 1}, &journal.ModelRequest{Request: 1, Iteration: 1, Attempt: 1},
		&journal.Message{Request: 1, Iteration: 1, Finish: toolcrib.FinishToolCalls, Parts: []toolcrib.Part{{Text: "text"}}},
		&journal.ToolCall{Iteration: 1, ToolCall: toolcrib.ToolCall{ID: "c1", Name: "read_file", Arguments: []byte(`{"path":"a"}`)}},
		&journal.Usage{Request: 1, Sum: sum, Tokens: toolcrib.TokenUsage{InputTokens: sum.InputTokens, OutputTokens: 100}, CostUSD: 0.001},
		&journal.Verdicts{Iteration: 1, Verdicts: []journal.Verdict{{CallID: "c1", Tool: "read_file", Decision: toolcrib.Allow}}},
		&journal.ToolResult{ToolCallID: "c1", Name: "read_file", Status: toolcrib.ResultOK, Content: strings.Repeat("line\n", 200)},
	}
	switch n % 5 {
	case 0:
		bodies = append(bodies, &journal.Paused{
			Status: toolcrib.StatusWaitingForApproval, Pending: journal.Pending{Kind: "approval", ApprovalID: fmt.Sprint("apr_", n)},
		})
	case 1:
		bodies = append(bodies, &journal.Error{
			Status: toolcrib.StatusFailed, Code: "provider_failed", StopReason: toolcrib.StopProviderFailed, Usage: sum,
		})
	default:
		bodies = append(bodies, &journal.Done{
			Status: toolcrib.StatusCompleted, StopReason: toolcrib.StopCompleted, Content: "ready", Usage: sum,
		})
	}
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(n) * 52 * time.Minute)
	events := make([]toolcrib.Event, len(bodies))
	for i, body := range bodies {
		events[i] = toolcrib.Event{Time: at.Add(time.Duration(i) * time.Millisecond), Body: body}
	}
	return events
}

func runOf(n int) toolcrib.RunID { return toolcrib.RunID(fmt.Sprintf("run_%06d", n)) }

// fillMany stores n runs, every fiftieth with a kept result.
func fillMany(t *testing.T, s store.Store, n int) {
	t.Helper()
	next := make(chan int)
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			for i := range next {
				if i%50 == 7 {
					if err := s.Put(t.Context(), runOf(i), "res_1", []byte(strings.Repeat(fmt.Sprint("kept ", i, "\n"), 10_000))); err != nil {
						t.Error(err)
					}
				}
				if err := s.Append(t.Context(), runOf(i), 0, storyOf(i)...); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	all.Wait()
}

// digests are those of all runs with their events, of all kept results, of the audit log, and of the files.
func digests(t *testing.T, s store.Store, n int) map[string]string {
	t.Helper()
	sum, all := sha256.New(), map[string]string{}
	end := func(name string) {
		all[name] = fmt.Sprintf("%x", sum.Sum(nil))
		sum.Reset()
	}
	add := func(v any, err error) {
		text, wrong := json.Marshal(v)
		if err != nil || wrong != nil {
			t.Fatal(err, wrong)
		}
		sum.Write(text)
	}
	pages := func(f store.Filter) {
		for more := true; more; more = f.Cursor != "" {
			page, err := s.Runs(t.Context(), f)
			add(page, err)
			f.Cursor = page.Next
		}
	}
	pages(store.Filter{Limit: store.MaxLimit})
	end("runs")
	pages(store.Filter{Deciding: true})
	pages(store.Filter{User: "user7", Status: []toolcrib.Status{toolcrib.StatusFailed}})
	pages(store.Filter{Session: "ses_3_0"})
	end("some runs")
	for i := range n {
		for e, err := range s.Read(t.Context(), runOf(i), 0) {
			add(e, err)
		}
		if i%50 == 7 {
			b, _, err := s.Range(t.Context(), runOf(i), "res_1", 0, 1<<20)
			add(b, err)
		}
	}
	end("events and kept results")
	for f, more := (store.AuditFilter{Limit: store.MaxLimit}), true; more; more = f.Cursor != "" {
		page, err := s.Audit(t.Context(), f)
		add(page, err)
		f.Cursor = page.Next
	}
	end("audit log")
	for _, folder := range []string{"memory/ann", "memory/bob"} {
		add(s.FilesIn(t.Context(), folder))
	}
	add(s.File(t.Context(), "secrets.age"))
	end("files")
	return all
}

// heapWhile returns the most that the heap grows by while do runs.
func heapWhile(do func()) (most uint64) {
	use := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse
	}
	runtime.GC()
	before, done := use(), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
				if now := use(); now > before {
					most = max(most, now-before)
				}
			}
		}
	})
	do()
	close(done)
	all.Wait()
	return most
}

// TestMigrate_ManyRuns has the same runs, events, lists, usage, users, files and kept results in SQLite, in PostgreSQL and
// back in SQLite, and needs little memory for that.
func TestMigrate_ManyRuns(t *testing.T) {
	address := server.URL(empty(t)).String()
	dir := t.TempDir()
	from, err := sqlite.Open(t.Context(), filepath.Join(dir, "from", "toolcrib.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close() //nolint:errcheck // only read at the end
	storetest.Fill(t, from)
	fillMany(t, from, *copied)
	want, sums := shown(t, from), digests(t, from, *copied)
	if want["usage by run"] == nil {
		t.Fatal("nothing to compare")
	}

	keys := filepath.Join(dir, "server", "keys")
	copying := func(where string, do func() (store.Store, error)) {
		t.Helper()
		began, used := time.Now(), cpu()
		var s store.Store
		heap := heapWhile(func() { s, err = do() })
		if err != nil {
			t.Fatal(where, err)
		}
		t.Logf("%d runs %s: %s, %s of it CPU here, %d MiB more", *copied, where, time.Since(began).Round(time.Millisecond),
			(cpu() - used).Round(time.Millisecond), heap>>20)
		if most := uint64(64 << 20); heap > most {
			t.Errorf("copied %s with %d MiB, want at most %d", where, heap>>20, most>>20)
		}
		if diff := cmp.Diff(want, shown(t, s)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", where, diff)
		}
		if diff := cmp.Diff(sums, digests(t, s, *copied)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", where, diff)
		}
	}
	var there *postgres.Store
	copying("to PostgreSQL", func() (store.Store, error) {
		o := postgres.MigrateOptions{Keys: keys, From: from.Store}
		if _, err := postgres.Migrate(t.Context(), address, o); err != nil {
			return nil, err
		}
		there = openAt(t, address, postgres.Options{Keys: keys})
		return there, nil
	})
	copying("to SQLite", func() (store.Store, error) {
		back, err := sqlite.Open(t.Context(), filepath.Join(dir, "back", "toolcrib.db"), sqlite.Options{From: there.Store})
		if err == nil {
			t.Cleanup(func() { _ = back.Close() }) // only read
		}
		return back, err
	})
}
