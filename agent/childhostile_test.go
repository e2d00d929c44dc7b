package agent_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/journal/inmemory"
)

// oneChild is a story of a boss whose helper does one thing.
func oneChild(tool string) replies {
	return replies{"boss": {calls("spawn", spawn("helper")), say("all done")}, "helper": {calls(tool, `{}`), say("helped")}}
}

// with returns a change of the options of a run tree's runner.
func with(change func(*family, *agent.Options)) func(*family, *gate.Options) {
	return func(f *family, _ *gate.Options) { f.options = func(o *agent.Options) { change(f, o) } }
}

// What makes a sub-agent may fail, panic, or give nothing: the model reads that it
// cannot be started, and nothing else (N21).
func TestChild_AgentsFail(t *testing.T) {
	for name, agents := range map[string]func(context.Context, toolcrib.Principal, string, string) (agent.Task, error){
		"an error": func(context.Context, toolcrib.Principal, string, string) (agent.Task, error) {
			return agent.Task{}, errors.New("password=hunter2hunter2")
		},
		"a panic": func(context.Context, toolcrib.Principal, string, string) (agent.Task, error) {
			panic("password=hunter2hunter2")
		},
		"no model": func(context.Context, toolcrib.Principal, string, string) (agent.Task, error) {
			return agent.Task{}, nil
		},
		"nobody": nil,
	} {
		t.Run(name, func(t *testing.T) {
			f := newFamily(t, gate.ConfirmNever, oneChild("echo"), with(func(_ *family, o *agent.Options) { o.Agents = agents }))
			s := f.start(t)
			r := s.Trace[0].Result
			if s.Done == nil || s.Done.Content != "all done" || r.Status != toolcrib.ResultError || !strings.Contains(r.Content, "agent helper cannot be started") || strings.Contains(r.Content, "hunter2") {
				t.Errorf("ended as %+v, the call %+v", s.Done, r)
			}
			if end := s.Trace[0].ChildEnd; end == nil || end.Status != toolcrib.StatusCancelled || end.Usage != (toolcrib.Usage{}) || len(f.journal.Runs()) != 1 {
				t.Errorf("the end of what never began: %+v, runs %v", end, f.journal.Runs())
			}
		})
	}
}

// What hangs before a child run begins does not hold up its parent forever, and a child
// that was given up does not begin afterwards.
func TestChild_AgentsHang(t *testing.T) {
	for name, cause := range map[string]error{"cancelled": &agent.CancelError{By: "me"}, "let go": context.Canceled} {
		synctest.Test(t, func(t *testing.T) {
			hang := make(chan struct{})
			f := newFamily(t, gate.ConfirmNever, oneChild("echo"), with(func(f *family, o *agent.Options) {
				o.Agents = func(ctx context.Context, who toolcrib.Principal, name, at string) (agent.Task, error) {
					<-hang
					return f.agent(ctx, who, name, at)
				}
			}))
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(cause) })
			s, err := f.runner.Run(ctx, f.begin())
			close(hang)
			if err := f.runner.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := len(f.journal.Runs()); n != 1 {
				t.Errorf("%s: %d runs", name, n)
			}
			if name == "cancelled" && (err != nil || s.Status != toolcrib.StatusCancelled || s.Trace[0].ChildEnd == nil) {
				t.Errorf("%s: %s (%v)", name, s.Status, err)
			}
			if name == "let go" {
				s = f.resume(t, s.Run)
				if s.Done == nil || s.Done.Content != "all done" || len(f.children(t, s.Run)) != 1 || s.Children.Requests != 2 {
					t.Errorf("%s: %+v, children %+v", name, s.Done, s.Children)
				}
			}
			f.replayed(t)
		})
	}
}

// stuckJournal hangs at the appends to all runs but one, until it is let go.
type stuckJournal struct {
	*inmemory.Journal
	f     *family
	stuck chan struct{}
	after int // appends to other runs that pass
	top   toolcrib.RunID
}

func (j *stuckJournal) Append(ctx context.Context, run toolcrib.RunID, after toolcrib.Seq, events ...toolcrib.Event) error {
	j.f.mu.Lock()
	if j.top == "" {
		j.top = run
	}
	wait := false
	if run != j.top {
		wait = j.after == 0
		j.after--
	}
	j.f.mu.Unlock()
	if wait {
		<-j.stuck
	}
	return j.Journal.Append(ctx, run, after, events...)
}

