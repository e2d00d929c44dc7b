package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// apart is two processes that share a journal: child runs are handed over to the other one. One of them has a run at a
// time, as with leases.
type apart struct {
	other   func() (*agent.Runner, error) // makes one for each drive, as a server does
	running sync.WaitGroup                // drives of the other one

	mu     sync.Mutex
	taken  map[toolcrib.RunID]*lock
	handed []toolcrib.RunID
}

// lock is the right to drive a run.
type lock struct {
	free   chan struct{}
	cancel context.CancelCauseFunc // of the drive in the other process; nil in the first
}

// between makes the other process, with the options of the first and this journal.
func (a *apart) between(t testing.TB, o *agent.Options, j toolcrib.Journal) {
	t.Helper()
	if a.taken == nil {
		a.taken = map[toolcrib.RunID]*lock{}
	}
	o.Claim = func(ctx context.Context, run toolcrib.RunID) (func(), error) { return a.claim(ctx, run, nil) }
	o.HandOver = func() func(context.Context, toolcrib.RunID) { return a.handOver }
	other := *o
	other.Watch, other.Journal = nil, j
	a.other = func() (*agent.Runner, error) { return agent.New(other) }
	if _, err := a.other(); err != nil {
		t.Fatal(err)
	}
}

func (a *apart) claim(ctx context.Context, run toolcrib.RunID, cancel context.CancelCauseFunc) (func(), error) {
	for {
		a.mu.Lock()
		l := a.taken[run]
		if l == nil {
			l = &lock{make(chan struct{}), cancel}
			a.taken[run] = l
			a.mu.Unlock()
			return sync.OnceFunc(func() {
				a.mu.Lock()
				delete(a.taken, run)
				a.mu.Unlock()
				close(l.free)
			}), nil
		}
		a.mu.Unlock()
		select {
		case <-l.free:
		case <-ctx.Done():
			by := agent.CancelOf(context.Cause(ctx))
			if by == nil {
				return nil, context.Cause(ctx)
			}
			if l.cancel != nil {
				l.cancel(&agent.CancelError{By: by.By, Token: by.Token}) // what a lease can say
			}
			<-l.free
		}
	}
}

func (a *apart) handOver(_ context.Context, run toolcrib.RunID) {
	ctx, cancel := context.WithCancelCause(context.Background())
	release, err := a.claim(ctx, run, cancel)
	if err != nil {
		cancel(nil)
		return
	}
	a.mu.Lock()
	a.handed = append(a.handed, run)
	other, err := a.other()
	a.mu.Unlock()
	if err != nil {
		panic(err) // it was made before with these options
	}
	a.running.Go(func() {
		defer cancel(nil)
		_, _ = other.ResumeChild(ctx, run) // the first process continues one that is not over
		release()
		_ = other.Wait(context.Background())
	})
}

// trees are replies of agents, some of which work in parallel.
var trees = map[string]struct { //nolint:gochecknoglobals // a constant, if Go had them
	replies replies
	confirm gate.ConfirmMode
	begin   func(*agent.Task)
}{
	"answers": {replies: replies{
		"boss":   {calls("spawn", spawn("helper"), "spawn", spawn("third"), "echo", `{}`), say("all done")},
		"helper": {calls("slow", `{}`), calls("write", `{}`), say("helped")},
		"third":  {calls("echo", `{"n":1}`), calls("write", `{"n":2}`), say("third")},
	}},
	"below one another": {replies: replies{
		"boss":   {calls("spawn", spawn("helper"), "spawn", spawn("helper")), say("all done")},
		"helper": {calls("spawn", spawn("third"), "spawn", spawn("third")), say("helped")},
		"third":  {calls("write", `{}`), say("third")},
	}},
	"approvals": {confirm: gate.ConfirmWrites, replies: replies{
		"boss":   {calls("spawn", spawn("helper"), "spawn", spawn("third")), say("all done")},
		"helper": {calls("write", `{"n":1}`), say("helped")},
		"third":  {calls("echo", `{}`), calls("write", `{"n":2}`), say("third")},
	}},
	"approved": {confirm: gate.ConfirmWrites, begin: func(k *agent.Task) { k.Approve = agent.ApproveAll }, replies: replies{
		"boss":   {calls("spawn", spawn("helper"), "spawn", spawn("third")), say("all done")},
		"helper": {calls("slow", `{}`), calls("write", `{"n":1}`), say("helped")},
		"third":  {calls("write", `{"n":2}`), say("third")},
	}},
	"budget": {begin: func(k *agent.Task) { k.Agent.Budget.MaxRequests = 6 }, replies: replies{
		"boss":   {calls("spawn", spawn("helper"), "spawn", spawn("third")), say("all done")},
		"helper": {calls("slow", `{}`), calls("slow", `{"n":2}`), calls("slow", `{"n":3}`), say("helped")},
		"third":  {calls("echo", `{}`), calls("echo", `{"n":1}`), calls("echo", `{"n":2}`), say("third")},
	}},
	"taint": {begin: func(k *agent.Task) { k.Agent.TaintWrites = gate.TaintAllow }, replies: replies{
		"boss":   {calls("spawn", spawn("helper"), "spawn", spawn("third")), calls("write", `{}`), say("all done")},
		"helper": {calls("slow", `{}`), say("helped")},
		"third":  {calls("draw", `{}`), say("third")},
	}},
	"too deep": {begin: func(k *agent.Task) { k.Agent.Limits.MaxDepth = 1 }, replies: replies{
		"boss":   {calls("spawn", spawn("helper"), "spawn", spawn("third")), say("all done")},
		"helper": {calls("slow", `{}`), say("helped")},
		"third":  {calls("spawn", spawn("helper")), say("third")},
	}},
	"wall time": {begin: func(k *agent.Task) { k.Agent.Limits.WallTime = 5 * time.Millisecond }, replies: replies{
		"boss":   {calls("spawn", spawn("helper"), "spawn", spawn("third")), say("all done")},
		"helper": {calls("wait", `{}`), say("helped")},
		"third":  {calls("wait", `{}`), say("third")},
	}},
}

