package worker_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/process"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
	"github.com/toolcrib/toolcrib/toolcribtest/journaltest"
)

// processOn opens a data folder like a process of the command line.
func processOn(t *testing.T, dir string, lease time.Duration) *service.Service {
	t.Helper()
	s := service.New(env.Options{DataDir: dir, Driver: "cli", Lease: lease})
	if err := s.Env.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// takes has a process take a run until leave is called.
func takes(t *testing.T, s *service.Service, run toolcrib.RunID, stop func(error)) (leave func()) {
	t.Helper()
	leave, err := s.Drivers.Take(t.Context(), run, stop)
	if err != nil {
		t.Fatal(err)
	}
	return leave
}

// busy expects that a process cannot take a run.
func busy(t *testing.T, s *service.Service, run toolcrib.RunID) {
	t.Helper()
	if _, err := s.Drivers.Take(t.Context(), run, nil); !errors.Is(err, store.ErrLeased) {
		t.Errorf("%s could be taken: %v", run, err)
	}
}

// One process drives a run. Lists show a running one that no process drives as interrupted.
func TestDrivers_OneProcess(t *testing.T) {
	dir := t.TempDir()
	ours, theirs := processOn(t, dir, time.Hour), processOn(t, dir, time.Hour)
	start := &journal.RunStarted{
		Agent: toolcrib.Agent{Name: "default"}, Principal: ann, Driver: "cli",
		Input: []toolcrib.Message{toolcrib.TextMessage(toolcrib.RoleUser, "hello")},
	}
	leave := ours.Drivers.Begin("run_A", nil)
	events := journaltest.Events(start, &journal.TakenUp{Worker: "w", Epoch: 1})
	if err := ours.Env.Store.Append(t.Context(), "run_A", 0, events...); err != nil {
		t.Fatal(err)
	}
	ours.Drivers.Wrote("run_A", events)
	interrupted := func(s *service.Service) bool {
		t.Helper()
		runs, _, err := s.Runs(t.Context(), ann, service.RunsQuery{})
		if err != nil || len(runs) != 1 {
			t.Fatalf("%+v, %v", runs, err)
		}
		one, err := s.FindRun(t.Context(), ann, "run_A")
		if err != nil || one.Interrupted != runs[0].Interrupted || one.Driven == one.Interrupted {
			t.Errorf("%+v, %+v, %v", one, runs[0], err)
		}
		return one.Interrupted
	}
	name := fmt.Sprint("process ", os.Getpid())
	for _, s := range []*service.Service{ours, theirs} {
		if by := s.Drivers.Processes(t.Context(), "run_A", "run_B"); by["run_A"] != name || len(by) != 1 {
			t.Errorf("driven by %v", by)
		}
		if interrupted(s) {
			t.Error("a run that is driven is interrupted")
		}
	}
	busy(t, theirs, "run_A")
	again := takes(t, ours, "run_A", nil)
	leave()
	leave()
	busy(t, theirs, "run_A") // it is still claimed
	again()
	if !interrupted(ours) || !interrupted(theirs) {
		t.Error("a run that no process drives is not interrupted")
	}
	leave = takes(t, theirs, "run_A", nil)
	again() // which had ended
	busy(t, ours, "run_A")
	leave()
	takes(t, theirs, "run_A", nil)
	if err := theirs.Drivers.Close(); err != nil {
		t.Error(err)
	}
	takes(t, ours, "run_A", nil)
}

// A process drives its run until it is asked to cancel it, or until another process has taken it.
func TestDrivers_Stopped(t *testing.T) {
	dir := t.TempDir()
	ours, theirs := processOn(t, dir, 100*time.Millisecond), processOn(t, dir, time.Hour)
	cut := &cutOff{Store: ours.Env.Store}
	ours.Env.Store = cut
	stopping := func() (stopped chan error, stop func(error)) { // it may be called several times
		stopped = make(chan error, 1)
		return stopped, func(err error) {
			select {
			case stopped <- err:
			default:
			}
		}
	}
	stopped, stop := stopping()
	leave := takes(t, ours, "run_A", stop)
	if err := theirs.Env.Store.RequestCancel(t.Context(), "run_A", "ann\x1b[1m", "tok_1"); err != nil {
		t.Fatal(err)
	}
	var by *agent.CancelError
	if err := <-stopped; !errors.As(err, &by) || by.Token != "tok_1" || by.By == "" || by.By == "ann\x1b[1m" {
		t.Errorf("stopped by %v", err)
	}
	leave()

	stopped, stop = stopping()
	leave = takes(t, ours, "run_B", stop)
	was := cut.renewed.Load()
	waittest.Until(t, "the lease is renewed", func() bool { return cut.renewed.Load() > was+3 })
	busy(t, theirs, "run_B")
	cut.cut.Store(true)
	var taken func()
	waittest.Until(t, "another process takes the run", func() bool {
		leave, err := theirs.Drivers.Take(t.Context(), "run_B", nil)
		taken = leave
		return err == nil
	})
	if err := <-stopped; !errors.Is(err, toolcrib.ErrConflict) {
		t.Errorf("stopped by %v", err)
	}
	leave()
	cut.cut.Store(false)
	busy(t, ours, "run_B")
	taken()
	takes(t, ours, "run_B", nil)()
}

// A process that was suspended keeps its runs, except those that others have taken meanwhile.
func TestDrivers_Suspended(t *testing.T) {
	dir := t.TempDir()
	ours, theirs := processOn(t, dir, 200*time.Millisecond), processOn(t, dir, time.Hour)
	cut := &cutOff{Store: ours.Env.Store}
	ours.Env.Store = cut
	cut.wait = make(chan struct{})
	lost := make(chan error, 1)
	takes(t, ours, "run_kept", func(err error) { t.Errorf("stopped by %v", err) })
	takes(t, ours, "run_lost", func(err error) { lost <- err })
	waittest.Until(t, "another process takes a run", func() bool {
		_, err := theirs.Drivers.Take(t.Context(), "run_lost", nil)
		return err == nil
	})
	close(cut.wait)
	if err := <-lost; !errors.Is(err, toolcrib.ErrConflict) {
		t.Errorf("stopped by %v", err)
	}
	busy(t, theirs, "run_kept")
	busy(t, ours, "run_lost")
}

// hangs is a store that gives no answer to questions about leases while it hangs.
type hangs struct {
	store.Store
	mu      sync.Mutex
	answer  chan struct{} // closed when it answers again; nil if it does not hang
	fail    bool          // the first renewal after that fails, and the second one is not answered
	renewed atomic.Int32
}

func (s *hangs) hang(answer chan struct{}, fail bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer, s.fail = answer, fail
}

// waits waits until the store answers, and returns fail as it was before.
func (s *hangs) waits(ctx context.Context) (fail bool) {
	s.mu.Lock()
	answer, fail := s.answer, s.fail
	s.mu.Unlock()
	if answer != nil {
		select {
		case <-answer:
		case <-ctx.Done():
		}
	}
	return fail
}

func (s *hangs) RenewLeases(ctx context.Context) ([]store.Lease, error) {
	if s.waits(ctx) {
		s.hang(make(chan struct{}), false)
		return nil, &store.Error{Kind: store.ErrUnavailable}
	}
	s.renewed.Add(1)
	return s.Store.RenewLeases(ctx)
}

func (s *hangs) Leases(ctx context.Context, f store.LeaseFilter) ([]store.Lease, error) {
	if f.Cancel {
		s.waits(ctx)
	}
	return s.Store.Leases(ctx, f)
}

// hangingOn opens a data folder in a process whose store can hang, as a server of a database can if remote is set.
func hangingOn(t *testing.T, dir string, lease time.Duration, remote bool) (*service.Service, *hangs) {
	t.Helper()
	s := processOn(t, dir, lease)
	db := &hangs{Store: s.Env.Store}
	s.Env.Store = db
	if remote {
		c, err := config.Parse("toolcrib.yaml", []byte("database: postgres://db.example/crib\n"))
		if err != nil {
			t.Fatal(err)
		}
		s.Env.Config = c
	}
	return s, db
}

// A process stops its work on a run when the server of its database has given no answer for the time of its lease, because
// other processes may reach it: also on one that it has claimed since the last renewal. An answer that comes in time
// changes nothing.
func TestDrivers_DatabaseHangs(t *testing.T) {
	const lease = time.Second
	ours, db := hangingOn(t, t.TempDir(), lease, true)
	var began [2]time.Time
	lost := make(chan int, 4)
	stops := func(i int) func(error) {
		return func(err error) {
			if !errors.Is(err, toolcrib.ErrConflict) || time.Since(began[i]) < lease*9/10 {
				t.Errorf("stopped by %v after %v", err, time.Since(began[i]))
			}
			lost <- i
		}
	}
	began[0] = time.Now()
	takes(t, ours, "run_A", stops(0))
	answer := make(chan struct{})
	db.hang(answer, false)
	began[1] = time.Now()
	takes(t, ours, "run_B", stops(1))
	if i, j := <-lost, <-lost; i == j {
		t.Errorf("run %d was stopped twice", i)
	}
	db.hang(nil, false)
	close(answer)
	takes(t, ours, "run_A", func(err error) { t.Errorf("stopped by %v", err) })
	was := db.renewed.Load()
	waittest.Until(t, "the lease is renewed", func() bool { return db.renewed.Load() > was+3 })
}

// While the database gives no answer for longer than the lease of a run, other processes see that the server is there:
// its own lease lasts longer, and is not given up with those of its runs.
func TestDrivers_ServerStays(t *testing.T) {
	dir := t.TempDir()
	ours, db := hangingOn(t, dir, 300*time.Millisecond, true)
	theirs := processOn(t, dir, time.Hour)
	server := toolcrib.RunID("server " + ours.Env.Owner().ID)
	takes(t, ours, server, func(err error) { t.Errorf("the lease of the server was given up: %v", err) })
	if err := ours.Env.Store.Describe(t.Context(), server, `{"name":"ours"}`); err != nil {
		t.Fatal(err)
	}
	lost := make(chan error, 1)
	takes(t, ours, "run_A", func(err error) { lost <- err })
	answer := make(chan struct{})
	db.hang(answer, false)
	if err := <-lost; !errors.Is(err, toolcrib.ErrConflict) {
		t.Errorf("stopped by %v", err)
	}
	db.hang(nil, false)
	close(answer)
	takes(t, ours, "run_B", nil)
	was := db.renewed.Load()
	waittest.Until(t, "the leases are renewed", func() bool { return db.renewed.Load() > was+2 })
	if all, err := theirs.Drivers.Servers(t.Context()); err != nil || len(all) != 1 || all[0].Name != "ours" {
		t.Errorf("the servers are %+v, error %v", all, err)
	}
}

// A file has no server that other processes could reach instead: what the process still has when it can be read again, it
// keeps. If it cannot be read then, the work stops with the first error.
func TestDrivers_FileHangs(t *testing.T) {
	const lease = 300 * time.Millisecond
	for _, fail := range []bool{false, true} {
		ours, db := hangingOn(t, t.TempDir(), lease, false)
		lost := make(chan error, 1)
		takes(t, ours, "run_A", func(err error) { lost <- err })
		answer, start := make(chan struct{}), time.Now()
		db.hang(answer, fail)
		waittest.Until(t, "the time of the lease passes", func() bool { return time.Since(start) > 2*lease })
		close(answer)
		if fail {
			if err := <-lost; !errors.Is(err, toolcrib.ErrConflict) {
				t.Errorf("stopped by %v", err)
			}
			continue
		}
		was := db.renewed.Load()
		waittest.Until(t, "the lease is renewed", func() bool { return db.renewed.Load() > was+3 })
		if len(lost) > 0 {
			t.Errorf("stopped by %v", <-lost)
		}
	}
}

// longLeases is a store whose leases of others were to last for an hour. change has a lease change hands unseen.
type longLeases struct {
	store.Store
	mu sync.Mutex
}

func (s *longLeases) Leases(ctx context.Context, f store.LeaseFilter) ([]store.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, err := s.Store.Leases(ctx, f)
	for i := range all {
		all[i].Owner.Lease = time.Hour
	}
	return all, err
}

func (s *longLeases) change(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

// The lease of another process that has passed, and was to last for long, as that of a server is, holds up a process
// only for a part of its own.
func TestDrivers_LongLease(t *testing.T) {
	dir := t.TempDir()
	ours, theirs := processOn(t, dir, 300*time.Millisecond), processOn(t, dir, time.Hour)
	if _, err := theirs.Env.Store.TakeLease(t.Context(), "run_x", time.Millisecond, false); err != nil {
		t.Fatal(err)
	}
	ours.Env.Store = &longLeases{Store: ours.Env.Store}
	waittest.Until(t, "the lease passes", func() bool { return !ours.Drivers.Driven(t.Context(), "run_x") })
	taken := make(chan error, 1)
	go func() {
		_, err := ours.Drivers.Take(context.WithoutCancel(t.Context()), "run_x", nil)
		taken <- err
	}()
	select {
	case err := <-taken:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("the process waits for as long as the lease was to last")
	}
}

// A request to cancel a run reaches the process that drives it, also if that has changed since.
func TestDrivers_CancelledAfterTakeover(t *testing.T) {
	dir := t.TempDir()
	asks, first, second := processOn(t, dir, time.Hour), processOn(t, dir, time.Hour), processOn(t, dir, time.Hour)
	start := &journal.RunStarted{Agent: toolcrib.Agent{Name: "default"}, Principal: ann, Driver: "cli"}
	if err := first.Env.Store.Append(t.Context(), "run_A", 0, journaltest.Events(start)...); err != nil {
		t.Fatal(err)
	}
	leases := &longLeases{Store: asks.Env.Store}
	asks.Env.Store = leases
	cancelled := make(chan error, 1)
	go func() {
		run, err := asks.Cancel(context.WithoutCancel(t.Context()), ann, "run_A")
		if err == nil && run.Status != toolcrib.StatusCompleted {
			err = fmt.Errorf("the run is %s", run.Status)
		}
		cancelled <- err
	}()
	asked := func(s *service.Service) func() bool {
		return func() bool {
			all, err := s.Env.Store.Leases(t.Context(), store.LeaseFilter{Cancel: true})
			return err == nil && len(all) == 1 && all[0].CancelBy == "ann"
		}
	}
	waittest.Until(t, "the first process is asked", asked(first))
	leases.change(func() {
		if err := first.Env.Store.EndLeases(t.Context(), first.Env.Owner().ID); err != nil {
			t.Error(err)
		}
		if _, err := second.Env.Store.TakeLease(t.Context(), "run_A", time.Hour, false); err != nil {
			t.Error(err)
		}
	})
	waittest.Until(t, "the second process is asked", asked(second))
	end := &journal.Done{Status: toolcrib.StatusCompleted, StopReason: toolcrib.StopCompleted}
	if err := second.Env.Store.Append(t.Context(), "run_A", 1, journaltest.Events(end)...); err != nil {
		t.Fatal(err)
	}
	if err := <-cancelled; err != nil {
		t.Error(err)
	}
}

// A process that has died on this machine keeps no run, also if another one got its number. One on another machine keeps
// its runs until their time has passed.
func TestDrivers_OfTheDead(t *testing.T) {
	self := process.Self()
	if self.Machine == "" {
		t.Skip("processes are not looked at here")
	}
	dead := exec.Command(os.Args[0], "-test.run=^$")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	ours := processOn(t, dir, time.Hour)
	for name, test := range map[string]struct {
		owner store.Owner
		by    string // name of the process, or "" if it has died
	}{
		"dead":    {owner: store.Owner{Machine: self.Machine, PID: dead.Process.Pid}},
		"reused":  {owner: store.Owner{Machine: self.Machine, PID: self.PID, Started: self.Started - 1}},
		"alive":   {store.Owner{Machine: self.Machine, PID: self.PID, Started: self.Started}, fmt.Sprint("process ", self.PID)},
		"remote":  {store.Owner{Host: "far\x1b", Machine: "another", PID: dead.Process.Pid}, fmt.Sprintf("process %d on far[U+001B]", dead.Process.Pid)},
		"unknown": {store.Owner{Host: "far", PID: dead.Process.Pid}, fmt.Sprintf("process %d on far", dead.Process.Pid)},
	} {
		t.Run(name, func(t *testing.T) {
			run := toolcrib.RunID("run_" + name)
			test.owner.ID = rand.Text()
			theirs, err := sqlite.Open(t.Context(), filepath.Join(dir, env.DatabaseName), sqlite.Options{Owner: test.owner})
			if err != nil {
				t.Fatal(err)
			}
			defer theirs.Close()
			if _, err := theirs.TakeLease(t.Context(), run, time.Hour, false); err != nil {
				t.Fatal(err)
			}
			if by := ours.Drivers.Processes(t.Context(), run)[run]; by != test.by {
				t.Errorf("driven by %q, want %q", by, test.by)
			}
			if test.by != "" {
				busy(t, ours, run)
				return
			}
			takes(t, ours, run, nil)()
		})
	}
}

// The run of a server that has died is continued by the next look of another server, long before its lease has ended.
func TestPool_OfTheDead(t *testing.T) {
	if process.Self().Machine == "" {
		t.Skip("processes are not looked at here")
	}
	h := newHouse(t, "")
	h.s, h.pool = h.open(time.Hour, nil)
	h.write("slow.script", "- {text: never, delay: 10m}\n")
	d := h.start("slow")
	owner := *h.s.Env.Owner()
	owner.Started-- // as if that process had died
	if err := h.s.Env.Store.EndLeases(context.Background(), owner.ID); err != nil {
		t.Fatal(err)
	}
	owner.ID = rand.Text()
	theirs, err := sqlite.Open(t.Context(), h.s.Env.Store.Path(), sqlite.Options{Owner: owner})
	if err == nil {
		_, err = theirs.TakeLease(t.Context(), d.ID(), time.Hour, false)
	}
	if err = cmp.Or(err, theirs.Close()); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	_, other := h.open(time.Hour, nil)
	waittest.Until(t, "another process continues the run", func() bool { return h.takenUp(d.ID()) > 1 })
	t.Logf("continued after %v", time.Since(start))
	if run, err := other.Cancel(t.Context(), ann, string(d.ID())); err != nil || run.Status != toolcrib.StatusCancelled {
		t.Errorf("%+v, %v", run, err)
	}
}

// A process whose lease has passed keeps its run if it renews it in the moment that it gets: it may not have been able to
// write, like all others.
func TestDrivers_Passed(t *testing.T) {
	dir := t.TempDir()
	ours, theirs := processOn(t, dir, time.Hour), processOn(t, dir, time.Hour)
	if _, err := theirs.Env.Store.TakeLease(t.Context(), "run_A", 6*time.Second, false); err != nil {
		t.Fatal(err)
	}
	passed := &hasPassed{Store: ours.Env.Store, renew: theirs.Env.Store}
	ours.Env.Store = passed
	busy(t, ours, "run_A")
	if !passed.written {
		t.Error("the store may not be writable")
	}
}

// hasPassed is a store whose leases have passed until it is seen that it can be written.
type hasPassed struct {
	store.Store
	renew   store.Store
	written bool
}

func (s *hasPassed) Leases(ctx context.Context, f store.LeaseFilter) ([]store.Lease, error) {
	all, err := s.Store.Leases(ctx, f)
	for i := range all {
		if !s.written {
			all[i].Left, all[i].Expired = 0, true
		}
	}
	return all, err
}

func (s *hasPassed) Writable(ctx context.Context) error {
	s.written = true
	_, err := s.renew.RenewLeases(ctx)
	return errors.Join(err, s.Store.Writable(ctx))
}

// An idle server does not write to the database each second, and looks at few rows.
func TestPool_Idle(t *testing.T) {
	h := newHouse(t, "")
	var db *cutOff
	h.wrap = func(s store.Store) store.Store {
		db = &cutOff{Store: s}
		return db
	}
	h.s, h.pool = h.open(0, nil)
	other := processOn(t, filepath.Join(h.dir, "data"), 0)
	waittest.Until(t, "a server shows that it is there", func() bool { return other.Server(t.Context()) != "" })
	looks := func(times int32) {
		was := db.swept.Load()
		waittest.Until(t, "the server looks for runs", func() bool { return db.swept.Load() >= was+times })
	}
	looks(1)
	before := db.Store.(*sqlite.Store).Stats().Commits
	looks(3)
	if n := db.Store.(*sqlite.Store).Stats().Commits - before; n > 0 {
		t.Errorf("%d transactions", n)
	}
	if n := other.Server(t.Context()); n != fmt.Sprint("process ", os.Getpid()) {
		t.Errorf("the server is %q", n)
	}
}