// A child run whose driver hangs and does not end with its call is ended by its parent: its cost is
// charged, and the fence stops the driver that is left.
func TestChild_DriverHangs(t *testing.T) {
	for after := range 4 {
		synctest.Test(t, func(t *testing.T) {
			f := newFamily(t, gate.ConfirmNever, oneChild("echo"), func(_ *family, o *gate.Options) {
				o.Settings = map[string]gate.ToolSettings{"spawn": {Timeout: time.Second}}
			})
			j := &stuckJournal{Journal: f.journal, f: f, stuck: make(chan struct{}), after: after}
			f.drivenBy(t, nil, j)
			s, err := f.runner.Run(t.Context(), f.begin())
			close(j.stuck)
			if err := f.runner.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err != nil || s.Done == nil || s.Done.Content != "all done" || s.Trace[0].Result.Status != toolcrib.ResultTimeout {
				t.Fatalf("stuck after %d: %+v (%v)", after, s.Trace[0].Result, err)
			}
			end := s.Trace[0].ChildEnd
			if end == nil || end.Status != toolcrib.StatusCancelled {
				t.Fatalf("stuck after %d: the child's end is %+v", after, end)
			}
			for _, c := range f.children(t, s.Run) {
				if !c.Ended() || c.Spent() != end.Usage {
					t.Errorf("stuck after %d: the child is %s and has spent %+v; its parent was told %+v", after, c.Status, c.Spent(), end.Usage)
				}
			}
			f.replayed(t)
		})
	}
}

// A panic where a child run is driven ends the child: its parent continues without it.
func TestChild_DriverPanics(t *testing.T) {
	f := newFamily(t, gate.ConfirmNever, oneChild("echo"), with(func(f *family, o *agent.Options) {
		o.Watch = func(_ toolcrib.RunID, fr journal.Frame) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.asked["helper"] == 1 && fr.Event == string(journal.KindToolStarted) {
				f.asked["helper"]++
				panic("a watcher")
			}
		}
	}))
	s := f.start(t)
	c := f.children(t, s.Run)[0]
	if s.Done == nil || s.Trace[0].Result.Status != toolcrib.ResultError || s.Trace[0].Result.FaultRef == "" || !c.Ended() || s.Trace[0].ChildEnd == nil || s.Children.Usage != c.Spent() {
		t.Errorf("ended as %+v; the call %+v; the child is %s, its end %+v", s.Done, s.Trace[0].Result, c.Status, s.Trace[0].ChildEnd)
	}
}

// A child run that cannot be had, or read, leaves its parent as it is, to be taken up
// again; nothing is done twice.
func TestChild_ClaimAndLoadFail(t *testing.T) {
	var broken error
	claims, held := 0, 0
	f := newFamily(t, gate.ConfirmNever, oneChild("write"), with(func(_ *family, o *agent.Options) {
		o.Claim = func(context.Context, toolcrib.RunID) (func(), error) {
			claims++
			if broken != nil {
				return nil, broken
			}
			held++
			return func() { held-- }, nil
		}
	}))
	broken = errors.New("another process has it")
	s, err := f.runner.Run(t.Context(), f.begin())
	if !errors.Is(err, broken) || s.Ended() || claims != 1 {
		t.Fatalf("%v, %s", err, s.Status)
	}
	broken = nil
	bad := &badRead{Journal: f.journal, top: s.Run}
	f.drivenBy(t, nil, bad)
	bad.after = 0
	if _, err := f.runner.Resume(t.Context(), s.Run); !errors.Is(err, errBadRead) || held != 0 {
		t.Errorf("a read that fails: %v, held %d", err, held)
	}
	f.drivenBy(t, nil, f.journal)
	s = f.resume(t, s.Run)
	if s.Done == nil || s.Done.Content != "all done" || f.wrote() != 1 || len(f.children(t, s.Run)) != 1 || held != 0 {
		t.Errorf("%+v, wrote %d, held %d", s.Done, f.wrote(), held)
	}
}

// badRead fails when a run other than the one at the top is read, after so many events.
type badRead struct {
	*inmemory.Journal
	top   toolcrib.RunID
	after int
}