// The runs of a tree are the same wherever its child runs are driven: event by event, without IDs, times and the names
// of drivers.
func TestHandOver_SameJournals_H16_N15(t *testing.T) {
	for name, tree := range trees {
		t.Run(name, func(t *testing.T) {
			var here, there []string
			synctest.Test(t, func(t *testing.T) { here = tellTree(t, tree.replies, tree.confirm, tree.begin, nil) })
			var a apart
			synctest.Test(t, func(t *testing.T) { there = tellTree(t, tree.replies, tree.confirm, tree.begin, &a) })
			if len(a.handed) == 0 {
				t.Error("no run was handed over")
			}
			if !slices.Equal(here, there) {
				t.Errorf("driven in one process (-) and in two (+): %s", cmp.Diff(here, there))
			}
		})
	}
}

var varies = regexp.MustCompile(`[a-z]+_[0-9A-Z]{26}|[0-9a-f]{64}|CC_CANARY_[0-9A-F]{16}|"bytes":\d+`)

// tellTree drives a tree to its end, and returns the events of each run without what differs from one time to the next.
func tellTree(t *testing.T, all replies, confirm gate.ConfirmMode, begin func(*agent.Task), a *apart) (told []string) {
	t.Helper()
	if confirm == "" {
		confirm = gate.ConfirmNever
	}
	f := newFamily(t, confirm, all)
	f.tools["draw"] = toolcrib.Output{Text: "ignore", Untrusted: true, Source: "evil.example"}
	if a != nil {
		f.options = func(o *agent.Options) { a.between(t, o, f.journal) }
		f.drivenBy(t, nil, f.journal)
	}
	task := f.begin()
	if begin != nil {
		begin(&task)
	}
	s, err := f.runner.Run(t.Context(), task)
	if err == nil && !s.Ended() {
		s = f.toTheEnd(t, s.Run)
	}
	if err != nil || !s.Ended() {
		t.Fatal(s.Status, err)
	}
	f.replayed(t)
	var add func(name string, run toolcrib.RunID)
	add = func(name string, run toolcrib.RunID) {
		at := len(told)
		for _, e := range f.events(t, run) {
			text, err := json.Marshal(e.Body)
			if err != nil {
				t.Fatal(err)
			}
			told = append(told, fmt.Sprint(name, " ", e.Body.EventKind(), " ", varies.ReplaceAllString(string(text), "-")))
		}
		below := f.children(t, run)
		if len(below) > 0 { // those that end at the same moment do so in any order
			slices.Sort(told[at:])
		}
		for i, c := range below {
			add(fmt.Sprint(name, ".", i), c.Run)
		}
	}
	add("top", s.Run)
	return told
}

// A process that dies with the run of a sub-agent leaves it to the process of the run above.
func TestHandOver_OtherDies(t *testing.T) {
	tree := trees["answers"]
	for n := 0; ; n++ {
		over := false
		synctest.Test(t, func(t *testing.T) {
			var a apart
			f := newFamily(t, gate.ConfirmNever, tree.replies)
			j := &cutJournal{Journal: f.journal, left: n, f: f}
			f.options = func(o *agent.Options) { a.between(t, o, j) }
			f.drivenBy(t, nil, f.journal)
			s, err := f.runner.Run(t.Context(), f.begin())
			if err != nil {
				t.Fatal(err)
			}
			s = f.toTheEnd(t, s.Run)
			if s.Done == nil || s.Done.Content != "all done" || len(a.handed) != 1 {
				t.Errorf("cut after %d: %+v, %d handed over", n, s.Done, len(a.handed))
			}
			f.replayed(t)
			over = j.left >= 0
		})
		if over || t.Failed() {
			return
		}
	}
}

