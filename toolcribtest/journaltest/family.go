package journaltest

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// RunFamilies runs the suite of runs that start other runs (contract §6, §11; design.md
// §2, chains); open returns an empty store that has the time from now.
func RunFamilies(t *testing.T, open func(t *testing.T, now func() time.Time) store.Store) {
	for name, test := range map[string]func(*testing.T, *clan){
		"Status":            clanStatus,
		"WaitsForATool":     clanWaitsForATool,
		"DecidedOnce":       clanDecidedOnce,
		"Lists":             clanLists,
		"Session":           clanSession,
		"Usage":             clanUsage,
		"Budget":            clanBudget,
		"Anchors":           clanAnchors,
		"Audit":             clanAudit,
		"Verify":            clanVerify,
		"NeverBegan":        clanNeverBegan,
		"CallsOfTools":      clanCallsOfTools,
		"PruneTogether":     clanPruneTogether,
		"PruneOne":          clanPruneOne,
		"PruneRefuses":      clanPruneRefuses,
		"PruneBelowParked":  clanPruneBelowParked,
		"PruneBelowRunning": clanPruneBelowRunning,
		"PruneBelowMiddle":  clanPruneBelowMiddle,
		"PruneOlder":        clanPruneOlder,
		"PruneLateEnds":     clanPruneLateEnds,
		"Retention":         clanRetention,
		"RetentionContent":  clanRetentionContent,
		"RetentionBounds":   clanRetentionBounds,
		"Export":            clanExport,
		"ExportOfWhatIsNew": clanExportSince,
		"Tribe":             clanTribe,
	} {
		t.Run(name, func(t *testing.T) {
			c := &clan{at: noon()}
			c.purse = newPurse(t, open(t, func() time.Time { return c.at }))
			test(t, c)
		})
	}
}

// clan adds events to runs that start one another: run_p, of agent lead, starts run_c,
// of agent editor, which starts run_g, of agent digger. Each call has the same ID.
type clan struct {
	*purse
	at time.Time // of the events, and of the store
}

const callID = "call_1"

func (c *clan) add(run toolcrib.RunID, bodies ...toolcrib.Body) {
	c.t.Helper()
	c.must(c.try(run, bodies...))
}

func (c *clan) try(run toolcrib.RunID, bodies ...toolcrib.Body) error {
	return c.purse.add(run, c.at, bodies...)
}

func (c *clan) rec(run toolcrib.RunID) store.RunRecord {
	c.t.Helper()
	rec, err := c.s.Run(c.t.Context(), run)
	c.must(err)
	return rec
}

// verify sees to it that everything holds.
func (c *clan) verify() store.VerifiedAll {
	c.t.Helper()
	all, err := c.s.VerifyAll(c.t.Context())
	if err != nil {
		c.t.Error(err)
	}
	page, err := c.s.Runs(c.t.Context(), store.Filter{})
	c.must(err)
	for _, rec := range page.Runs {
		if _, err := c.s.Verify(c.t.Context(), rec.ID); err != nil {
			c.t.Error(err)
		}
	}
	return all
}

func (c *clan) ids(f store.Filter) []toolcrib.RunID {
	c.t.Helper()
	page, err := c.s.Runs(c.t.Context(), f)
	c.must(err)
	list := []toolcrib.RunID{}
	for _, rec := range page.Runs {
		list = append(list, rec.ID)
	}
	return list
}

func (c *clan) want(what string, f store.Filter, want ...toolcrib.RunID) {
	c.t.Helper()
	if diff := cmp.Diff(append([]toolcrib.RunID{}, want...), c.ids(f)); diff != "" {
		c.t.Errorf("%s (-want +got)\n%s", what, diff)
	}
}

func (c *clan) statuses(want ...toolcrib.Status) {
	c.t.Helper()
	for i, run := range []toolcrib.RunID{"run_p", "run_c", "run_g"}[:len(want)] {
		if rec := c.rec(run); rec.Status != want[i] || rec.Status.Parked() != (rec.Pending != nil) {
			c.t.Errorf("run %s is %s, pending %v; want %s", run, rec.Status, rec.Pending, want[i])
		}
	}
}

