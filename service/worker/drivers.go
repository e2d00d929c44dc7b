// Package worker drives runs in the background, and records which process drives a run.
package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/process"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/store"
)

const (
	// sweepRun is taken like a run by the server that sweeps for all. The site of its workspaces may follow.
	sweepRun toolcrib.RunID = "sweep"
	// cancelEvery is how often a process looks for requests to cancel its runs.
	cancelEvery = 200 * time.Millisecond
	// releaseWait is how long a lease may take to be released.
	releaseWait = 5 * time.Second
)

// errLost is the cause when the work on a run stops because another process has taken its lease, or may have.
var errLost error = &toolcrib.Error{
	Code: toolcrib.CodeConflict, Message: "another process continues the run", Err: toolcrib.ErrConflict,
}

// Drivers are the runs that this process drives. It has their leases, which tell other processes, and renews them. A
// process that sees that the owner of a lease has died on its own machine ends that lease; otherwise it waits until its
// time has passed.
type Drivers struct {
	env *env.Env

	ctx     context.Context // of the goroutine that renews
	end     context.CancelFunc
	renewer sync.WaitGroup
	wake    chan struct{} // has room for one

	mu   sync.Mutex
	runs map[toolcrib.RunID]*driven
	kept time.Time // when the leases were last known to be ours
}

// driven is a run that this process drives. The mutex of its Drivers guards lease and claims.
type driven struct {
	taken  chan struct{} // closed when the lease was taken or not
	err    error         // why it was not; set before taken is closed
	at     time.Time     // when it was claimed
	lease  store.Lease   // without an epoch if it is not in the database: the run is new or has ended
	claims map[*claim]bool
}

// claim is one of several claims of this process to a run.
type claim struct{ stop func(error) }

// KeptLease returns the name of a lease that is not of a run. This process renews it until it is released.
func KeptLease(name string) toolcrib.RunID { return sweepRun + " " + toolcrib.RunID(name) }

// NewDrivers returns the runs that this process drives, none at first.
func NewDrivers(e *env.Env) *Drivers {
	d := &Drivers{env: e, wake: make(chan struct{}, 1), runs: map[toolcrib.RunID]*driven{}}
	d.ctx, d.end = context.WithCancel(context.Background())
	return d
}

// Begin claims a new run, whose lease is taken with its first event, until leave is called. See [Drivers.Take].
func (d *Drivers) Begin(run toolcrib.RunID, stop func(error)) (leave func()) {
	of, c, first := d.claim(run, stop)
	if first {
		close(of.taken)
	}
	return func() { d.leave(run, of, c) }
}

// Take claims a run for this process until leave is called, which may be called more than once. It returns
// [store.ErrLeased] if another process has the run. A process may claim a run several times. stop is called with an
// [agent.CancelError] if another process asks to cancel the run, and with another error if the lease is lost. It may be
// nil.
func (d *Drivers) Take(ctx context.Context, run toolcrib.RunID, stop func(error)) (leave func(), err error) {
	return d.take(ctx, run, stop, false)
}

// Drive is Take within the bounds of the store.
func (d *Drivers) Drive(ctx context.Context, run toolcrib.RunID, stop func(error)) (leave func(), err error) {
	return d.take(ctx, run, stop, true)
}

func (d *Drivers) take(
	ctx context.Context, run toolcrib.RunID, stop func(error), bounded bool,
) (leave func(), err error) {
	of, c, first := d.claim(run, stop)
	leave = func() { d.leave(run, of, c) }
	if first {
		var lease store.Lease
		lease, of.err = d.takeLease(context.WithoutCancel(ctx), run, bounded)
		if of.err == nil {
			d.mu.Lock()
			of.lease = lease
			d.mu.Unlock()
		}
		close(of.taken)
	}
	select {
	case <-of.taken:
		err = of.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		leave()
		return nil, err
	}
	return leave, nil
}

// claim adds a claim. first reports whether the lease must be taken.
func (d *Drivers) claim(run toolcrib.RunID, stop func(error)) (of *driven, c *claim, first bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.kept.IsZero() {
		d.renewer.Go(d.renew)
	}
	if len(d.runs) == 0 {
		d.kept = time.Now()
	}
	c = &claim{stop: stop}
	if of = d.runs[run]; of == nil {
		of, first = &driven{taken: make(chan struct{}), at: time.Now(), claims: map[*claim]bool{}}, true
		d.runs[run] = of
	}
	of.claims[c] = true
	select {
	case d.wake <- struct{}{}:
	default:
	}
	return of, c, first
}

