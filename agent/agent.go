// Package agent runs language models with tools: it asks the model, has its calls judged, executes those that are
// allowed, records everything, and repeats.
//
// [New] makes a [Runner] from a model and tools. [Runner.Run] runs a [Task] until it ends, or waits for a person.
// [Runner.Decide] records what the person says, and [Runner.Resume] continues a run, also one of a process that was
// killed. The [State] that they return has the answer, the calls with their results, and the usage.
//
// The loop is a state machine with a pure core, package core. [core.Fold] builds the [State] of a run
// from its journal and [core.Next] returns the next step; neither can use a clock, I/O or randomness.
// The [Runner] carries out a step and appends its events. So to resume is to fold and continue, and to
// replay is to fold and compare.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/ulid"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/journal/inmemory"
)

// Clock reads the time and waits. Tests supply their own.
type Clock interface {
	Now() time.Time
	// Awake returns how long this machine has been awake since some fixed moment. That clock
	// cannot be set, and it stops while the machine sleeps.
	Awake() time.Duration
	// Sleep waits for d. If ctx ends first, it returns its error.
	Sleep(ctx context.Context, d time.Duration) error
}

// Approver asks a person about a parked turn while the run is driven. If there was no answer, ok is
// false and the run parks.
type Approver interface {
	Decide(ctx context.Context, run toolcrib.RunID, ask *journal.ConfirmationRequired) (d journal.ConfirmationResolved,
		ok bool, err error)
}

// Options configure a [Runner]. Model or Models is required; everything else has a default.
type Options struct {
	// Tools are offered to models through a gate with its defaults, which asks before a call writes.
	// To configure the gate, set Gate instead. If both are unset, the runner has no tools.
	Tools []toolcrib.Tool
	Gate  *gate.Gate

	// Model serves every run. Alternatively, Models opens the model named in a run's snapshot.
	Model  toolcrib.Model
	Models func(ctx context.Context, m journal.ModelInfo) (toolcrib.Model, error)

	// Journal and Contents store runs, and must be set together. If both are nil, runs are kept in
	// memory until the program ends. The store that package store/sqlite opens is both.
	Journal  toolcrib.Journal
	Contents toolcrib.Contents

	// Approver is asked about calls that need an approval (see [Task.Approve]). If nil, the run parks,
	// until [Runner.Decide] and [Runner.Resume].
	Approver Approver
	// Expires is how long an approval may wait before it is denied. 0 means forever.
	Expires time.Duration
	// FourEyes lets the user of a run deny its calls, but not approve them.
	FourEyes bool
	// Memory keeps approvals that apply to later runs. If nil, approvals are remembered for their run
	// only.
	Memory Memory

	// Watch, if not nil, receives the frames of runs: events, and the pieces of a reply while it comes.
	// It must not block. Calls for one run are in order; calls for a run, for those nested in it and
	// for decisions made together may be concurrent.
	Watch func(run toolcrib.RunID, f journal.Frame)
	Log   *slog.Logger  // if nil, nothing is logged
	Mask  *guard.Masker // if nil, no secrets are masked

	// Agents makes the task of a sub-agent for the user of the run: its agent, models, skills, and the
	// text of the skills in History. The runner adds the restrictions that the run passes on. It is
	// called concurrently. If nil, no sub-agent can be started.
	Agents func(ctx context.Context, who toolcrib.Principal, name, workspace string) (Task, error)
	// Retry is how long new runs retry a failing provider. If nil, [journal.DefaultRetry] applies.
	Retry *journal.Retry
	// Ledger holds the budgets of users. If nil, users have none.
	Ledger toolcrib.Ledger
	// ClientTimeout is how long a client may take for the calls of its tools before they time out. 0
	// means forever.
	ClientTimeout time.Duration

	Host
}

// Runner carries out runs. It holds no state of a run and is safe for concurrent use.
type Runner struct {
	Options
	tools  sync.WaitGroup // calls that outlived their timeout
	parked parked
}