// begins is how a run begins; parent "" = a person started it.
func begins(agent string, parent toolcrib.RunID) *journal.RunStarted {
	b := &journal.RunStarted{
		Format: journal.Format, Agent: toolcrib.Agent{Name: agent, Model: "small"}, Principal: toolcrib.Principal{User: "ann", Actor: "local:root"}, Session: "work", Parent: parent,
		Models: []journal.ModelInfo{{Ref: "small", Provider: "demo", ID: "m-1", Price: toolcrib.Price{Input: 1, Output: 1, Known: true}}},
	}
	if parent != "" {
		b.Depth, b.Above, b.Share = 1, &journal.Above{TaintWrites: "ask"}, share()
		if parent == "run_c" {
			b.Depth = 2
		}
	}
	return b
}

// start begins run_p, and with it those below it.
func (c *clan) start(below ...toolcrib.RunID) {
	c.t.Helper()
	agents := map[toolcrib.RunID]string{"run_c": "editor", "run_g": "digger"}
	c.add("run_p", begins("lead", ""), &journal.TakenUp{Epoch: 1})
	parent := toolcrib.RunID("run_p")
	for _, run := range below {
		c.add(parent, &journal.ToolStarted{ID: callID, Name: "spawn"}, &journal.ChildStarted{ID: callID, Run: run, Agent: agents[run], Share: share()})
		c.add(run, begins(agents[run], parent), &journal.TakenUp{Epoch: 1})
		parent = run
	}
}

// asks uses something: a request with a reply.
func (c *clan) asks(run toolcrib.RunID, tokens int64) {
	c.t.Helper()
	usage := toolcrib.TokenUsage{InputTokens: tokens, Reported: true}
	c.add(run, &journal.ModelRequest{Request: 1}, &journal.Usage{
		Request: 1, Tokens: usage, CostUSD: float64(tokens) / 1e6, Sum: toolcrib.Usage{InputTokens: tokens, TotalTokens: tokens, Requests: 1, CostUSD: float64(tokens) / 1e6},
	})
}

// parks lets run_g wait for an approval, and those above it for that.
func (c *clan) parks() {
	c.t.Helper()
	pending := journal.Pending{Kind: "approval", ApprovalID: "apr_1", Digest: "d1", Calls: []journal.ApprovalItem{{ID: callID, Name: "write_file"}}}
	c.add("run_g", &journal.ConfirmationRequired{ApprovalID: "apr_1", Digest: "d1", Kind: journal.ApprovalCall, Calls: pending.Calls},
		&journal.Paused{Status: toolcrib.StatusWaitingForApproval, Pending: pending})
	pending.Run = "run_g"
	for run, above := range map[toolcrib.RunID]toolcrib.RunID{"run_g": "run_c", "run_c": "run_p"} {
		c.add(above, &journal.ChildParked{ID: callID, Run: run, Status: toolcrib.StatusWaitingForApproval, Pending: pending})
	}
	for _, run := range []toolcrib.RunID{"run_c", "run_p"} {
		c.add(run, &journal.Paused{Status: toolcrib.StatusWaitingForApproval, Pending: pending})
	}
}

// ends ends a run, and notifies the one above it.
func (c *clan) ends(run, above toolcrib.RunID) {
	c.t.Helper()
	sum := c.rec(run).Usage
	c.add(run, &journal.Done{Status: toolcrib.StatusCompleted, StopReason: toolcrib.StopCompleted, Content: "ready", Usage: sum})
	if above != "" {
		c.add(above, &journal.ChildEnded{ID: callID, Run: run, Status: toolcrib.StatusCompleted, StopReason: toolcrib.StopCompleted, Usage: sum},
			&journal.ToolResult{ToolCallID: callID, Name: "spawn", Status: toolcrib.ResultOK, Content: "ready"})
	}
}