// takeLease takes a lease. It ends those of a process that has died. The owner of one that is late may have been unable
// to write, like all other processes, so it gets the time that is left and a moment more, in which the store can be
// written: after that it has stopped the work.
func (d *Drivers) takeLease(ctx context.Context, run toolcrib.RunID, bounded bool) (l store.Lease, err error) {
	owner, lasts := d.env.Owner(), d.env.Owner().Lease
	if run == serverRun(owner.ID) {
		lasts = max(lasts, serverLease)
	}
	leases, err := d.env.Store.Leases(ctx, store.LeaseFilter{Runs: []toolcrib.RunID{run}})
	if len(leases) > 0 {
		switch l = leases[0]; {
		case l.Owner.ID == owner.ID:
		case d.died(&l):
			err = d.env.Store.EndLeases(ctx, l.Owner.ID)
		case !l.Late():
			err = store.ErrLeased
		default:
			if err = d.env.Store.Writable(ctx); err == nil {
				err = Pause(ctx, max(l.Left, 0)+min(l.Owner.Lease, owner.Lease)/store.Renewals)
			}
		}
	}
	if err != nil {
		return l, err
	}
	return d.env.Store.TakeLease(ctx, run, lasts, bounded)
}

// leave ends a claim. With the last one any process may continue the run.
func (d *Drivers) leave(run toolcrib.RunID, of *driven, c *claim) {
	d.mu.Lock()
	delete(of.claims, c)
	free := len(of.claims) == 0 && d.runs[run] == of
	if free {
		delete(d.runs, run)
	}
	lease := of.lease
	d.mu.Unlock()
	if free && lease.Epoch != 0 {
		d.release(lease)
	}
}

// release releases a lease. If that fails, it is released after the next renewal.
func (d *Drivers) release(l store.Lease) {
	ctx, cancel := context.WithTimeout(context.Background(), releaseWait)
	defer cancel()
	_ = d.env.Store.ReleaseLease(ctx, l)
}

// Wrote receives the events of a run that were appended here. The lease of a run is taken with its first event, and
// ends with its last.
func (d *Drivers) Wrote(run toolcrib.RunID, events []toolcrib.Event) {
	last := events[len(events)-1].Body.EventKind()
	ended := last == journal.KindDone || last == journal.KindError
	if !ended && events[0].Seq > 1 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch of := d.runs[run]; {
	case of == nil:
	case ended:
		of.lease.Epoch = 0
	case of.lease.Epoch == 0:
		of.lease = store.Lease{Run: run, Epoch: 1}
	}
}

// Processes returns the names of the processes that drive runs, or may drive them, by the runs.
func (d *Drivers) Processes(ctx context.Context, runs ...toolcrib.RunID) map[toolcrib.RunID]string {
	names, others := map[toolcrib.RunID]string{}, []toolcrib.RunID(nil)
	d.mu.Lock()
	for _, run := range runs {
		if names[run] = fmt.Sprintf("process %d", d.env.Owner().PID); d.runs[run] == nil {
			names[run] = "another process"
			others = append(others, run)
		}
	}
	d.mu.Unlock()
	if len(others) == 0 {
		return names
	}
	leases, err := d.env.Store.Leases(ctx, store.LeaseFilter{Runs: others})
	if err != nil {
		return names
	}
	for _, run := range others {
		delete(names, run)
	}
	for i := range leases {
		l := &leases[i]
		if l.Expired || d.died(l) {
			continue
		}
		names[l.Run] = d.NameOf(&l.Owner)
	}
	return names
}

// NameOf returns the name of another process.
func (d *Drivers) NameOf(o *store.Owner) string {
	name := fmt.Sprintf("process %d", o.PID)
	if o.Machine != d.env.Owner().Machine {
		name += " on " + guard.Visible(o.Host)
	}
	return name
}

// Driven reports whether a process drives a run, or may drive it.
func (d *Drivers) Driven(ctx context.Context, run toolcrib.RunID) bool {
	return d.Processes(ctx, run)[run] != ""
}

// died reports whether the owner of a lease has died, as far as it can be seen from here.
func (d *Drivers) died(l *store.Lease) bool {
	return identity(&l.Owner).EndedFor(identity(d.env.Owner()))
}

func identity(o *store.Owner) process.ID {
	return process.ID{Machine: o.Machine, PID: o.PID, Started: o.Started}
}

// endDead ends the leases of processes that have died on this machine.
func (d *Drivers) endDead(ctx context.Context) error {
	leases, err := d.env.Store.Leases(ctx, store.LeaseFilter{Machine: d.env.Owner().Machine})
	seen := map[string]bool{}
	for i := 0; i < len(leases) && err == nil; i++ {
		if l := &leases[i]; !seen[l.Owner.ID] && d.died(l) {
			err = d.env.Store.EndLeases(ctx, l.Owner.ID)
		}
		seen[leases[i].Owner.ID] = true
	}
	return err
}

// renew renews the leases of this process, and looks for requests to cancel its runs, until Close.
func (d *Drivers) renew() {
	for {
		look, renew := d.pauses()
		select {
		case <-time.After(min(look, renew)):
		case <-d.wake:
			continue
		case <-d.ctx.Done():
			return
		}
		if _, renew := d.pauses(); renew <= 0 {
			d.watched(d.renewLeases)
			continue
		}
		var asked []store.Lease
		d.watched(func() { asked, _ = d.env.Store.Leases(d.ctx, store.LeaseFilter{Cancel: true}) }) // as many as can be read
		d.cancel(asked)
	}
}

