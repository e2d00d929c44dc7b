package storetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/toolcribtest/journaltest"
)

const long = time.Hour

// take takes a lease that must be free.
func take(t *testing.T, s store.Store, run toolcrib.RunID, lasts time.Duration) store.Lease {
	t.Helper()
	l, err := s.TakeLease(t.Context(), run, lasts, false)
	if err != nil || l.Run != run || l.Owner.ID == "" {
		t.Fatalf("%s was not taken: %+v, %v", run, l, err)
	}
	return l
}

// leased tries to take a lease that another owner has.
func leased(t *testing.T, s store.Store, of store.Lease) {
	t.Helper()
	l, err := s.TakeLease(t.Context(), of.Run, long, false)
	left := l.Left
	if l.Left = of.Left; !errors.Is(err, store.ErrLeased) || left <= 0 || l != of {
		t.Fatalf("%s: %+v, %v, want %+v", of.Run, l, err, of)
	}
}

// leasesOf returns the runs of the leases that match, sorted.
func leasesOf(t *testing.T, s store.Store, f store.LeaseFilter) (runs []toolcrib.RunID) {
	t.Helper()
	all, err := s.Leases(t.Context(), f)
	must(t, err)
	for _, l := range all {
		if l.Expired {
			t.Errorf("the lease of %s has expired", l.Run)
		}
		runs = append(runs, l.Run)
	}
	slices.Sort(runs)
	return runs
}