// whole is a run tree that has ended. That of run_p ended later by span for each above it.
func (c *clan) whole(span time.Duration) {
	c.t.Helper()
	c.start("run_c", "run_g")
	for _, run := range []toolcrib.RunID{"run_p", "run_c", "run_g"} {
		c.must(c.s.Put(c.t.Context(), run, "res_1", []byte("kept")))
	}
	c.ends("run_g", "run_c")
	c.at = c.at.Add(span)
	c.ends("run_c", "run_p")
	c.at = c.at.Add(span)
	c.ends("run_p", "")
}

const (
	clanRunning   = toolcrib.StatusRunning
	clanApproval  = toolcrib.StatusWaitingForApproval
	clanQueued    = toolcrib.StatusQueued
	clanCompleted = toolcrib.StatusCompleted
)

// clanStatus: a run continues when its own journal says so, not when what it waits for
// was decided.
func clanStatus(_ *testing.T, c *clan) {
	c.start("run_c", "run_g")
	c.statuses(clanRunning, clanRunning, clanRunning)
	c.parks()
	c.statuses(clanApproval, clanApproval, clanApproval)
	for run, waits := range map[toolcrib.RunID]toolcrib.RunID{"run_p": "run_g", "run_c": "run_g", "run_g": ""} {
		if p := c.rec(run).Pending; p.Run != waits || p.ApprovalID != "apr_1" || len(p.Calls) != 1 {
			c.t.Errorf("run %s waits for %+v", run, p)
		}
	}
	c.add("run_g", &journal.ConfirmationResolved{ApprovalID: "apr_1", Digest: "d1", Decision: journal.DecisionApprove, By: "ann"})
	c.statuses(clanApproval, clanApproval, clanQueued)
	c.add("run_p", &journal.TakenUp{Epoch: 2})
	c.statuses(clanApproval, clanApproval, clanQueued)
	c.add("run_p", &journal.ChildResumed{ID: callID, Run: "run_c"})
	c.add("run_c", &journal.TakenUp{Epoch: 2}, &journal.ChildResumed{ID: callID, Run: "run_g"})
	c.add("run_g", &journal.TakenUp{Epoch: 2})
	c.statuses(clanRunning, clanRunning, clanRunning)
	c.ends("run_g", "run_c")
	c.ends("run_c", "run_p")
	c.statuses(clanRunning, clanCompleted, clanCompleted)
	c.ends("run_p", "")
	c.statuses(clanCompleted, clanCompleted, clanCompleted)
	c.verify()
}

// clanWaitsForATool: the results that a run waits for are those of its own calls, whose
// IDs may be those of another run's. The end of a run that was waited for continues
// the one above it, too.
func clanWaitsForATool(t *testing.T, c *clan) {
	c.start("run_c")
	pending := journal.Pending{Kind: "client_tool", Run: "run_c", Calls: []journal.ApprovalItem{{ID: callID, Name: "pick"}, {ID: "call_2", Name: "pick"}}}
	c.add("run_p", &journal.Paused{Status: toolcrib.StatusWaitingForTool, Pending: pending}, &journal.ToolResult{ToolCallID: "call_2"})
	if rec := c.rec("run_p"); rec.Status != toolcrib.StatusWaitingForTool || len(rec.Pending.Calls) != 2 {
		t.Errorf("%s, pending %+v", rec.Status, rec.Pending)
	}
	c.ends("run_c", "run_p")
	c.statuses(clanRunning, clanCompleted)
	c.verify()
}

