package agent

import (
	"encoding/json"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// A call that has no other beside it is run by the driver itself: handing it to a
// goroutine and waiting for that would cost more than many a tool. Should the tool
// not end when it is told to, it keeps the goroutine, and another one drives on.

// errTakenOver ends a goroutine that drives no more: nothing of the run may be
// touched after it.
var errTakenOver = errors.New("another goroutine drives the run")

var errGoexit = errors.New("the tool ended its goroutine")

// watch tells when a tool that the driver runs itself did not end in time. One timer
// serves all calls of a driving: it is left to run, and looked at when it goes off.
type watch struct {
	mu      sync.Mutex
	in      *flight          // whose tool has the driver's goroutine; nil = none has
	since   time.Time        // when it was told to end, or will be; zero = at no time
	late    func()           // drives on without it
	left    *sync.WaitGroup  // goroutines that tools have kept
	timer   *time.Timer      // nil = none was needed yet
	at      time.Time        // when the timer goes off; zero = it does not
	driving chan drivingEnds // the end of the driving, once
}

// seat is the place of one goroutine at the wheel of a run.
type seat struct {
	lost bool         // another goroutine drives
	rest func() error // a tool has ended the goroutine: what another one has to do
}

// drivingEnds is how a driving ended.
type drivingEnds struct {
	err      error
	panicked any
	exited   bool // by runtime.Goexit
}

// await drives the run on a goroutine of its own and waits for whichever goroutine
// ends it.
func (d *driver) await() error {
	d.watch.driving, d.watch.left = make(chan drivingEnds, 1), &d.r.tools
	go d.goOn(nil)
	end := <-d.watch.driving
	switch {
	case end.panicked != nil:
		panic(end.panicked) // of a journal, a gate or a watcher: for the caller, as if it had driven
	case end.exited:
		runtime.Goexit()
	}
	return end.err
}

// goOn drives the run to its end, after what is left to do of a step.
func (d *driver) goOn(rest func() error) {
	end, at := drivingEnds{exited: true}, &seat{}
	d.seat = at
	defer func() {
		end.panicked = recover()
		switch {
		case at.lost:
		case at.rest != nil:
			go d.goOn(at.rest)
		default:
			d.watch.stop()
			d.unbound()
			d.watch.driving <- end
		}
	}()
	var err error
	if rest != nil {
		err = rest()
	}
	if err == nil {
		err = d.run(d.ctx)
	}
	if !at.lost {
		end.err, end.exited = errors.Join(err, d.flush(d.ctx)), false
	}
}

// enter says that the driver's goroutine is now with the tool of f. late is called
// if it is still there after the call's time and the grace.
func (w *watch) enter(f *flight, late func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.in, w.late, w.since = f, late, time.Time{}
	if f.ctx.Err() != nil {
		w.since = time.Now()
	} else if end, ok := f.ctx.Deadline(); ok {
		w.since = end
	}
	w.arm()
}

// exit says that the driver's goroutine has come back; false = too late, another
// one drives.
func (w *watch) exit(f *flight) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.in != f {
		return false
	}
	w.in, w.late = nil, nil
	return true
}

// hurry says that all calls are told to end now.
func (w *watch) hurry() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := time.Now(); w.in != nil && (w.since.IsZero() || now.Before(w.since)) {
		w.since = now
		w.arm()
	}
}

// arm sees to it that the timer goes off in time for the call that is on its way.
func (w *watch) arm() {
	if w.since.IsZero() {
		return
	}
	due := w.since.Add(cancelGrace)
	if !w.at.IsZero() && !due.Before(w.at) {
		return
	}
	w.at = due
	if w.timer == nil {
		w.timer = time.AfterFunc(time.Until(due), w.look)
		return
	}
	w.timer.Reset(time.Until(due))
}

// look is the timer going off.
func (w *watch) look() {
	w.mu.Lock()
	w.at = time.Time{}
	if w.in == nil {
		w.mu.Unlock()
		return
	}
	if w.since.IsZero() || time.Until(w.since.Add(cancelGrace)) > 0 {
		w.arm()
		w.mu.Unlock()
		return
	}
	late := w.late
	w.in, w.late = nil, nil
	w.left.Add(1)
	w.mu.Unlock()
	late()
}

func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
	}
}

// tell shows the progress of a call that the driver runs itself, if it still does.
func (d *driver) tell(f *flight, p progress) {
	d.watch.mu.Lock()
	defer d.watch.mu.Unlock()
	if d.watch.in == f {
		d.progressed(p)
	}
}

// flyAlone runs one call on the driver's goroutine and writes down what it does.
// [errTakenOver] says that it did not end in time, and the run has gone on.
func (x *execution) flyAlone(f *flight) error {
	f.alone = x.d
	began := x.d.r.Clock.Now()
	var out toolcrib.Output
	var err error
	if f.permit.Effect().Writes() {
		f.prepared, err = inTool(x, f, func() (json.RawMessage, error) { return f.permit.Prepare(f.ctx) })
		switch {
		case errors.Is(err, errTakenOver):
			return err
		case err != nil:
		case f.ctx.Err() != nil:
			err = errLeftBehind // told to end before it began: what has not started does not start
		default:
			started := &journal.ToolStarted{ID: f.call.ID, Name: f.call.Name, Write: true, Prepared: f.prepared}
			if err := x.d.append(x.ctx, started); err != nil {
				return err
			}
		}
	}
	if err == nil {
		out, err = inTool(x, f, func() (toolcrib.Output, error) {
			return f.permit.Execute(f.ctx, gate.Attachments{Progress: f.tell, Invoke: x.d.r.invoke(x.d.s, f)})
		})
		if errors.Is(err, errTakenOver) {
			return err
		}
	}
	return x.landAlone(f, out, err, began)
}

// landAlone writes down how a call ended that was alone.
func (x *execution) landAlone(f *flight, out toolcrib.Output, err error, began time.Time) error {
	f.result = x.resultOf(f, out, err)
	f.result.DurationMS = x.d.r.Clock.Now().Sub(began).Milliseconds()
	f.cancel()
	return x.land(f)
}

// inTool lets a tool have the driver's goroutine.
func inTool[T any](x *execution, f *flight, fn func() (T, error)) (v T, err error) {
	w, at, returned := &x.d.watch, x.d.seat, false
	began := x.d.r.Clock.Now()
	w.enter(f, func() {
		x.d.goOn(func() error {
			if err := x.leaveBehind(f); err != nil {
				return err
			}
			return x.carry()
		})
	})
	defer func() {
		switch mine := w.exit(f); {
		case !mine:
			err, at.lost = errTakenOver, true
			w.left.Done()
		case !returned:
			at.rest = func() error {
				if err := x.landAlone(f, toolcrib.Output{}, errGoexit, began); err != nil {
					return err
				}
				return x.carry()
			}
		}
	}()
	v, err = contained(fn)
	returned = true
	return v, err
}