var errBadRead = errors.New("the disk is gone")

func (j *badRead) Read(ctx context.Context, run toolcrib.RunID, after toolcrib.Seq) iter.Seq2[toolcrib.Event, error] {
	if run == j.top {
		return j.Journal.Read(ctx, run, after)
	}
	return func(yield func(toolcrib.Event, error) bool) {
		n := 0
		for e, err := range j.Journal.Read(ctx, run, after) {
			if n == j.after {
				break
			}
			n++
			if !yield(e, err) {
				return
			}
		}
		yield(toolcrib.Event{}, errBadRead)
	}
}

// If a child's journal breaks off while it is read, the child is taken neither for one that has not
// begun, nor for one that has done less.
func TestChild_LoadFailsHalfWay(t *testing.T) {
	f := newFamily(t, gate.ConfirmWrites, oneChild("write"))
	s := f.start(t)
	child := f.children(t, s.Run)[0]
	f.decide(t, child.Run, journal.DecisionApprove)
	for n := range int(child.Seq) + 1 {
		f.drivenBy(t, nil, &badRead{Journal: f.journal, top: s.Run, after: n})
		for what, do := range map[string]func() error{
			"resume":    func() error { _, err := f.runner.Resume(t.Context(), s.Run); return err },
			"waits for": func() error { _, err := f.runner.WaitsFor(t.Context(), s.Run); return err },
		} {
			if err := do(); !errors.Is(err, errBadRead) {
				t.Errorf("%s after %d: %v", what, n, err)
			}
		}
	}
	f.drivenBy(t, nil, f.journal)
	if s = f.resume(t, s.Run); s.Done == nil || f.wrote() != 1 {
		t.Errorf("%+v, wrote %d", s.Done, f.wrote())
	}
}