// New checks the options and makes a runner.
func New(o Options) (*Runner, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	if o.Clock == nil {
		o.Clock = realClock{since: time.Now()}
	}
	if o.Retry == nil {
		retry := journal.DefaultRetry()
		o.Retry = &retry
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.NewID == nil {
		o.NewID = NewID
	}
	return &Runner{Options: o}, nil
}

// complete checks the required options, and fills in the defaults.
func (o *Options) complete() (err error) {
	switch {
	case o.Model != nil && o.Models != nil:
		return errors.New("agent: Options has both Model and Models; give one of them")
	case o.Model == nil && o.Models == nil:
		return errors.New("agent: no model; give Options.Model or Options.Models")
	case o.Gate != nil && len(o.Tools) > 0:
		return errors.New("agent: Options has both Gate and Tools; give the tools to the gate")
	case o.Journal == nil && o.Contents != nil:
		return errors.New("agent: Options has Contents but no Journal; give both, or neither")
	case o.Journal != nil && o.Contents == nil:
		return errors.New("agent: Options has Journal but no Contents; give both, or neither")
	}
	if o.Journal == nil {
		kept := &inmemory.Journal{}
		o.Journal, o.Contents = kept, kept
	}
	if model := o.Model; model != nil {
		o.Models = func(context.Context, journal.ModelInfo) (toolcrib.Model, error) { return model, nil }
	}
	if o.Gate == nil {
		o.Gate, err = gate.New(gate.Options{Tools: o.Tools, Availability: gate.Overrides{}})
	}
	return err
}

// Release stops what [Host.Attended] has kept, and waits for it: what such work still has to undo is done when Release
// returns.
func (r *Runner) Release() { r.parked.end() }

// Wait waits, until ctx ends, for tools that did not return when their calls were cancelled.
func (r *Runner) Wait(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		r.tools.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("agent: tools are still running: %w", ctx.Err())
	}
}

type realClock struct{ since time.Time }

func (realClock) Now() time.Time { return time.Now() }

func (c realClock) Awake() time.Duration { return time.Since(c.since) }

func (realClock) Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// CancelError is the cause to cancel a driver's context with so that the run ends as cancelled. Any
// other cause leaves the run resumable.
type CancelError struct {
	By    string
	Token string // the ID of the access token used, if any
}

// CancelBy returns a [CancelError] in the name of a principal.
func CancelBy(who toolcrib.Principal) *CancelError {
	return &CancelError{By: NameOf(who), Token: who.TokenID()}
}

func (e *CancelError) Error() string { return "cancelled by " + e.By }

// byWallTime ends a child run in another process when the wall time of a run above is used up.
const byWallTime = "limits.wall_time of a calling run"

// Is reports whether the run ends because the wall time of a run above is used up.
func (e *CancelError) Is(target error) bool { return target == errWallTime && e.By == byWallTime }

// CancelOf returns the error with which the driver of a child run in another process ends that run, when the
// context of its parent has ended with this cause. It is nil if the child run continues.
func CancelOf(cause error) *CancelError {
	var cancel *CancelError
	if !errors.As(cause, &cancel) && errors.Is(cause, errWallTime) {
		cancel = &CancelError{By: byWallTime}
	}
	return cancel
}

// errWallTime is the cause when a run has used up its wall time.
var errWallTime = errors.New("wall time used up")

// NoticeForbidden reports that a decision at the terminal was not allowed, or was invalid.
const NoticeForbidden = "forbidden"

// Announcer notifies people elsewhere that a run has parked and needs their decision
// (approvals.notify). It is called once for each approval, after the pause is in the journal, so the
// decision may be made before Announce returns, and another process may resume the run. If the process
// dies before the call, the approval is not announced.
//
// s.Approval is the question; s must not be changed or retained. Announce must return within a few
// seconds, and soon after ctx ends. Its time is not wall time of the run. Its errors neither fail the
// run nor become events of it, because an event would move the time from which the approval expires.
type Announcer interface {
	Announce(ctx context.Context, s *State)
}

// NewID returns an ID: the prefix and 26 characters that sort by time and contain 80 random bits.
func NewID(prefix string) string { return ulid.New(prefix, time.Now()) }

// State is the state of a run, folded from its journal.
type State = core.State