// clanDecidedOnce: of all that wait for an approval, one is to be decided. When it has ended, the others can
// continue.
func clanDecidedOnce(t *testing.T, c *clan) {
	c.start("run_c", "run_g")
	c.want("nothing waits", store.Filter{Deciding: true})
	c.parks()
	waiting := []toolcrib.Status{clanApproval}
	c.want("all that wait", store.Filter{Status: waiting}, "run_g", "run_c", "run_p")
	c.want("what is to be decided", store.Filter{Status: waiting, Deciding: true}, "run_g")
	c.want("what is to be decided, of any status", store.Filter{Deciding: true}, "run_g")
	for run, decides := range map[toolcrib.RunID]bool{"run_p": false, "run_c": false, "run_g": true} {
		rec := c.rec(run)
		if rec.Decides() != decides {
			t.Errorf("run %s is to be decided about: %v, want %v", run, rec.Decides(), decides)
		}
	}
	c.want("what waits for a run that has ended", store.Filter{Freed: true})
	c.add("run_g", &journal.ConfirmationResolved{ApprovalID: "apr_1", Digest: "d1", Decision: journal.DecisionApprove, By: "ann"})
	c.want("decided", store.Filter{Deciding: true})
	c.ends("run_g", "")
	c.want("what waits for a run that has ended, at its end", store.Filter{Freed: true, Status: waiting}, "run_c", "run_p")
}

func clanLists(_ *testing.T, c *clan) {
	c.start("run_c", "run_g")
	c.add("run_x", begins("lead", "run_other"))
	c.want("parts of run_p", store.Filter{Parent: "run_p"}, "run_c")
	c.want("parts of run_c", store.Filter{Parent: "run_c"}, "run_g")
	c.want("parts of run_g", store.Filter{Parent: "run_g"})
	c.want("of no other", store.Filter{TopLevel: true}, "run_p")
	c.want("of an agent", store.Filter{Agent: "editor"}, "run_c")
	c.want("all", store.Filter{}, "run_x", "run_g", "run_c", "run_p")
	beside := begins("lead", "")
	beside.Session, beside.Beside = "", "work"
	c.add("run_b", beside)
	c.want("beside a session", store.Filter{Beside: "work"}, "run_b")
	c.want("beside another", store.Filter{Beside: "play"})
}

// clanSession: the runs of a session are those that people start, one at a time.
func clanSession(t *testing.T, c *clan) {
	c.start("run_c", "run_g")
	c.parks()
	info, err := c.s.Session(t.Context(), "ann", "work")
	if err != nil || info.Runs != 1 || info.LastRun != "run_p" || info.Status != clanApproval || !info.Busy() {
		t.Errorf("%+v, error %v", info, err)
	}
	runs, err := store.SessionRuns(t.Context(), c.s, "ann", "work")
	if err != nil || len(runs) != 1 || runs[0].ID != "run_p" {
		t.Errorf("%d runs, error %v", len(runs), err)
	}
	if last, err := store.LastRun(t.Context(), c.s, "ann", "work"); err != nil || last.ID != "run_p" {
		t.Errorf("the last is %s, error %v", last.ID, err)
	}
	if err := c.try("run_2", begins("lead", "")); !errors.As(err, new(*store.SessionBusyError)) {
		t.Errorf("a second run: error %v, want SessionBusyError", err)
	}
	c.add("run_p", &journal.Done{Status: toolcrib.StatusCancelled, StopReason: toolcrib.StopCancelled})
	// The others were left behind, and keep nobody from continuing.
	if err := c.try("run_2", begins("lead", "")); err != nil {
		t.Error(err)
	}
}

// clanUsage: each request counts once, for the agent that sent it.
func clanUsage(t *testing.T, c *clan) {
	c.start("run_c", "run_g")
	c.asks("run_p", 1000)
	c.asks("run_c", 200)
	c.asks("run_g", 30)
	c.ends("run_g", "run_c")
	c.ends("run_c", "run_p")
	c.ends("run_p", "")
	for run, want := range map[toolcrib.RunID]int64{"run_p": 1000, "run_c": 200, "run_g": 30} {
		if got := c.rec(run).Usage; got.TotalTokens != want || got.Requests != 1 {
			t.Errorf("run %s has used %+v, want %d tokens", run, got, want)
		}
	}
	for by, want := range map[store.UsageBy][]int64{
		store.UsageByAgent: {1000, 200, 30}, store.UsageByRun: {1000, 200, 30}, store.UsageBySession: {1230}, store.UsageTotal: {1230}, store.UsageByDay: {1230},
	} {
		rows, err := c.s.Usage(t.Context(), store.UsageQuery{By: by})
		var got []int64
		for _, r := range rows {
			got = append(got, r.TotalTokens)
		}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("by %q: error %v (-want +got)\n%s", by, err, diff)
		}
	}
	c.verify()
}

