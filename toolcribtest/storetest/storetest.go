// Package storetest is the suite for implementations of store.Store. It includes the suites of
// journals, run trees, budgets, users and tokens.
package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/toolcribtest/journaltest"
)

// Database returns a function that opens a new, empty database, which gets the time from now. Each call
// opens it again, as another process would, with an owner of leases of its own, all with the same Machine
// and a lease of at least ten seconds. The end of the test closes the stores.
type Database func(t *testing.T, now func() time.Time) (open func() store.Store)

// Run runs the suite.
func Run(t *testing.T, database Database) {
	one := func(t *testing.T) store.Store { return database(t, time.Now)() }
	t.Run("Journal", func(t *testing.T) {
		journaltest.Run(t, func(t *testing.T) toolcrib.Journal { return one(t) })
	})
	t.Run("Files", func(t *testing.T) {
		open := database(t, time.Now)
		files(t, func() toolcrib.Files { return open() })
		if _, err := open().VerifyAll(t.Context()); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
	t.Run("Contents", func(t *testing.T) {
		journaltest.RunContents(t, func(t *testing.T) toolcrib.Contents { return one(t) })
	})
	for name, test := range map[string]func(*testing.T, Database){
		"Ledger": ledgerOf, "TreeUse": treeUse, "LedgerAtOnce": ledgerAtOnce, "LedgerKept": ledgerKept,
		"LedgerHandedOver": ledgerHandedOver,
		"TreeLists":        treeLists, "TreeSession": treeSession, "TreeBounds": treeBounds, "TreeAbove": treeAbove,
		"TreesPruned": treesPruned, "Said": said,
	} {
		t.Run(name, func(t *testing.T) { test(t, database) })
	}
	t.Run("Directory", func(t *testing.T) {
		directory(t, func(t *testing.T) access.Directory { return one(t).Access() })
	})
	t.Run("GroupsOfTwo", func(t *testing.T) {
		open := database(t, time.Now)
		groupsRace(t, open().Access(), open().Access())
	})
	t.Run("Tokens", func(t *testing.T) {
		tokens(t, func(t *testing.T) access.Tokens { return one(t).Access() })
		removedUsersTokens(t, one(t).Access())
	})
	t.Run("Quota", func(t *testing.T) {
		quota(t, func(t *testing.T) access.Quota { return one(t).Access() })
	})
	for name, test := range map[string]func(*testing.T, func() store.Store){
		"Switches": switches, "Approvals": approvals, "Sessions": sessions, "SessionPages": sessionPages, "Usage": usage,
		"Lists": lists, "Inbox": inbox, "SystemJournal": systemJournal,
		"Leases": leases, "LeaseExpires": leaseExpires, "LeaseOfRuns": leaseOfRuns, "LeaseSites": leaseSites,
		"LeaseBounds": leaseBounds, "LeaseEpochs": leaseEpochs, "LeasesRenewed": leasesRenewed,
		"HeadKeptElsewhere": headKeptElsewhere, "Pruned": pruned, "Imported": imported, "Closed": closed,
	} {
		t.Run(name, func(t *testing.T) {
			open := database(t, time.Now)
			test(t, open)
			if _, err := open().VerifyAll(t.Context()); err != nil {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// begun returns the first event of a run of a user.
func begun(user string, session toolcrib.SessionID) *journal.RunStarted {
	return &journal.RunStarted{
		Agent: toolcrib.Agent{Name: "default"}, Principal: toolcrib.Principal{User: user}, Session: session,
		Models: make([]journal.ModelInfo, 1), // the title of a session is the last element of the second list
		Input: []toolcrib.Message{
			toolcrib.TextMessage(toolcrib.RoleUser, "first"),
			toolcrib.TextMessage(toolcrib.RoleUser, "hello"),
		},
	}
}

func done() *journal.Done {
	return &journal.Done{Status: toolcrib.StatusCompleted, StopReason: toolcrib.StopCompleted, Content: "ready"}
}

func add(t *testing.T, s store.Store, run toolcrib.RunID, after toolcrib.Seq, bodies ...toolcrib.Body) {
	t.Helper()
	must(t, s.Append(t.Context(), run, after, journaltest.Events(bodies...)...))
}

func inbox(t *testing.T, open func() store.Store) {
	s, other := open(), open()
	put := func(run toolcrib.RunID, id, text string) error {
		return s.PutMessage(t.Context(), run, store.Message{ID: id, Text: text, By: "ann", At: time.Now()})
	}
	unread := func(run toolcrib.RunID) (ids string) {
		all, err := other.Messages(t.Context(), run)
		must(t, err)
		for _, m := range all {
			ids += m.ID + "=" + m.Text + " by " + m.By + " "
		}
		return ids
	}
	if err := put("run_a", "msg_1", "x"); !errors.Is(err, toolcrib.ErrNotFound) {
		t.Errorf("to a run that is not there: %v", err)
	}
	add(t, s, "run_a", 0, begun("ann", ""))
	add(t, s, "run_b", 0, begun("ann", ""))
	must(t, put("run_a", "msg_1", "one"))
	must(t, put("run_b", "msg_2", "other"))
	must(t, put("run_a", "msg_3", "two"))
	if got := unread("run_a"); got != "msg_1=one by ann msg_3=two by ann " {
		t.Error(got)
	}
	if err := put("run_a", "msg_4", strings.Repeat("a", store.MaxMessageBytes+1)); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
	add(t, s, "run_a", 1, &journal.Said{ID: "msg_1", Text: "one", By: "ann"})
	if got := unread("run_a"); got != "msg_3=two by ann " {
		t.Error(got)
	}
	asks := &journal.ModelRequest{Request: 1, Iteration: 1, Attempt: 1}
	if err := s.Append(t.Context(), "run_a", 2, journaltest.Events(asks)...); !errors.Is(err, journal.ErrUnread) {
		t.Errorf("a request with a message that is not read: %v", err)
	}
	end := func(after toolcrib.Seq, bodies ...toolcrib.Body) error {
		return other.Append(t.Context(), "run_a", after, journaltest.Events(bodies...)...)
	}
	if err := end(2, done()); !errors.Is(err, journal.ErrUnread) {
		t.Errorf("an end that knows of no message: %v", err)
	}
	if err := end(2, &journal.Said{ID: "msg_3"}, &journal.Said{ID: "msg_9"}, done()); err != nil {
		t.Errorf("an end with the message: %v", err)
	}
	if err := put("run_a", "msg_5", "late"); !errors.Is(err, toolcrib.ErrConflict) {
		t.Errorf("to a run that has ended: %v", err)
	}
	for i := range store.MaxUnread - 1 {
		must(t, put("run_b", fmt.Sprintf("msg_b%d", i), "more"))
	}
	if err := put("run_b", "msg_6", "too many"); !errors.Is(err, store.ErrInboxFull) {
		t.Errorf("too many: %v", err)
	}
	late := done()
	late.Unread = store.MaxUnread
	add(t, s, "run_b", 1, late)
	if got := unread("run_b"); got != "" {
		t.Errorf("after the end: %s", got)
	}
}

func switches(t *testing.T, open func() store.Store) {
	s, other := open(), open()
	o := store.Override{Kind: store.OverrideTool, Name: "exec_shell", By: "ann"}
	for i, want := range []bool{true, false} { // the second time it is set already
		if changed, err := s.SetOverride(t.Context(), o); err != nil || changed != want {
			t.Fatalf("set %d: changed %v, error %v", i, changed, err)
		}
	}
	all, err := other.Overrides(t.Context(), 0)
	if err != nil || len(all) != 1 || all[0].Name != o.Name || all[0].Enabled || all[0].By != "ann" || all[0].At.IsZero() {
		t.Fatalf("%+v, error %v", all, err)
	}
	within, err := s.Overrides(t.Context(), time.Hour)
	if err != nil || len(within) != 1 {
		t.Fatalf("%+v, error %v", within, err)
	}
	if changed, err := s.ResetOverride(t.Context(), o.Kind, o.Name, "bob"); err != nil || !changed {
		t.Fatalf("changed %v, error %v", changed, err)
	}
	if within, err = s.Overrides(t.Context(), time.Hour); err != nil || len(within) != 0 {
		t.Errorf("after a change of its own: %+v, error %v", within, err)
	}
	if all, err = other.Overrides(t.Context(), 0); err != nil || len(all) != 0 {
		t.Errorf("%+v, error %v", all, err)
	}
	if _, err := s.SetOverride(t.Context(), store.Override{Kind: "x", Name: "y", By: "ann"}); err == nil {
		t.Error("an unknown kind was set")
	}
}

func approvals(t *testing.T, open func() store.Store) {
	s, other := open(), open()
	m := store.Remembered{
		Scope: journal.RememberUser, User: "ann", Tool: "write_file", Arguments: json.RawMessage(`{"a":1}`), Path: "/w/x",
		Workspace: "/w", FolderID: "f",
		Effect: toolcrib.EffectIdempotentWrite, Run: "run_a", ApprovalID: "apr_1", By: "ann",
	}
	id, changed, err := s.Remember(t.Context(), m)
	if err != nil || !changed || id == "" {
		t.Fatalf("%q, changed %v, error %v", id, changed, err)
	}
	if again, changed, err := other.Remember(t.Context(), m); err != nil || changed || again != id {
		t.Errorf("again: %q, changed %v, error %v", again, changed, err)
	}
	list, err := other.Remembered(t.Context(), "ann", "")
	if err != nil || len(list) != 1 || list[0].ID != id || string(list[0].Arguments) != string(m.Arguments) {
		t.Fatalf("%+v, error %v", list, err)
	}
	if list, err := s.Remembered(t.Context(), "bob", ""); err != nil || len(list) != 0 {
		t.Errorf("bob: %+v, error %v", list, err)
	}
	start := begun("ann", "")
	start.Principal.Token = "tok_1"
	add(t, s, m.Run, 0, start)
	for token, n := range map[string]int{"tok_1": 1, "tok_2": 0} {
		list, err := other.ListRemembered(t.Context(), store.RememberedFilter{User: "ann", Token: token})
		if err != nil || len(list) != n {
			t.Errorf("of the runs that %s started: %+v, error %v", token, list, err)
		}
	}
	if _, err := s.Forget(t.Context(), "bob", id, "bob"); !errors.Is(err, toolcrib.ErrNotFound) {
		t.Errorf("bob revokes ann's: error %v", err)
	}
	if changed, err := s.Forget(t.Context(), "ann", id, "ann"); err != nil || !changed {
		t.Errorf("changed %v, error %v", changed, err)
	}
	if _, changed, err := s.Remember(t.Context(), m); err != nil || changed {
		t.Errorf("one that was revoked: changed %v, error %v", changed, err)
	}
	if list, err := other.Remembered(t.Context(), "ann", ""); err != nil || len(list) != 0 {
		t.Errorf("revoked: %+v, error %v", list, err)
	}
	if list, err := s.ListRemembered(t.Context(), store.RememberedFilter{Revoked: true}); err != nil || len(list) != 1 ||
		list[0].RevokedBy != "ann" {
		t.Errorf("%+v, error %v", list, err)
	}
}

func sessions(t *testing.T, open func() store.Store) {
	s := open()
	made, err := s.NewSession(t.Context(), "ann", "work")
	must(t, err)
	if _, err := s.NewSession(t.Context(), "ann", "work"); !errors.Is(err, toolcrib.ErrConflict) {
		t.Errorf("a second of the name: error %v", err)
	}
	if _, err := s.NewSession(t.Context(), "ann", "a/b"); !errors.Is(err, store.ErrSessionName) {
		t.Errorf("a bad name: error %v", err)
	}
	if _, err := s.Session(t.Context(), "bob", string(made.ID)); !errors.Is(err, toolcrib.ErrNotFound) {
		t.Errorf("another user's: error %v", err)
	}
	add(t, s, "run_1", 0, begun("ann", made.ID))
	err = open().Append(t.Context(), "run_2", 0, journaltest.Events(begun("ann", made.ID))...)
	var busy *store.SessionBusyError
	if !errors.As(err, &busy) || busy.Run != "run_1" {
		t.Errorf("a second run at a time: error %v", err)
	}
	add(t, s, "run_1", 1, done())
	add(t, s, "run_2", 0, begun("ann", made.ID), done())
	runs, err := store.SessionRuns(t.Context(), s, "ann", made.ID)
	if err != nil || len(runs) != 2 || runs[0].ID != "run_1" {
		t.Errorf("%+v, error %v", runs, err)
	}
	last, err := store.LastRun(t.Context(), s, "ann", made.ID)
	if err != nil || last.ID != "run_2" {
		t.Errorf("%+v, error %v", last, err)
	}
	page, err := s.Sessions(t.Context(), store.SessionFilter{User: "ann"})
	if err != nil || len(page.Sessions) != 1 || page.Sessions[0].Runs != 2 || page.Sessions[0].Title != "hello" {
		t.Errorf("%+v, error %v", page, err)
	}
}

// sessionPages tests that sessions with the newest runs come first, whatever is started, removed or imported.
func sessionPages(t *testing.T, open func() store.Store) {
	s, other := open(), open()
	expect := func(when string, want ...toolcrib.SessionID) {
		t.Helper()
		var got []toolcrib.SessionID
		f := store.SessionFilter{User: "ann", Limit: 2}
		for range 3 {
			page, err := other.Sessions(t.Context(), f)
			must(t, err)
			for _, info := range page.Sessions {
				got = append(got, info.ID)
			}
			if f.Cursor = page.Next; f.Cursor == "" {
				break
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", when, diff)
		}
	}
	for i, id := range []toolcrib.SessionID{"a", "b", "c"} {
		add(t, s, toolcrib.RunID(fmt.Sprint("run_", i)), 0, begun("ann", id), done())
	}
	add(t, s, "run_of_bob", 0, begun("bob", "a"), done()) // each user has a session named a
	expect("at first", "c", "b", "a")
	add(t, other, "run_3", 0, begun("ann", "a"), done())
	below := begun("ann", "b")
	below.Parent = "run_1"
	add(t, s, "run_below", 0, below, done())
	expect("after another run of a", "a", "c", "b")
	_, err := s.Prune(t.Context(), store.PruneOptions{Runs: []toolcrib.RunID{"run_3"}, By: "ann"})
	must(t, err)
	expect("without that", "c", "b", "a")
	_, err = s.Prune(t.Context(), store.PruneOptions{Runs: []toolcrib.RunID{"run_2"}, By: "ann"})
	must(t, err)
	expect("without the run of c", "b", "a", "c")
	in := store.Imported{Run: "run_new", By: "ann", Events: journaltest.Events(begun("ann", "c"), done())}
	var chain []byte
	for i := range in.Events {
		e := &in.Events[i]
		raw, err := journal.Encode(e.Body)
		must(t, err)
		e.Seq, e.Time, e.PayloadHash = toolcrib.Seq(i+1), store.Micro(e.Time.UnixMicro()), journal.PayloadHash(raw)
		chain = journal.ChainHash(chain, in.Run, e.Seq, e.Body.EventKind(), e.Time, e.PayloadHash)
		e.Hash = chain
	}
	must(t, s.Import(t.Context(), in))
	expect("with one that was imported", "c", "b", "a")
}

// usage tests that each run is counted once, requests on the day on which they were sent, and that
// usage is kept when runs are removed.
func usage(t *testing.T, open func() store.Store) {
	s, other := open(), open()
	evening := time.Date(2026, 2, 28, 23, 59, 0, 0, time.UTC)
	n := map[toolcrib.RunID]int{}
	ask := func(s store.Store, run toolcrib.RunID, at time.Time, model int) {
		t.Helper()
		n[run]++
		tokens := toolcrib.TokenUsage{InputTokens: 100, OutputTokens: 10}
		events := journaltest.Events(&journal.ModelRequest{Request: n[run], Model: model}, &journal.Usage{
			Request: n[run], Tokens: tokens, CostUSD: 0.25, Sum: toolcrib.Usage{Requests: n[run]},
		}, &journal.ToolResult{Name: "read_file", Status: toolcrib.ResultOK})
		events[0].Time, events[1].Time, events[2].Time = at, at.Add(2*time.Minute), at.Add(2*time.Minute)
		must(t, s.Append(t.Context(), run, toolcrib.Seq(3*n[run]-2), events...))
	}
	for run, user := range map[toolcrib.RunID]string{"run_a": "ann", "run_b": "bob"} {
		b := begun(user, toolcrib.SessionID("ses of "+user))
		b.Principal.Token = "tok_" + user
		b.Models = []journal.ModelInfo{{Provider: "p", ID: "small"}, {Provider: "p", ID: "big"}}
		events := journaltest.Events(b)
		events[0].Time = evening
		must(t, s.Append(t.Context(), run, 0, events...))
	}
	ask(s, "run_a", evening, 0)
	ask(other, "run_a", evening.Add(time.Hour), 1) // over midnight, by another process
	ask(s, "run_a", evening.Add(time.Hour), 1)
	ask(s, "run_b", evening.Add(time.Hour), 1)
	add(t, s, "run_a", 10, &journal.Done{Status: toolcrib.StatusCompleted, Usage: toolcrib.Usage{Requests: n["run_a"]}})
	add(t, s, "run_b", 4, &journal.Done{Status: toolcrib.StatusCompleted, Usage: toolcrib.Usage{Requests: n["run_b"]}})
	expect := func(when string) {
		t.Helper()
		for _, c := range []struct {
			q    store.UsageQuery
			want string // runs, requests, calls
		}{
			{store.UsageQuery{}, ": 2 4 4"},
			{store.UsageQuery{By: store.UsageByDay}, "2026-02-28: 1 1 0, 2026-03-01: 1 3 4"},
			{store.UsageQuery{By: store.UsageByDay, Since: evening.Add(time.Hour)}, "2026-03-01: 1 3 4"},
			{store.UsageQuery{By: store.UsageByUser}, "ann: 1 3 3, bob: 1 1 1"},
			{store.UsageQuery{By: store.UsageByAgent, User: "bob"}, "default: 1 1 1"},
			{store.UsageQuery{By: store.UsageByModel}, "p/big: 1 3 3, p/small: 1 1 1"},
			{store.UsageQuery{By: store.UsageByProvider, User: "ann"}, "p: 1 3 3"},
			{store.UsageQuery{By: store.UsageByTool}, "read_file: 0 0 4"},
			{store.UsageQuery{By: store.UsageByRun}, "run_a: 1 3 0, run_b: 1 1 0"},
			{store.UsageQuery{By: store.UsageByRun, Until: evening, User: "bob"}, "run_b: 1 1 0"},
			{store.UsageQuery{By: store.UsageByRun, Since: evening.Add(time.Hour)}, ""},
			{store.UsageQuery{By: store.UsageBySession}, "ses of ann: 1 3 0, ses of bob: 1 1 0"},
		} {
			rows, err := other.Usage(t.Context(), c.q)
			must(t, err)
			var got []string
			for _, r := range rows {
				got = append(got, fmt.Sprintf("%s: %d %d %d", r.Key, r.Runs, r.Requests, r.Calls))
			}
			if got := strings.Join(got, ", "); got != c.want {
				t.Errorf("%s, %+v: %s; want %s", when, c.q, got, c.want)
			}
		}
		addsUp(t, other)
	}
	expect("at first")
	for by, want := range map[store.UsageBy]int64{store.UsageTotal: 1, store.UsageByRun: 1} {
		rows, err := s.Usage(t.Context(), store.UsageQuery{By: by, Token: "tok_bob"})
		if err != nil || len(rows) != 1 || rows[0].Requests != want || rows[0].Runs != 1 {
			t.Errorf("of a token by %q: %+v, error %v", by, rows, err)
		}
	}
	for _, o := range []store.PruneOptions{
		{Runs: []toolcrib.RunID{"run_a", "run_b"}, ContentOnly: true, By: "ann"},
		{Runs: []toolcrib.RunID{"run_a"}, By: "ann"},
	} {
		_, err := s.Prune(t.Context(), o)
		must(t, err)
		expect("after pruning")
	}
}

// addsUp tests that the rows of these lists add up to the total.
func addsUp(t *testing.T, s store.Store) {
	t.Helper()
	total, err := s.Usage(t.Context(), store.UsageQuery{})
	must(t, err)
	for _, by := range []store.UsageBy{
		store.UsageByDay, store.UsageByUser, store.UsageByAgent, store.UsageByModel, store.UsageByProvider,
	} {
		rows, err := s.Usage(t.Context(), store.UsageQuery{By: by})
		must(t, err)
		sum := total[0]
		for _, r := range rows {
			sum.Runs, sum.Requests, sum.TotalTokens, sum.CostUSD, sum.Calls = sum.Runs-r.Runs, sum.Requests-r.Requests,
				sum.TotalTokens-r.TotalTokens, sum.CostUSD-r.CostUSD, sum.Calls-r.Calls
		}
		if sum.Runs != 0 || sum.Requests != 0 || sum.TotalTokens != 0 || sum.CostUSD != 0 || sum.Calls != 0 {
			t.Errorf("by %s: %+v of the total is in no row", by, sum)
		}
	}
}

func lists(t *testing.T, open func() store.Store) {
	s := open()
	for _, run := range []toolcrib.RunID{"run_aa1", "run_aa2", "run_b"} {
		add(t, s, run, 0, begun("ann", ""), done())
	}
	add(t, s, "run_open", 0, begun("bob", ""))
	var got []toolcrib.RunID
	f := store.Filter{Limit: 3}
	for range 2 {
		page, err := s.Runs(t.Context(), f)
		must(t, err)
		for _, r := range page.Runs {
			got = append(got, r.ID)
		}
		f.Cursor = page.Next
	}
	if diff := cmp.Diff([]toolcrib.RunID{"run_open", "run_b", "run_aa2", "run_aa1"}, got); diff != "" || f.Cursor != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	page, err := s.Runs(t.Context(), store.Filter{Status: []toolcrib.Status{toolcrib.StatusCompleted}, User: "ann"})
	if err != nil || len(page.Runs) != 3 || page.Runs[0].Content != "ready" {
		t.Errorf("%+v, error %v", page, err)
	}
	var ambiguous *store.AmbiguousError
	if _, err := s.FindRun(t.Context(), "aa"); !errors.As(err, &ambiguous) || len(ambiguous.IDs) != 2 {
		t.Errorf("error %v, want two", err)
	}
	if r, err := s.FindRun(t.Context(), "b"); err != nil || r.ID != "run_b" {
		t.Errorf("%+v, error %v", r, err)
	}
	if _, err := s.Runs(t.Context(), store.Filter{Cursor: "?"}); !errors.Is(err, store.ErrBadCursor) {
		t.Errorf("error %v, want ErrBadCursor", err)
	}
}

func login(t *testing.T, s store.Store, who string) {
	t.Helper()
	raw, err := json.Marshal(who)
	must(t, err)
	must(t, s.AppendSystem(t.Context(), store.SystemEvent{Kind: "login", Payload: raw}))
}

func systemJournal(t *testing.T, open func() store.Store) {
	s, other := open(), open()
	for i, who := range []string{"ann", "bob", "cat"} {
		login(t, []store.Store{s, other}[i%2], who)
	}
	if err := s.AppendSystem(t.Context(), store.SystemEvent{Kind: "login", Payload: json.RawMessage("{")}); err == nil {
		t.Error("what is not JSON was appended")
	}
	page, err := s.Audit(t.Context(), store.AuditFilter{Kinds: []toolcrib.Kind{"login"}, Limit: 2})
	if err != nil || len(page.Entries) != 2 || page.Entries[0].Seq != 3 || page.Next == "" {
		t.Errorf("%+v, error %v", page, err)
	}
}

func headKeptElsewhere(t *testing.T, open func() store.Store) {
	s := open()
	login(t, s, "ann")
	head, err := s.Head(t.Context())
	must(t, err)
	login(t, s, "bob")
	if _, err := s.VerifySystem(t.Context(), &head); err != nil {
		t.Error(err)
	}
	var broken *store.ChainError
	head.Seq++ // forged
	if _, err := s.VerifySystem(t.Context(), &head); !errors.As(err, &broken) {
		t.Errorf("error %v, want a broken chain", err)
	}
}

func pruned(t *testing.T, open func() store.Store) {
	s := open()
	add(t, s, "run_a", 0, begun("ann", ""), done())
	add(t, s, "run_b", 0, begun("ann", ""), done())
	add(t, s, "run_open", 0, begun("ann", ""))
	if _, err := s.Prune(t.Context(), store.PruneOptions{Runs: []toolcrib.RunID{"run_open"}, By: "ann"}); !errors.Is(err,
		toolcrib.ErrConflict) {
		t.Errorf("one that has not ended: error %v", err)
	}
	_, err := s.Prune(t.Context(), store.PruneOptions{Runs: []toolcrib.RunID{"run_a"}, ContentOnly: true, By: "ann"})
	must(t, err)
	for _, err := range s.Read(t.Context(), "run_a", 0) {
		if !errors.Is(err, store.ErrPruned) {
			t.Errorf("error %v, want ErrPruned", err)
		}
	}
	_, err = s.Prune(t.Context(), store.PruneOptions{Runs: []toolcrib.RunID{"run_b"}, By: "ann"})
	must(t, err)
	if _, err := s.Run(t.Context(), "run_b"); !errors.Is(err, toolcrib.ErrNotFound) {
		t.Errorf("error %v, want ErrNotFound", err)
	}
}

func imported(t *testing.T, open func() store.Store) {
	s := open()
	add(t, s, "run_a", 0, begun("ann", ""), done())
	var events []toolcrib.Event
	for e, err := range s.Read(t.Context(), "run_a", 0) {
		must(t, err)
		events = append(events, e)
	}
	in := store.Imported{Run: "run_a", By: "ann", Events: events}
	if err := s.Import(t.Context(), in); !errors.Is(err, toolcrib.ErrConflict) {
		t.Errorf("one that is here: error %v", err)
	}
	in.Run = "run_b" // the hashes are those of another run
	var broken *store.ChainError
	if err := s.Import(t.Context(), in); !errors.As(err, &broken) {
		t.Errorf("error %v, want a broken chain", err)
	}
}

func closed(t *testing.T, open func() store.Store) {
	s := open()
	must(t, s.Close())
	must(t, s.Close())
	for _, err := range []error{
		s.Append(context.Background(), "run_a", 0, journaltest.Events(done())...),
		func() error { _, err := s.Runs(context.Background(), store.Filter{}); return err }(),
	} {
		if !errors.Is(err, store.ErrClosed) {
			t.Errorf("error %v, want ErrClosed", err)
		}
	}
}