// forged returns a run tree with a parent's journal that was tampered with.
func forged(t *testing.T, f *family, run toolcrib.RunID, change func(i int, e *toolcrib.Event) bool) *family {
	t.Helper()
	g := newFamily(t, gate.ConfirmWrites, f.replies)
	for _, r := range f.journal.Runs() {
		events := f.events(t, r)
		kept := make([]toolcrib.Event, 0, len(events))
		for i, e := range events {
			if r != run || change(i, &e) {
				kept = append(kept, e)
			}
		}
		if err := g.journal.Append(t.Context(), r, 0, kept...); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

// A parent whose journal names a run that is none of its children neither continues
// that run, nor shows what it waits for as its own, nor ends it, however it is asked.
func TestChild_NamesARunThatIsNotItsOwn(t *testing.T) {
	f := newFamily(t, gate.ConfirmWrites, oneChild("write"))
	other := f.start(t) // it waits, with a child of its own
	s := f.start(t)
	stranger := f.children(t, other.Run)[0].Run
	for name, named := range map[string]toolcrib.RunID{"another's child": stranger, "another run": other.Run, "itself": s.Run} {
		g := forged(t, f, s.Run, func(_ int, e *toolcrib.Event) bool {
			switch b := e.Body.(type) {
			case *journal.ChildStarted:
				e.Body = &journal.ChildStarted{ID: b.ID, Run: named, Agent: b.Agent}
			case *journal.ChildParked:
				e.Body = &journal.ChildParked{ID: b.ID, Run: named, Status: b.Status, Pending: b.Pending}
			}
			return true
		})
		before := map[toolcrib.RunID]int{}
		for _, r := range g.journal.Runs() {
			before[r] = len(g.events(t, r))
		}
		if _, err := g.runner.WaitsFor(t.Context(), s.Run); err == nil {
			t.Errorf("%s: shown as its own", name)
		}
		if _, err := g.runner.Resume(t.Context(), s.Run); err == nil {
			t.Errorf("%s: continued", name)
		}
		if _, err := g.runner.Cancel(t.Context(), s.Run, &agent.CancelError{By: "me"}); err == nil {
			t.Errorf("%s: cancelled", name)
		}
		for _, r := range g.journal.Runs() {
			if n := len(g.events(t, r)); r != s.Run && n != before[r] {
				t.Errorf("%s: run %s has %d events more", name, r, n-before[r])
			}
		}
	}
}

// Journals that name each other lead nowhere, and soon.
func TestChild_NamesInACircle(t *testing.T) {
	f := newFamily(t, gate.ConfirmWrites, replies{
		"boss":   {calls("spawn", spawn("helper"), "spawn", spawn("helper")), say("all done")},
		"helper": {calls("spawn", spawn("third"), "spawn", spawn("third")), say("helped")}, "third": {calls("write", `{}`), say("third")},
	})
	s := f.start(t)
	child := f.children(t, s.Run)[0]
	n := 0
	g := forged(t, f, child.Run, func(_ int, e *toolcrib.Event) bool {
		runs := []toolcrib.RunID{s.Run, child.Run}
		switch b := e.Body.(type) {
		case *journal.RunStarted:
			again := *b
			again.Parent = child.Run
			e.Body = &again
		case *journal.ChildStarted:
			e.Body = &journal.ChildStarted{ID: b.ID, Run: runs[n%2], Agent: b.Agent}
			n++
		case *journal.ChildParked:
			e.Body = &journal.ChildParked{ID: b.ID, Run: runs[n%2], Status: b.Status, Pending: b.Pending}
			n++
		}
		return true
	})
	for _, run := range []toolcrib.RunID{s.Run, child.Run} {
		if _, err := g.runner.Resume(t.Context(), run); err == nil {
			t.Errorf("run %s continues", run)
		}
	}
	if _, err := g.runner.Cancel(t.Context(), child.Run, &agent.CancelError{By: "me"}); err == nil {
		t.Error("a run whose journal nobody can follow was cancelled")
	}
	// What is below must not keep the run at the top from ending.
	if top, err := g.runner.Cancel(t.Context(), s.Run, &agent.CancelError{By: "me"}); err != nil || top.Status != toolcrib.StatusCancelled || top.Trace[0].ChildEnd.StopReason != toolcrib.StopWorkerLost {
		t.Errorf("the run at the top is %v (%v)", top.Status, err)
	}
}

// A journal from which events are missing is an error, never a panic: whichever one is
// left out, and wherever it ends.
func TestChild_EventsAreMissing(t *testing.T) {
	f := newFamily(t, gate.ConfirmWrites, replies{
		"boss":   {calls("spawn", spawn("helper"), "echo", `{}`, "spawn", spawn("third")), say("all done")},
		"helper": {calls("spawn", spawn("third")), say("helped")}, "third": {calls("write", `{}`), say("third")},
	})
	s := f.start(t)
	for _, run := range append([]toolcrib.RunID{s.Run}, f.children(t, s.Run)[0].Run) {
		all := len(f.events(t, run))
		for out := range all {
			for _, cut := range []bool{false, true} {
				g := forged(t, f, run, func(i int, e *toolcrib.Event) bool {
					if i > out && !cut {
						e.Seq--
					}
					return i != out && (i < out || !cut) && (i > 0 || out == 0 && cut || e.Seq > 0)
				})
				_, resumed := g.runner.Resume(t.Context(), s.Run)
				_, waits := g.runner.WaitsFor(t.Context(), s.Run)
				_, cancelled := g.runner.Cancel(t.Context(), s.Run, &agent.CancelError{By: "me"})
				if cut && out == 0 && run == s.Run && (resumed == nil || waits == nil || cancelled == nil) {
					t.Error("a run that is not there")
				}
			}
		}
	}
}

// A run that waits for a limit to be raised, and whose journal says that it waits for a
// run below, waits for itself.
func TestChild_WaitsForNoRunBelow(t *testing.T) {
	f := newFamily(t, gate.ConfirmWrites, replies{"boss": {calls("echo", `{}`), say("all done")}})
	s := f.start(t, limits(func(l *toolcrib.Limits) { l.OnLimit = toolcrib.OnLimitAsk }), func(k *agent.Task) { k.Agent.Budget.MaxRequests = 1 })
	if s.Status != toolcrib.StatusWaitingForInput || s.Turn != nil {
		t.Fatalf("it is %s, turn %+v", s.Status, s.Turn)
	}
	g := forged(t, f, s.Run, func(_ int, e *toolcrib.Event) bool {
		if b, ok := e.Body.(*journal.Paused); ok {
			again := *b
			again.Pending.Run = "run_below"
			e.Body = &again
		}
		return true
	})
	if waits, err := g.runner.WaitsFor(t.Context(), s.Run); err != nil || waits == nil || waits.Run != s.Run {
		t.Errorf("waits for %v (%v)", waits, err)
	}
	if _, err := g.runner.Cancel(t.Context(), s.Run, &agent.CancelError{By: "me"}); err != nil {
		t.Error(err)
	}
}

// However many calls a turn has, and whatever max_parallel says, 64 child runs at once
// are driven to their end.
func TestChild_ManyAtOnce(t *testing.T) {
	turn := make([]string, 0, 128)
	for i := range 64 {
		turn = append(turn, "spawn", strings.Replace(spawn("helper"), "do it", fmt.Sprint("task ", i), 1))
	}
	f := newFamily(t, gate.ConfirmNever, replies{"boss": {calls(turn...), say("all done")}, "helper": {calls("echo", `{}`, "echo", `{"n":1}`), say("helped")}})
	s := f.start(t, limits(func(l *toolcrib.Limits) { l.MaxParallel = 64 }))
	if s.Done == nil || s.Children.Requests != 128 || len(f.children(t, s.Run)) != 64 {
		t.Errorf("%+v, %+v", s.Done, s.Children)
	}
}

// A cancel that comes while the journals of runs below are read, before any of them continues
// or while a person is asked, ends the run as one at any other time does.
func TestChild_CancelledWhileItIsLookedAt(t *testing.T) {
	for nth := 1; ; nth++ {
		f := newFamily(t, gate.ConfirmWrites, replies{
			"boss":   {calls("spawn", spawn("helper"), "spawn", spawn("third")), say("all done")},
			"helper": {calls("write", `{}`), say("helped")}, "third": {calls("write", `{"n":1}`), say("third")},
		})
		s := f.start(t, func(k *agent.Task) { k.Approve = agent.ApproveAsk })
		f.decide(t, f.children(t, s.Run)[0].Run, journal.DecisionApprove)
		ctx, cancel := context.WithCancelCause(t.Context())
		j := &watchedRead{Journal: f.journal, f: f, left: nth, then: func() { cancel(&agent.CancelError{By: "me"}) }}
		f.options = func(o *agent.Options) {
			o.Approver = approverFunc(func(toolcrib.RunID) string { return journal.DecisionApprove })
		}
		f.drivenBy(t, nil, j)
		s, err := f.runner.Resume(ctx, s.Run)
		if err := f.runner.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		over := j.left > 0
		cancel(nil)
		began := s != nil && s.Epochs > 1 // before, nobody drove it
		switch {
		case over && (err != nil || s.Done == nil):
			t.Errorf("not cancelled: %v", err)
		case !over && began && (err != nil || !s.Ended()):
			t.Errorf("cancelled at read %d: %s (%v)", nth, s.Status, err)
		case !over && began && s.Status == toolcrib.StatusCancelled:
			for _, c := range f.children(t, s.Run) {
				if !c.Ended() {
					t.Errorf("cancelled at read %d: child %s is %s", nth, c.Run, c.Status)
				}
			}
		}
		f.replayed(t)
		if over {
			if nth < 6 {
				t.Errorf("only %d reads", nth)
			}
			return
		}
	}
}

// watchedRead does something just before its nth read.
type watchedRead struct {
	*inmemory.Journal
	f    *family
	left int
	then func()
}

func (j *watchedRead) Read(ctx context.Context, run toolcrib.RunID, after toolcrib.Seq) iter.Seq2[toolcrib.Event, error] {
	j.f.mu.Lock()
	j.left--
	now := j.left == 0
	j.f.mu.Unlock()
	if now {
		j.then()
	}
	return j.Journal.Read(ctx, run, after)
}

// Eight child runs at once, each with calls of its own, some of which wait for a person
// and are continued by another runner: no goroutine is left when the runner has been
// waited for.
func TestChild_EightAtOnceLeaveNothing(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	turn := make([]string, 0, 16)
	for i := range 8 {
		turn = append(turn, "spawn", strings.Replace(spawn([]string{"helper", "third"}[i%2]), "do it", fmt.Sprint("task ", i), 1))
	}
	f := newFamily(t, gate.ConfirmWrites, replies{
		"boss":   {calls(turn...), say("all done")},
		"helper": {calls("echo", `{}`, "wait", `{}`, "echo", `{"n":1}`), calls("spawn", spawn("third")), say("helped")},
		"third":  {calls("write", `{}`, "echo", `{}`), say("third")},
	})
	s := f.start(t, limits(func(l *toolcrib.Limits) { l.MaxParallel = 8 }))
	for _, run := range f.journal.Runs() {
		if c, err := f.runner.Load(t.Context(), run); err == nil && c.Approval != nil {
			f.decide(t, run, journal.DecisionApprove)
		}
	}
	f.drivenBy(t, nil, f.journal)
	s = f.resume(t, s.Run)
	if err := f.runner.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.Done == nil || s.Done.Content != "all done" || f.wrote() != 8 || len(f.journal.Runs()) != 13 {
		t.Errorf("ended as %+v, wrote %d, %d runs", s.Done, f.wrote(), len(f.journal.Runs()))
	}
}

// jumpy is a clock that somebody sets forth and back.
type jumpy struct{ by time.Duration }

func (j *jumpy) Now() time.Time { return time.Now().Add(j.by) }

func (j *jumpy) Awake() time.Duration { return time.Duration(time.Now().UnixNano()) }

func (j *jumpy) Sleep(ctx context.Context, d time.Duration) error { return nil }

// A clock that is set back gives no run more time than it takes, and ends none; nor does
// one that is set forth, or a machine that sleeps.
func TestChild_ClockIsSet(t *testing.T) {
	for by, reason := range map[time.Duration]toolcrib.StopReason{-24 * time.Hour: toolcrib.StopCompleted, 24 * time.Hour: toolcrib.StopCompleted} {
		clock := &jumpy{}
		f := newFamily(t, gate.ConfirmNever, oneChild("echo"), with(func(_ *family, o *agent.Options) { o.Clock = clock }))
		asked := f.reply
		f.reply = func(ctx context.Context, n int, req *toolcrib.Request) ([]toolcrib.Delta, error) {
			if n == 1 {
				clock.by = by
			}
			return asked(ctx, n, req)
		}
		s := f.start(t)
		c := f.children(t, s.Run)[0]
		if s.Done == nil || s.Done.StopReason != reason || c.Done == nil || c.Done.StopReason != reason || s.Children.Usage != c.Spent() {
			t.Errorf("set by %s: %+v, the child %+v", by, s.Done, c.Done)
		}
	}
}

// The time that a person takes to answer a run does not count as wall time of the runs above it, even
// if those were resumed meanwhile.
func TestChild_APersonsTimeIsNoWallTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFamily(t, gate.ConfirmWrites, replies{
			"boss":   {calls("spawn", spawn("helper"), "spawn", spawn("third")), say("all done")},
			"helper": {calls("write", `{}`), say("helped")}, "third": {calls("write", `{"n":1}`), say("third")},
		})
		s := f.start(t, func(k *agent.Task) { k.Approve = agent.ApproveAsk }) // nobody sits there
		helper := f.children(t, s.Run)[0]
		f.decide(t, helper.Run, journal.DecisionApprove)
		f.options = func(o *agent.Options) {
			o.Approver = approverFunc(func(toolcrib.RunID) string {
				time.Sleep(24 * time.Hour)
				return journal.DecisionApprove
			})
		}
		f.drivenBy(t, nil, f.journal)
		if s = f.resume(t, s.Run); s.Done == nil || s.Done.Content != "all done" || s.Driven > time.Minute || f.wrote() != 2 {
			t.Errorf("ended as %+v after %s, wrote %d", s.Done, s.Driven, f.wrote())
		}
	})
}