// clanBudget: what runs below spend counts for the budget of their user, once.
func clanBudget(t *testing.T, c *clan) {
	p := c.purse
	l := p.ledger(store.UserBudget{RequestsPerDay: 3})
	c.start("run_c", "run_g")
	for _, run := range []toolcrib.RunID{"run_p", "run_c", "run_g"} {
		c.must(p.reserve(l, run, "ann", c.at))
		c.asks(run, 10)
	}
	c.ends("run_g", "run_c")
	c.ends("run_c", "run_p")
	if err := p.reserve(l, "run_p", "ann", c.at); err == nil {
		t.Fatal("a fourth request is let pass")
	} else if refused := over(t, err, "budgets[0].requests_per_day"); refused.Spent != 3 {
		t.Errorf("%v spent, want 3", refused.Spent)
	}
}

// clanAnchors: each run leaves its own anchor where it parks and ends, and what it
// says of others leaves none.
func clanAnchors(t *testing.T, c *clan) {
	c.start("run_c", "run_g")
	c.parks()
	c.ends("run_g", "run_c")
	c.ends("run_c", "run_p")
	c.ends("run_p", "")
	got := map[toolcrib.RunID][]toolcrib.Status{}
	b, _ := c.export(store.ExportOptions{})
	for line := range bytes.Lines(b) {
		var e store.ExportEvent
		c.must(json.Unmarshal(line, &e))
		if e.Kind != store.SystemAnchor {
			continue
		}
		var a store.Anchor
		c.must(json.Unmarshal([]byte(*e.Payload), &a))
		got[a.Run] = append(got[a.Run], a.Status)
	}
	each := []toolcrib.Status{clanApproval, clanCompleted}
	if diff := cmp.Diff(map[toolcrib.RunID][]toolcrib.Status{"run_p": each, "run_c": each, "run_g": each}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	c.verify()
}

// clanAudit: the audit log shows who asked for what a run below does.
func clanAudit(t *testing.T, c *clan) {
	c.start("run_c", "run_g")
	c.parks()
	page, err := c.s.Audit(t.Context(), store.AuditFilter{Kinds: []toolcrib.Kind{store.AuditRunStarted, store.AuditApprovalRequired}, OldestFirst: true})
	c.must(err)
	type entry struct {
		Kind        toolcrib.Kind
		Run, Parent toolcrib.RunID
		Agent       string
	}
	var got []entry
	for _, e := range page.Entries {
		got = append(got, entry{e.Kind, e.Run, e.Parent, e.Agent})
	}
	want := []entry{
		{store.AuditRunStarted, "run_p", "", "lead"},
		{store.AuditRunStarted, "run_c", "run_p", "editor"},
		{store.AuditRunStarted, "run_g", "run_c", "digger"},
		{store.AuditApprovalRequired, "run_g", "run_c", "digger"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// clanVerify: what the journals say of each other holds at each moment.
func clanVerify(t *testing.T, c *clan) {
	c.add("run_p", begins("lead", ""), &journal.TakenUp{Epoch: 1})
	c.verify()
	c.add("run_p", &journal.ChildStarted{ID: callID, Run: "run_c", Agent: "editor"})
	c.verify()
	c.add("run_c", begins("editor", "run_p"), &journal.TakenUp{Epoch: 1})
	c.verify()
	c.add("run_c", &journal.ChildStarted{ID: callID, Run: "run_g", Agent: "digger"})
	c.add("run_g", begins("digger", "run_c"), &journal.TakenUp{Epoch: 1})
	c.verify()
	c.parks()
	c.verify()
	c.ends("run_g", "run_c")
	c.verify()
	c.ends("run_c", "run_p")
	c.verify()
	c.ends("run_p", "")
	if all := c.verify(); all.Runs != 3 {
		t.Errorf("%+v", all)
	}
}

// clanNeverBegan: a run that was to be started, and never was, is missed by nobody.
func clanNeverBegan(_ *testing.T, c *clan) {
	c.start()
	c.add("run_p", &journal.ChildStarted{ID: "call_1", Run: "run_c", Agent: "editor"}, &journal.ChildStarted{ID: "call_2", Run: "run_d", Agent: "editor"})
	c.verify()
	c.add("run_p", &journal.ChildEnded{ID: "call_1", Run: "run_c", Status: toolcrib.StatusCancelled, StopReason: toolcrib.StopCancelled})
	c.ends("run_p", "")
	c.verify()
}

// clanCallsOfTools: a call that a tool makes of another is a run, and its parent's
// journal does not name it.
func clanCallsOfTools(_ *testing.T, c *clan) {
	c.start()
	given := begins("lead", "run_p")
	given.Given = &toolcrib.ToolCall{ID: callID, Name: "read_file"}
	c.add("run_n", given, &journal.Done{Status: toolcrib.StatusCompleted})
	c.verify()
	c.ends("run_p", "")
	c.want("removed together", store.Filter{TopLevel: true}, "run_p")
	c.prune(store.PruneOptions{Runs: []toolcrib.RunID{"run_p"}}, "run_p", "run_n")
}

// prune prunes, and sees to it that these runs were, and that all holds then.
func (c *clan) prune(o store.PruneOptions, want ...toolcrib.RunID) {
	c.t.Helper()
	o.By = "ann"
	result, err := c.s.Prune(c.t.Context(), o)
	c.must(err)
	if diff := cmp.Diff(want, result.Runs); diff != "" {
		c.t.Errorf("pruned (-want +got)\n%s", diff)
	}
	c.verify()
}

// clanPruneTogether: what a run has started goes with it, and what they have used
// counts on.
func clanPruneTogether(t *testing.T, c *clan) {
	c.whole(0)
	before, err := c.s.Usage(t.Context(), store.UsageQuery{By: store.UsageByTool})
	c.must(err)
	runs := []toolcrib.RunID{"run_p", "run_c", "run_g"}
	for _, contentOnly := range []bool{true, false} {
		c.prune(store.PruneOptions{Runs: []toolcrib.RunID{"run_p"}, ContentOnly: contentOnly}, runs...)
		for _, run := range runs {
			if _, _, err := c.s.Range(t.Context(), run, "res_1", 0, 1); !errors.Is(err, toolcrib.ErrNotFound) {
				t.Errorf("what was kept for %s: error %v", run, err)
			}
			if rec, err := c.s.Run(t.Context(), run); contentOnly && rec.PrunedAt.IsZero() || !contentOnly && !errors.Is(err, toolcrib.ErrNotFound) {
				t.Errorf("content only %v: run %+v, error %v", contentOnly, rec, err)
			}
		}
	}
	if all := c.verify(); all.Runs != 0 || all.Removed != 3 {
		t.Errorf("%+v", all)
	}
	after, err := c.s.Usage(t.Context(), store.UsageQuery{By: store.UsageByTool})
	if diff := cmp.Diff(before, after); diff != "" || err != nil {
		t.Errorf("usage: error %v (-before +after)\n%s", err, diff)
	}
}

// clanPruneOne: a run that another started goes alone if it is named, with those below
// it; naming it twice prunes it once.
func clanPruneOne(t *testing.T, c *clan) {
	c.whole(0)
	c.prune(store.PruneOptions{Runs: []toolcrib.RunID{"run_g"}, ContentOnly: true}, "run_g")
	c.prune(store.PruneOptions{Runs: []toolcrib.RunID{"run_c", "run_g", "run_c"}}, "run_c", "run_g")
	c.want("what is left", store.Filter{}, "run_p")
	if _, err := c.s.Verify(t.Context(), "run_p"); err != nil {
		t.Error(err)
	}
	if _, err := c.s.Verify(t.Context(), "run_c"); !errors.Is(err, toolcrib.ErrNotFound) {
		t.Errorf("error %v, want ErrNotFound", err)
	}
	c.prune(store.PruneOptions{Runs: []toolcrib.RunID{"run_p"}}, "run_p")
}

// clanPruneRefuses: what has started a run that has not ended is not pruned.
func clanPruneRefuses(t *testing.T, c *clan) {
	c.start("run_c", "run_g")
	c.add("run_p", &journal.Done{Status: toolcrib.StatusCancelled, StopReason: toolcrib.StopCancelled})
	c.add("run_c", &journal.Done{Status: toolcrib.StatusCancelled, StopReason: toolcrib.StopCancelled})
	for _, contentOnly := range []bool{true, false} {
		for _, run := range []toolcrib.RunID{"run_p", "run_c", "run_g"} {
			_, err := c.s.Prune(t.Context(), store.PruneOptions{Runs: []toolcrib.RunID{run}, ContentOnly: contentOnly, By: "ann"})
			if !errors.Is(err, toolcrib.ErrConflict) {
				t.Errorf("run %s: error %v, want ErrConflict", run, err)
			}
		}
		c.at = c.at.AddDate(1, 0, 0)
		c.prune(store.PruneOptions{OlderThan: time.Hour, ContentOnly: contentOnly})
		c.retain(store.Retention{Runs: time.Hour, Content: time.Hour}, nil, nil)
	}
	c.want("all are there", store.Filter{}, "run_g", "run_c", "run_p")
}

const clanDay = 24 * time.Hour

// clanPruneOlder: the age of a run is that of the one that started it.
func clanPruneOlder(_ *testing.T, c *clan) {
	c.whole(10 * clanDay) // run_g ended 20 days before run_p
	c.at = c.at.Add(5 * clanDay)
	c.prune(store.PruneOptions{OlderThan: 6 * clanDay, ContentOnly: true})
	c.prune(store.PruneOptions{OlderThan: 6 * clanDay})
	c.at = c.at.Add(2 * clanDay)
	c.prune(store.PruneOptions{OlderThan: 6 * clanDay, ContentOnly: true}, "run_p", "run_c", "run_g")
	c.prune(store.PruneOptions{OlderThan: 6 * clanDay, ContentOnly: true})
	c.prune(store.PruneOptions{OlderThan: 6 * clanDay}, "run_p", "run_c", "run_g")
}

// clanPruneLateEnds: a run that outlived the one that started it keeps that until it is
// old itself.
func clanPruneLateEnds(_ *testing.T, c *clan) {
	c.start("run_c", "run_g")
	c.ends("run_p", "")
	c.ends("run_c", "")
	c.at = c.at.Add(20 * clanDay)
	c.ends("run_g", "")
	c.at = c.at.Add(5 * clanDay)
	r := store.Retention{Runs: 6 * clanDay, Content: 6 * clanDay}
	c.prune(store.PruneOptions{OlderThan: 6 * clanDay})
	c.retain(r, nil, nil)
	c.at = c.at.Add(2 * clanDay)
	c.retain(r, []toolcrib.RunID{"run_p", "run_c", "run_g"}, nil)
}

// retain applies a retention at the time of the store.
func (c *clan) retain(r store.Retention, removed, emptied []toolcrib.RunID) store.RetentionResult {
	c.t.Helper()
	result, err := c.s.ApplyRetention(c.t.Context(), r, c.at)
	c.must(err)
	if diff := cmp.Diff([][]toolcrib.RunID{removed, emptied}, [][]toolcrib.RunID{result.Removed, result.Emptied}); diff != "" {
		c.t.Errorf("removed and emptied (-want +got)\n%s", diff)
	}
	c.verify()
	return result
}

// clanRetention: a run is kept while the one that started it is.
func clanRetention(_ *testing.T, c *clan) {
	c.start("run_c", "run_g")
	c.ends("run_g", "run_c")
	c.at = c.at.Add(100 * clanDay)
	r := store.Retention{Runs: 30 * clanDay}
	c.retain(r, nil, nil)
	c.ends("run_c", "run_p")
	c.at = c.at.Add(100 * clanDay)
	c.retain(r, nil, nil)
	c.ends("run_p", "")
	c.retain(r, nil, nil)
	c.at = c.at.Add(31 * clanDay)
	c.retain(r, []toolcrib.RunID{"run_p", "run_c", "run_g"}, nil)
}

// clanRetentionContent: content goes with that of the run above; what was forgotten of
// a run tree is found again.
func clanRetentionContent(_ *testing.T, c *clan) {
	c.whole(10 * clanDay)
	r := store.Retention{Runs: 90 * clanDay, Content: 8 * clanDay}
	c.retain(r, nil, nil)
	c.prune(store.PruneOptions{Runs: []toolcrib.RunID{"run_g"}, ContentOnly: true}, "run_g")
	c.at = c.at.Add(9 * clanDay)
	c.retain(r, nil, []toolcrib.RunID{"run_p", "run_c"})
	c.retain(r, nil, nil)
	c.at = c.at.Add(90 * clanDay)
	c.retain(r, []toolcrib.RunID{"run_p", "run_c", "run_g"}, nil)
}

// clanRetentionBounds: a run tree is never cut, whatever the bound.
func clanRetentionBounds(t *testing.T, c *clan) {
	c.whole(0)
	c.add("run_q", begins("lead", ""), &journal.Done{Status: toolcrib.StatusCompleted})
	c.at = c.at.Add(31 * clanDay)
	r := store.Retention{Runs: 30 * clanDay, Max: 2}
	if result := c.retain(r, []toolcrib.RunID{"run_p", "run_c", "run_g"}, nil); !result.More {
		t.Error("there is more to do, and that is not told")
	}
	if result := c.retain(r, []toolcrib.RunID{"run_q"}, nil); result.More {
		t.Error("there is no more to do")
	}
}

func (c *clan) export(o store.ExportOptions) ([]byte, *store.Keys) {
	c.t.Helper()
	keys, err := c.s.ExportKeys()
	c.must(err)
	var b bytes.Buffer
	c.must(c.s.ExportAudit(c.t.Context(), &b, o))
	return b.Bytes(), keys
}

// clanExport: an export holds, whole and of what is open, with what was removed of it.
func clanExport(t *testing.T, c *clan) {
	c.start("run_c", "run_g")
	c.parks()
	c.add("run_p", &journal.ChildStarted{ID: "call_9", Run: "run_never", Agent: "editor"})
	for _, step := range []func(){
		func() {},
		func() { c.ends("run_g", "run_c"); c.ends("run_c", "run_p"); c.ends("run_p", "") },
		func() { c.prune(store.PruneOptions{Runs: []toolcrib.RunID{"run_g"}, ContentOnly: true}, "run_g") },
		func() { c.prune(store.PruneOptions{Runs: []toolcrib.RunID{"run_g"}}, "run_g") },
		func() {
			c.prune(store.PruneOptions{Runs: []toolcrib.RunID{"run_p"}, ContentOnly: true}, "run_p", "run_c")
		},
	} {
		step()
		for _, content := range []bool{false, true} {
			b, keys := c.export(store.ExportOptions{Content: content})
			if _, err := store.VerifyExport(bytes.NewReader(b), keys, store.Head{}); err != nil {
				t.Errorf("content %v: %v", content, err)
			}
		}
	}
}

// clanExportSince: what a run has started is exported with it, however long ago it
// ended.
func clanExportSince(t *testing.T, c *clan) {
	c.whole(10 * clanDay)
	for since, want := range map[time.Duration]int{-clanDay: 3, clanDay: 0} {
		for _, content := range []bool{false, true} {
			b, keys := c.export(store.ExportOptions{Since: c.at.Add(since), Content: content})
			if v, err := store.VerifyExport(bytes.NewReader(b), keys, store.Head{}); err != nil || v.Runs != want {
				t.Errorf("since %s: %d runs, want %d; error %v", since, v.Runs, want, err)
			}
		}
	}
	if !slices.Equal(c.ids(store.Filter{}), []toolcrib.RunID{"run_g", "run_c", "run_p"}) {
		t.Error("exporting has changed something")
	}
}