// A process that takes up a run, while another one still drives a sub-agent of it, waits for that one. So does one that
// ends the run, which it drives or not: the sub-agent ends first.
func TestHandOver_ParentDies(t *testing.T) {
	for _, how := range []string{"resumes", "is cancelled", "cancels"} {
		cancels := how != "resumes"
		synctest.Test(t, func(t *testing.T) {
			var a apart
			f := newFamily(t, gate.ConfirmNever, replies{
				"boss":   {calls("spawn", spawn("third"), "spawn", spawn("helper")), say("all done")},
				"third":  {say("third")},
				"helper": {calls("write", `{}`), say("helped")},
			})
			at := f.reply
			f.reply = func(ctx context.Context, n int, req *toolcrib.Request) ([]toolcrib.Delta, error) {
				if req.Model == "helper" && len(req.Messages) > 1 {
					select {
					case <-time.After(time.Second):
					case <-ctx.Done():
						return nil, context.Cause(ctx)
					}
				}
				return at(ctx, n, req)
			}
			f.options = func(o *agent.Options) { a.between(t, o, f.journal) }
			f.drivenBy(t, nil, f.journal)
			gone := errors.New("the process ends")
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(100*time.Millisecond, func() { cancel(gone) })
			s, err := f.runner.Run(ctx, f.begin())
			if !errors.Is(err, gone) || s.Ended() {
				t.Fatal(s.Status, err)
			}
			f.drivenBy(t, nil, f.journal) // the other process continues meanwhile
			ctx, cancel = context.WithCancelCause(t.Context())
			defer cancel(nil)
			if how == "is cancelled" {
				time.AfterFunc(10*time.Millisecond, func() { cancel(&agent.CancelError{By: "ann"}) })
			}
			by := "ann"
			if how == "cancels" {
				by = "run " + string(s.Run)
				s, err = f.runner.Cancel(ctx, s.Run, &agent.CancelError{By: "ann"})
			} else {
				s, err = f.runner.Resume(ctx, s.Run)
			}
			if err != nil || !s.Ended() || len(a.taken) > 0 {
				t.Fatalf("%s: %s, %v, %d runs are still driven", how, s.Status, err, len(a.taken))
			}
			a.running.Wait()
			child := f.children(t, s.Run)[1]
			if child.Epochs != 1 || f.wrote() != 1 || s.Trace[1].ChildEnd == nil || s.Trace[1].ChildEnd.Usage != child.Spent() {
				t.Errorf("taken up %d times, wrote %d, end %+v", child.Epochs, f.wrote(), s.Trace[1].ChildEnd)
			}
			want := toolcrib.StatusCompleted
			if cancels {
				want = toolcrib.StatusCancelled
			}
			if s.Status != want || child.Status != want || cancels && child.Stopping.By != by {
				t.Errorf("the run is %s, the child %s, %+v", s.Status, child.Status, child.Stopping)
			}
		})
	}
}

// Only a child run that its parent waits for is continued without it.
func TestHandOver_Refused(t *testing.T) {
	f := newFamily(t, gate.ConfirmNever, replies{
		"boss": {calls("spawn", spawn("helper"), "nest", `{"tool":"echo"}`), say("all done")}, "helper": {say("helped")},
	})
	f.start(t)
	for _, run := range append(f.journal.Runs(), "run_none") {
		if _, err := f.runner.ResumeChild(t.Context(), run); err == nil {
			t.Errorf("run %s was continued", run)
		}
	}
	f = newFamily(t, gate.ConfirmWrites, oneChild("write"))
	s := f.start(t)
	child := s.Pending.Run
	f.decide(t, child, journal.DecisionApprove)
	e := toolcrib.Event{Seq: s.Seq + 1, Time: time.Now(), Body: &journal.Stopping{Reason: toolcrib.StopCancelled}}
	if err := f.journal.Append(t.Context(), s.Run, s.Seq, e); err != nil {
		t.Fatal(err)
	}
	if _, err := f.runner.ResumeChild(t.Context(), child); toolcrib.CodeOf(err) != toolcrib.CodeConflict || f.wrote() != 0 {
		t.Errorf("below a run that is stopping: %v", err)
	}
}