// Somebody else decides while a person is asked: that counts, and the run continues.
func TestChild_DecidedElsewhereMeanwhile(t *testing.T) {
	f := newFamily(t, gate.ConfirmWrites, oneChild("write"))
	f.options = func(o *agent.Options) {
		o.Approver = approverFunc(func(run toolcrib.RunID) string {
			f.decide(t, run, journal.DecisionDeny)
			return journal.DecisionApprove
		})
	}
	f.drivenBy(t, nil, f.journal)
	s := f.start(t, func(k *agent.Task) { k.Approve = agent.ApproveAsk })
	if c := f.children(t, s.Run)[0]; s.Done == nil || s.Done.Content != "all done" || f.wrote() != 0 || c.Trace[0].Result.Reason != toolcrib.ReasonApprovalDenied {
		t.Errorf("ended as %+v, wrote %d, the call %+v", s.Done, f.wrote(), c.Trace[0].Result)
	}
}

// Under the calling run's cost cap a model without a price is not used, neither first nor as a
// fallback.
func TestChild_NoWayAroundTheCapOfCost(t *testing.T) {
	for name, first := range map[string]bool{"first": true, "as a fallback": false} {
		f := newFamily(t, gate.ConfirmNever, oneChild("echo"))
		f.options = func(o *agent.Options) {
			o.Agents = func(ctx context.Context, who toolcrib.Principal, name, at string) (agent.Task, error) {
				k, err := f.agent(ctx, who, name, at)
				free := journal.ModelInfo{Ref: "fake/free", Provider: "fake", ID: "free"}
				if k.Models = append(k.Models, free); first {
					k.Models = []journal.ModelInfo{free}
				}
				return k, err
			}
		}
		f.drivenBy(t, nil, f.journal)
		asked := f.reply
		f.reply = func(ctx context.Context, n int, req *toolcrib.Request) ([]toolcrib.Delta, error) {
			if req.Model == "helper" {
				return nil, &toolcrib.ModelError{Class: toolcrib.ErrAuth, Message: "no", Status: 401}
			}
			return asked(ctx, n, req)
		}
		s := f.start(t, func(k *agent.Task) { k.Agent.Budget.MaxCostUSD = 1 })
		if r := s.Trace[0].Result; s.Done == nil || r.Status != toolcrib.ResultError || f.asked["free"] != 0 {
			t.Errorf("%s: %+v, asked %v", name, r, f.asked)
		}
	}
}