func expect[T comparable](t *testing.T, what string, got []T, want ...T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// leases takes, renews and releases leases in two processes.
func leases(t *testing.T, open func() store.Store) {
	ours, theirs := open(), open()
	a := take(t, ours, "run_a", long)
	b := take(t, theirs, "run_b", long)
	leased(t, theirs, a)
	leased(t, ours, b)
	if all, err := ours.RenewLeases(t.Context()); err != nil || len(all) != 1 || all[0].Run != "run_a" || all[0].Epoch != a.Epoch {
		t.Errorf("renewed: %+v, %v", all, err)
	}
	expect(t, "all", leasesOf(t, ours, store.LeaseFilter{}), "run_a", "run_b")
	expect(t, "of runs", leasesOf(t, ours, store.LeaseFilter{Runs: []toolcrib.RunID{"run_b", "run_c"}}), "run_b")
	expect(t, "of the others here", leasesOf(t, ours, store.LeaseFilter{Machine: a.Owner.Machine}), "run_b")
	expect(t, "of another machine", leasesOf(t, ours, store.LeaseFilter{Machine: "none"}))
	many := []toolcrib.RunID{"run_a"}
	for i := range 700 {
		many = append(many, toolcrib.RunID(fmt.Sprint("run_", i)))
	}
	expect(t, "of many runs", leasesOf(t, ours, store.LeaseFilter{Runs: append(many, "run_b")}), "run_a", "run_b")

	again := take(t, ours, "run_a", long)
	if again.Epoch == a.Epoch {
		t.Error("it was taken twice with one epoch")
	}
	must(t, ours.ReleaseLease(t.Context(), a)) // the earlier one
	must(t, theirs.ReleaseLease(t.Context(), again))
	leased(t, theirs, again)

	must(t, theirs.RequestCancel(t.Context(), "run_a", "ann", "tok_1"))
	expect(t, "to be cancelled there", leasesOf(t, theirs, store.LeaseFilter{Cancel: true}))
	all, err := ours.Leases(t.Context(), store.LeaseFilter{Cancel: true})
	if err != nil || len(all) != 1 || all[0].CancelBy != "ann" || all[0].CancelToken != "tok_1" {
		t.Errorf("to be cancelled: %+v, %v", all, err)
	}
	must(t, theirs.RequestCancel(t.Context(), "run_a", "", ""))
	expect(t, "withdrawn", leasesOf(t, ours, store.LeaseFilter{Cancel: true}))
	must(t, theirs.RequestCancel(t.Context(), "run_a", "ann", "tok_1"))

	must(t, ours.ReleaseLease(t.Context(), again))
	if taken := take(t, theirs, "run_a", long); taken.CancelBy != "" || taken.Epoch == again.Epoch || taken.Owner.ID == a.Owner.ID {
		t.Errorf("it was taken as %+v after %+v", taken, again)
	}
	expect(t, "a request for a lease that has ended", leasesOf(t, theirs, store.LeaseFilter{Cancel: true}))
	must(t, ours.EndLeases(t.Context(), b.Owner.ID)) // as of a process that has died
	expect(t, "ended", leasesOf(t, ours, store.LeaseFilter{}))
	take(t, ours, "run_b", long)
}

// leaseExpires has the time of leases pass. Any process can take them then, also their owner.
func leaseExpires(t *testing.T, open func() store.Store) {
	const short = 20 * time.Millisecond
	ours, theirs := open(), open()
	passes := func(run toolcrib.RunID) {
		waittest.Until(t, "the time of the lease passes", func() bool {
			all, err := theirs.Leases(t.Context(), store.LeaseFilter{Runs: []toolcrib.RunID{run}})
			return err == nil && len(all) == 1 && all[0].Expired
		})
	}
	kept := take(t, ours, "run_kept", short)
	passes(kept.Run)
	if all, err := ours.RenewLeases(t.Context()); err != nil || len(all) != 1 || all[0].Epoch != kept.Epoch {
		t.Errorf("a late renewal of a lease that no process has taken: %+v, %v", all, err)
	}
	lost := take(t, ours, "run_lost", short)
	must(t, theirs.RequestCancel(t.Context(), lost.Run, "ann", ""))
	passes(lost.Run)
	taken := take(t, theirs, lost.Run, long)
	if taken.Epoch <= lost.Epoch {
		t.Errorf("epoch %d after %d", taken.Epoch, lost.Epoch)
	}
	all, err := ours.RenewLeases(t.Context())
	if err != nil || len(all) != 1 || all[0].Run != kept.Run {
		t.Errorf("renewed after one was taken: %+v, %v", all, err)
	}
	must(t, ours.ReleaseLease(t.Context(), lost))
	leased(t, ours, taken)
}

// leaseSites looks for runs by their sites, and has an owner describe itself.
func leaseSites(t *testing.T, open func() store.Store) {
	ours, theirs := open(), open()
	for run, site := range map[toolcrib.RunID]string{"run_a": "site_a", "run_b": "site_b", "run_c": ""} {
		start := begun("ann", "")
		start.Driver, start.Site = "server", site
		add(t, ours, run, 0, start)
		rec, err := theirs.Run(t.Context(), run)
		if err != nil || rec.Site != site {
			t.Errorf("%s is at %q, %v", run, rec.Site, err)
		}
	}
	sites, err := theirs.OpenSites(t.Context(), "server")
	if want := map[string]int64{"site_a": 1, "site_b": 1, "": 1}; err != nil || !maps.Equal(sites, want) {
		t.Errorf("open by site: %v, %v", sites, err)
	}
	page, err := theirs.Runs(t.Context(), store.Filter{Site: "site_a"})
	must(t, err)
	var found []toolcrib.RunID
	for _, rec := range page.Runs {
		found = append(found, rec.ID)
	}
	slices.Sort(found)
	expect(t, "of a site", found, "run_a", "run_c")

	l, err := ours.TakeLease(t.Context(), "server x", time.Minute, false)
	must(t, err)
	expect(t, "described", leasesOf(t, theirs, store.LeaseFilter{About: true}))
	must(t, theirs.Describe(t.Context(), "server x", "another's"))
	must(t, ours.Describe(t.Context(), "server x", "ours"))
	all, err := theirs.Leases(t.Context(), store.LeaseFilter{About: true})
	if err != nil || len(all) != 1 || all[0].About != "ours" || all[0].Run != "server x" {
		t.Errorf("%+v, %v", all, err)
	}
	for _, s := range []store.Store{ours, theirs} {
		if now, err := s.Clock(t.Context()); err != nil || time.Since(now).Abs() > time.Minute {
			t.Errorf("the clock says %s, %v", now, err)
		}
	}
	must(t, ours.EndLeases(t.Context(), l.Owner.ID))
	for site, want := range map[string][]toolcrib.RunID{
		"": {"run_a", "run_b", "run_c"}, "site_a": {"run_a", "run_c"}, "site_c": {"run_c"},
	} {
		runs, _, err := theirs.Undriven(t.Context(), "server", site, "", 10)
		must(t, err)
		slices.Sort(runs)
		expect(t, "not driven at "+site, runs, want...)
	}
	_, err = ours.VerifyAll(t.Context())
	must(t, err)
}

// leaseOfRuns starts and ends runs, and looks for those that no process drives.
func leaseOfRuns(t *testing.T, open func() store.Store) {
	ours, theirs := open(), open()
	start := begun("ann", "")
	start.Driver = "server"
	after := toolcrib.RunID("")
	undriven := func(limit int) []toolcrib.RunID {
		runs, more, err := theirs.Undriven(t.Context(), "server", "", after, limit)
		must(t, err)
		if more != (len(runs) == limit) {
			t.Errorf("%d runs of at most %d, and others: %v", len(runs), limit, more)
		}
		return runs
	}
	for _, run := range []toolcrib.RunID{"run_a", "run_b", "run_c"} {
		add(t, ours, run, 0, start)
	}
	other := begun("ann", "")
	other.Driver = "cli"
	add(t, ours, "run_d", 0, other)
	expect(t, "leased with their first events", leasesOf(t, theirs, store.LeaseFilter{}), "run_a", "run_b", "run_c", "run_d")
	expect(t, "not driven", undriven(10))
	all, err := theirs.Leases(t.Context(), store.LeaseFilter{Runs: []toolcrib.RunID{"run_a"}})
	if err != nil || len(all) != 1 || all[0].Epoch != 1 {
		t.Fatalf("%+v, %v", all, err)
	}
	leased(t, theirs, all[0])
	must(t, ours.EndLeases(t.Context(), all[0].Owner.ID))
	expect(t, "not driven", undriven(10), "run_a", "run_b", "run_c")
	expect(t, "not driven, of a limit", undriven(2), "run_a", "run_b")
	after = "run_b"
	expect(t, "not driven, of a later page", undriven(2), "run_c")
	after = "run_gone"
	expect(t, "not driven, after a run that is gone", undriven(2), "run_a", "run_b")
	after = ""
	take(t, theirs, "run_b", long)
	take(t, theirs, "run_c", long)
	expect(t, "not driven", undriven(10), "run_a")
	take(t, theirs, "run_b", time.Minute)
	waittest.Until(t, "a lease is late", func() bool {
		late := take(t, theirs, "run_c", 3*time.Second)
		waittest.Until(t, "its owner misses a renewal", func() bool {
			all, err := ours.Leases(t.Context(), store.LeaseFilter{Runs: []toolcrib.RunID{late.Run}})
			return err == nil && len(all) == 1 && all[0].Late()
		})
		runs := undriven(10)
		all, err := ours.Leases(t.Context(), store.LeaseFilter{Runs: []toolcrib.RunID{late.Run}})
		if must(t, err); len(all) != 1 || all[0].Expired {
			return false // this machine is slow
		}
		expect(t, "not driven, or late", runs, "run_a", "run_c")
		return true
	})
	add(t, ours, "run_a", 1, done())
	add(t, ours, "run_b", 1, &journal.Paused{Pending: journal.Pending{Kind: journal.PendingProvider}, Status: toolcrib.StatusWaitingForProvider})
	add(t, ours, "run_c", 1, done())
	expect(t, "not driven, after the ends", undriven(10))
	expect(t, "leased, after the ends", leasesOf(t, theirs, store.LeaseFilter{}), "run_b")
}

// leaseBounds has processes start and take more runs at once than the bounds of a user and of an agent allow.
func leaseBounds(t *testing.T, open func() store.Store) {
	const ofAnn, ofEditor = 3, 2
	full := map[string]error{"ann": errors.New("of the user"), "editor": errors.New("of the agent")}
	stores := []store.Store{open(), open(), open()}
	for _, s := range stores {
		s.SetBounds(func(user, agent string) (ofUser, ofAgent store.LeaseBound) {
			most := map[string]int{"ann": ofAnn, "editor": ofEditor}
			return store.LeaseBound{Most: most[user], Err: full[user]}, store.LeaseBound{Most: most[agent], Err: full[agent]}
		})
	}
	start := func(user, agent, driver string, parent toolcrib.RunID) *journal.RunStarted {
		b := begun(user, "")
		b.Agent.Name, b.Driver, b.Parent = agent, driver, parent
		return b
	}
	atOnce := func(what string, most int, full error, do func(s store.Store, run toolcrib.RunID) error) {
		t.Helper()
		var n atomic.Int64
		var all sync.WaitGroup
		for i := range 30 {
			all.Go(func() {
				if err := do(stores[i%3], toolcrib.RunID(fmt.Sprint("run_", i))); err == nil {
					n.Add(1)
				} else if !errors.Is(err, full) {
					t.Error(err)
				}
			})
		}
		if all.Wait(); n.Load() != int64(most) {
			t.Errorf("%s: %d, want %d", what, n.Load(), most)
		}
	}
	s := stores[0]
	add(t, s, "run_cli", 0, start("ann", "editor", "cli", "")) // of another driver
	add(t, s, "run_child", 0, start("ann", "editor", "server", "run_0"))
	begin := func(user, agent string) func(store.Store, toolcrib.RunID) error {
		return func(s store.Store, run toolcrib.RunID) error {
			return s.Append(t.Context(), run+toolcrib.RunID(user), 0, journaltest.Events(start(user, agent, "server", ""))...)
		}
	}
	atOnce("runs of ann", ofAnn, full["ann"], begin("ann", "default"))
	atOnce("runs of the editor", ofEditor, full["editor"], begin("bob", "editor"))
	page, err := s.Runs(t.Context(), store.Filter{Limit: 100})
	if err != nil || len(page.Runs) != 2+ofAnn+ofEditor {
		t.Errorf("%d runs are stored, error %v", len(page.Runs), err)
	}
	active, err := s.Active(t.Context(), "server")
	if want := (map[store.Active]int{{User: "ann", Agent: "default"}: ofAnn, {User: "bob", Agent: "editor"}: ofEditor}); err != nil ||
		!maps.Equal(active, want) {
		t.Errorf("%v, want %v, error %v", active, want, err)
	}

	// Runs that have begun, and whose leases have ended.
	for _, s := range stores {
		s.SetBounds(func(string, string) (ofUser, ofAgent store.LeaseBound) { return ofUser, ofAgent })
	}
	atOnce("runs without a bound", 30, nil, begin("eve", "default"))
	for _, s := range stores {
		all, err := s.Leases(t.Context(), store.LeaseFilter{})
		must(t, err)
		for _, l := range all {
			must(t, s.ReleaseLease(t.Context(), l))
		}
		s.SetBounds(func(string, string) (ofUser, ofAgent store.LeaseBound) {
			return store.LeaseBound{Most: 4, Err: full["ann"]}, ofAgent
		})
	}
	takes := func(bounded bool) func(store.Store, toolcrib.RunID) error {
		return func(s store.Store, run toolcrib.RunID) error {
			_, err := s.TakeLease(t.Context(), run+"eve", long, bounded)
			return err
		}
	}
	atOnce("runs of eve", 4, full["ann"], takes(true))
	if _, err := stores[0].TakeLease(t.Context(), "run_none", long, true); err != nil {
		t.Errorf("one of no run: %v", err)
	}
	atOnce("all of eve", 30, nil, takes(false))
}

// leaseEpochs has processes take, keep and lose the lease of one run. No two have it with one epoch.
func leaseEpochs(t *testing.T, open func() store.Store) {
	var mu sync.Mutex
	owners := map[int64]string{}
	var all sync.WaitGroup
	for range 3 {
		s := open()
		all.Go(func() {
			for i := range 60 {
				l, err := s.TakeLease(t.Context(), "run_a", time.Duration(i%3)*time.Millisecond, false)
				if errors.Is(err, store.ErrLeased) {
					continue
				} else if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if before := owners[l.Epoch]; before != "" {
					t.Errorf("epoch %d is of %s and of %s", l.Epoch, before, l.Owner.ID)
				}
				owners[l.Epoch] = l.Owner.ID
				mu.Unlock()
				if i%2 == 0 {
					err = s.ReleaseLease(t.Context(), l)
				} else {
					_, err = s.RenewLeases(t.Context())
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// leasesRenewed renews very many leases at once.
func leasesRenewed(t *testing.T, open func() store.Store) {
	n := 10_000
	if testing.Short() {
		n = 1000
	}
	s := open()
	for i := range n {
		take(t, s, toolcrib.RunID(fmt.Sprint("run_", i)), time.Minute)
	}
	start := time.Now()
	renewed, err := s.RenewLeases(t.Context())
	if err != nil || len(renewed) != n {
		t.Errorf("%d of %d leases were renewed, %v", len(renewed), n, err)
	}
	t.Logf("%d leases were renewed in %v", n, time.Since(start))
}
