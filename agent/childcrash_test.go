package agent_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/journal/inmemory"
)

// cutJournal takes so many appends, over all runs, and fails from then on: what a
// killed process leaves behind.
type cutJournal struct {
	*inmemory.Journal
	left int
	f    *family
}

var errCut = errors.New("the process is gone")

func (j *cutJournal) Append(ctx context.Context, run toolcrib.RunID, after toolcrib.Seq, events ...toolcrib.Event) error {
	j.f.mu.Lock()
	j.left--
	cut := j.left < 0
	j.f.mu.Unlock()
	if cut {
		return errCut
	}
	return j.Journal.Append(ctx, run, after, events...)
}

// If a process dies after any append of any run of a tree, the journals let the run at the top
// continue to the same end: no child is started twice, no finished call is repeated, and a person is
// asked about a write that had started.
func TestChild_CutAtEveryAppend(t *testing.T) {
	stories := map[string]struct {
		replies replies
		begin   func(*agent.Task)
		confirm gate.ConfirmMode
		runs    int
	}{
		"one child": {runs: 2, replies: replies{
			"boss":   {calls("echo", `{}`, "spawn", spawn("helper")), say("all done")},
			"helper": {calls("echo", `{"x":2}`), calls("write", `{}`), say("helped")},
		}},
		"two side by side": {runs: 3, replies: replies{
			"boss":   {calls("spawn", spawn("helper"), "spawn", spawn("third")), calls("echo", `{}`), say("all done")},
			"helper": {calls("write", `{"n":1}`), say("helped")},
			"third":  {calls("echo", `{}`), say("third")},
		}},
		"below one another": {runs: 3, replies: replies{
			"boss":   {calls("spawn", spawn("helper")), say("all done")},
			"helper": {calls("spawn", spawn("third")), say("helped")},
			"third":  {calls("write", `{}`, "echo", `{}`), say("third")},
		}},
		"approved": {runs: 3, confirm: gate.ConfirmWrites, begin: func(k *agent.Task) { k.Approve = agent.ApproveAll }, replies: replies{
			"boss":   {calls("spawn", spawn("helper"), "write", `{}`), say("all done")},
			"helper": {calls("spawn", spawn("third"), "write", `{"n":1}`), say("helped")},
			"third":  {calls("write", `{"n":2}`), say("third")},
		}},
		"waiting": {runs: 3, confirm: gate.ConfirmWrites, replies: replies{
			"boss":   {calls("spawn", spawn("helper"), "spawn", spawn("third")), say("all done")},
			"helper": {calls("write", `{"n":1}`), say("helped")},
			"third":  {calls("write", `{"n":2}`), say("third")},
		}},
		"within a budget": {runs: 3, begin: func(k *agent.Task) { k.Agent.Budget.MaxRequests = 5 }, replies: replies{
			"boss":   {calls("spawn", spawn("helper"), "spawn", spawn("third")), say("all done")},
			"helper": {calls("echo", `{}`), say("helped")},
			"third":  {calls("echo", `{}`), calls("echo", `{"n":1}`), say("third")},
		}},
	}
	for name, story := range stories {
		t.Run(name, func(t *testing.T) {
			if story.confirm == "" {
				story.confirm = gate.ConfirmNever
			}
			if story.begin == nil {
				story.begin = func(*agent.Task) {}
			}
			for n := 1; ; n++ {
				over := false
				synctest.Test(t, func(t *testing.T) { over = cutStory(t, n, story.confirm, story.replies, story.begin, story.runs) })
				if over || t.Failed() {
					if n < 6 {
						t.Errorf("the story had only %d appends", n)
					}
					return
				}
			}
		})
	}
}

// cutStory plays a story up to its n-th append and goes on; over = it has fewer.
func cutStory(t *testing.T, n int, confirm gate.ConfirmMode, script replies, begin func(*agent.Task), runs int) (over bool) {
	f := newFamily(t, confirm, script)
	j := &cutJournal{Journal: f.journal, left: n, f: f}
	f.drivenBy(t, nil, j)
	s, err := f.runner.Run(t.Context(), f.begin(begin))
	if err := f.runner.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	over = j.left >= 0
	if s == nil {
		return over // nothing was written down
	}
	if !over && !errors.Is(err, errCut) {
		t.Fatalf("cut after %d: %v", n, err)
	}
	top := f.journal.Runs()[0]
	for _, run := range f.journal.Runs() {
		if s, err := f.runner.Load(t.Context(), run); err == nil && s.Start.Parent == "" {
			top = run
		}
	}
	f.drivenBy(t, nil, f.journal)
	s = f.toTheEnd(t, top)
	budget := s.Start.Agent.Budget.MaxRequests // a request whose reply was lost counts, too
	if s.Done == nil || budget == 0 && (s.Done.Content != "all done" || s.Done.StopReason != toolcrib.StopCompleted) {
		t.Fatalf("cut after %d: ended as %+v %+v", n, s.Done, s.Failed)
	}
	if all := f.journal.Runs(); len(all) != runs {
		t.Errorf("cut after %d: %d runs, want %d", n, len(all), runs)
	}
	started := map[string]int{}
	for _, run := range f.journal.Runs() {
		s, err := f.runner.Load(t.Context(), run)
		if err != nil {
			t.Fatal(err)
		}
		if !s.Ended() {
			t.Errorf("cut after %d: run %s of %s is %s", n, run, s.Start.Agent.Name, s.Status)
		}
		for _, e := range f.events(t, run) {
			if b, ok := e.Body.(*journal.ToolStarted); ok && b.Write {
				started[string(run)+b.ID]++
			}
		}
	}
	for id, n := range started {
		if n > 1 {
			t.Errorf("cut after %d: write %s started %d times", n, id, n)
		}
	}
	if budget > 0 && s.Spent().Requests > s.Budget().MaxRequests {
		t.Errorf("cut after %d: %d requests of %d", n, s.Spent().Requests, budget)
	}
	f.replayed(t)
	return over
}

// toTheEnd resumes a run until it ends, and decides what it waits for.
func (f *family) toTheEnd(t *testing.T, run toolcrib.RunID) *agent.State {
	t.Helper()
	for range 20 {
		s, err := f.runner.Load(t.Context(), run)
		if err != nil {
			t.Fatal(err)
		}
		if s.Ended() {
			return s
		}
		if s, err = f.runner.Resume(t.Context(), run); err != nil {
			t.Fatal(err)
		}
		if s.Ended() {
			return s
		}
		waits, err := f.runner.WaitsFor(t.Context(), run)
		if err != nil || waits == nil {
			t.Fatalf("run %s is %s and waits for nobody (%v)", run, s.Status, err)
		}
		if out := waits.Pending.Error; out != nil { // what was lost is made up for, as it says
			if _, err := f.runner.Add(t.Context(), waits.Run, agent.Addition{Granted: &journal.Granted{Requests: out.AddRequests}}); err != nil {
				t.Fatal(err)
			}
			continue
		}
		decision := agent.Decision{ApprovalID: waits.Approval.ApprovalID, Digest: waits.Approval.Digest, Who: me, Decision: journal.DecisionApprove}
		if waits.Approval.Kind == journal.ApprovalInDoubt {
			decision.Decision, decision.Result = journal.DecisionHappened, []byte(`"written"`)
		}
		if _, err := f.runner.Decide(t.Context(), waits.Run, decision); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("it does not end")
	return nil
}