// A child that continues after a crash is refused meanwhile: it is ended, not left behind.
func TestChild_RefusedWhenItGoesOn(t *testing.T) {
	f := newFamily(t, gate.ConfirmWrites, oneChild("write"))
	s := f.start(t)
	f.decide(t, f.children(t, s.Run)[0].Run, journal.DecisionApprove)
	g, err := gate.New(gate.Options{Tools: f.all[:len(f.all)-1], Availability: noOverrides{}, Confirm: gate.ConfirmWrites})
	if err != nil {
		t.Fatal(err)
	}
	f.drivenBy(t, g, f.journal)
	s = f.resume(t, s.Run)
	c := f.children(t, s.Run)[0]
	if s.Done == nil || s.Trace[0].Result.Reason != toolcrib.ReasonNotRegistered || c.Status != toolcrib.StatusCancelled || f.wrote() != 0 || s.Children.Usage != c.Spent() {
		t.Errorf("%+v, the child is %s, wrote %d, children %+v", s.Trace[0].Result, c.Status, f.wrote(), s.Children)
	}
}

// A process that is lost while it cancels a run that waits leaves one that waits, or one
// that is over: it never looks as if somebody drove it.
func TestResume_CutWhileItIsCancelled(t *testing.T) {
	for n := 1; ; n++ {
		f := newFamily(t, gate.ConfirmWrites, oneChild("write"))
		s := f.start(t)
		j := &cutJournal{Journal: f.journal, left: n - 1, f: f}
		f.drivenBy(t, nil, j)
		if _, err := f.runner.Cancel(t.Context(), s.Run, &agent.CancelError{By: "me"}); err != nil && !errors.Is(err, errCut) {
			t.Fatal(err)
		}
		f.drivenBy(t, nil, f.journal)
		for _, c := range append(f.children(t, s.Run), s) {
			c, lost := f.runner.Load(t.Context(), c.Run)
			if lost != nil {
				t.Fatal(lost)
			}
			if c.Status == toolcrib.StatusRunning && c.Stopping == nil {
				t.Errorf("cut after %d: run %s is %s", n, c.Run, c.Status)
			}
		}
		s, err := f.runner.Load(t.Context(), s.Run)
		if err != nil {
			t.Fatal(err)
		}
		if !s.Ended() {
			if s, err = f.runner.Cancel(t.Context(), s.Run, &agent.CancelError{By: "me"}); err != nil {
				t.Fatal(err)
			}
		}
		f.cancelled(t, s)
		f.replayed(t)
		if n > 1 && j.left >= 0 {
			return
		}
	}
}