// watched calls do, which asks the store. If a server of the database gives no answer, the work on each run stops when
// its lease has not been renewed for its time: other processes may reach the server. After a pause of this process the
// server has a moment to answer.
func (d *Drivers) watched(do func()) {
	if !d.env.Config.Database.IsEmpty() {
		answered := make(chan struct{})
		defer close(answered)
		d.renewer.Go(func() {
			for again := d.early(); ; {
				select {
				case <-answered:
					return
				case <-time.After(again):
					again = d.lose()
				}
			}
		})
	}
	do()
}

// lose stops the work on all runs whose leases have not been renewed for as long as they last. It returns when to look
// again, which is after cancelEvery at most.
func (d *Drivers) lose() (again time.Duration) {
	d.mu.Lock()
	var lost []*driven
	again = cancelEvery
	for run, of := range d.runs {
		left := d.lasts(run) - min(time.Since(d.kept), time.Since(of.at))
		if of.lease.Epoch != 0 && left <= 0 {
			lost = append(lost, of)
			delete(d.runs, run)
		} else if left > 0 {
			again = min(again, left)
		}
	}
	d.mu.Unlock()
	for _, of := range lost {
		d.stop(of, errLost)
	}
	return again
}

// lasts returns how long the work on a lease may continue after its last renewal. It ends a moment before another
// process can have the lease, because that it has passed is seen with a delay.
func (d *Drivers) lasts(run toolcrib.RunID) time.Duration {
	if strings.HasPrefix(string(run), env.ServerLease) {
		return max(d.env.Lease, serverLease)
	}
	return d.env.Lease - d.early()
}

// early returns how long before its end a lease counts as lost, which is also when it is looked at for the first time.
func (d *Drivers) early() time.Duration { return min(cancelEvery, d.env.Lease/20) }

// pauses returns when requests are to be looked for, and when the leases are to be renewed.
func (d *Drivers) pauses() (look, renew time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	lasts := d.env.Owner().Lease
	switch {
	case len(d.runs) == 0:
		return time.Hour, time.Hour
	case len(d.runs) == 1 && d.runs[serverRun(d.env.Owner().ID)] != nil:
		lasts = max(lasts, serverLease)
		look = lasts
	default:
		look = cancelEvery
	}
	return look, lasts/store.Renewals - time.Since(d.kept)
}

// renewLeases renews all leases. The work on those that were lost stops, and on those that could not be renewed for the
// time of a lease, because other processes may reach the store. One that is locked or full gives no process a lease.
func (d *Drivers) renewLeases() {
	now, had := time.Now(), map[toolcrib.RunID]*driven{}
	d.mu.Lock()
	for run, of := range d.runs {
		if of.lease.Epoch != 0 {
			had[run] = of
		}
	}
	d.mu.Unlock()
	leases, err := d.env.Store.RenewLeases(d.ctx)
	if d.ctx.Err() != nil {
		return
	}
	held := err == nil || errors.Is(err, store.ErrLocked) || errors.Is(err, store.ErrFull)
	for _, l := range leases {
		delete(had, l.Run)
	}
	var left []store.Lease // of runs that were released meanwhile, or could not be
	d.mu.Lock()
	for _, l := range leases {
		if d.runs[l.Run] == nil && !strings.HasPrefix(string(l.Run), string(sweepRun)) {
			left = append(left, l)
		}
	}
	for run, of := range had {
		late := min(time.Since(d.kept), time.Since(of.at)) > d.lasts(run)
		if d.runs[run] != of || of.lease.Epoch == 0 || err != nil && (held || !late) {
			delete(had, run)
			continue
		}
		delete(d.runs, run)
	}
	if held {
		d.kept = now
	}
	d.mu.Unlock()
	for _, of := range had {
		d.stop(of, errLost)
	}
	for _, l := range left {
		d.release(l)
	}
	d.cancel(leases)
	if !held {
		_ = Pause(d.ctx, cancelEvery)
	}
}

// cancel stops the work on the runs that other processes ask to cancel.
func (d *Drivers) cancel(leases []store.Lease) {
	for i := range leases {
		l := &leases[i]
		d.mu.Lock()
		of := d.runs[l.Run]
		d.mu.Unlock()
		if of != nil && l.CancelBy != "" {
			d.stop(of, &agent.CancelError{By: guard.Visible(l.CancelBy), Token: l.CancelToken})
		}
	}
}

// stop stops the work on a run.
func (d *Drivers) stop(of *driven, cause error) {
	d.mu.Lock()
	claims := slices.Collect(maps.Keys(of.claims))
	d.mu.Unlock()
	for _, c := range claims {
		if c.stop != nil {
			c.stop(cause)
		}
	}
}

// Close releases all runs.
func (d *Drivers) Close() error {
	d.end()
	d.renewer.Wait()
	d.mu.Lock()
	some := len(d.runs) > 0
	clear(d.runs)
	d.mu.Unlock()
	if !some || !d.env.IsOpen() {
		return nil
	}
	return d.env.Store.EndLeases(context.Background(), d.env.Owner().ID)
}
