// Package agent is the loop of toolcrib: ask the model, judge its calls, execute
// what is allowed, write it all down, and again (design.md §1, contract §5).
//
// The loop is a state machine with a pure core. [Fold] builds the [State] of a run
// from its journal, [Next] says what comes next; both touch nothing: no clock, no
// I/O, no randomness. The [Runner] is the thin shell that carries a step out and
// appends what happened. So resume is "fold and go on", and replay is "fold and
// compare".
package agent

import (
	"context"
	"crypto/cipher"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// Clock tells the time and waits. Tests give their own.
type Clock interface {
	Now() time.Time
	// Awake is how long this machine has been awake since some moment: a clock that
	// nobody can set, and that stands still while the machine sleeps.
	Awake() time.Duration
	// Sleep waits for d, or until ctx ends, and then returns its error.
	Sleep(ctx context.Context, d time.Duration) error
}

// Approver asks a person about a parked turn, while the run is driven. ok is
// false if nobody answered: the run parks.
type Approver interface {
	Decide(ctx context.Context, run toolcrib.RunID, ask *journal.ConfirmationRequired) (d journal.ConfirmationResolved,
		ok bool, err error)
}

// Options configure a [Runner]. Model or Models is required; everything else has a
// default.
type Options struct {
	// Tools are offered to models through a gate with its defaults: what a call would
	// write is asked about first. Instead of it, Gate can be one that was configured.
	// nil and empty = no tools.
	Tools []toolcrib.Tool
	Gate  *gate.Gate

	// Model serves every run. Instead of it, Models can open the model of a run's
	// snapshot.
	Model  toolcrib.Model
	Models func(ctx context.Context, m journal.ModelInfo) (toolcrib.Model, error)

	// Journal and Contents keep the record of runs, and belong together. Both nil =
	// in memory, until the program ends.
	Journal  toolcrib.Journal
	Contents toolcrib.Contents

	// Agents makes the task of a sub-agent for whom the run acts: its agent, models,
	// skills and what of them is in History. What the run passes on, and narrows, is
	// added to it. It is called on many goroutines. nil = no agent can be started.
	Agents func(ctx context.Context, who toolcrib.Principal, name, workspace string) (Task, error)
	// Shape shapes the task of a run that answers a call of the run above, after all that
	// narrows it was filled in: it may only narrow it further, or say what its answer has to
	// be like. call is the ID of the call. An error means that the run cannot be started; nil =
	// nothing is changed.
	Shape func(ctx context.Context, above *journal.RunStarted, call string, task *Task) error
	// Enough reports, from the results of a turn so far (nil = a call has none yet), whether
	// the calls that other agents still answer need no answer: they are cancelled. nil = each
	// needs one.
	Enough func(s *State, results []*journal.ToolResult) bool
	// Claim holds a child run for this process, so that no other drives it meanwhile;
	// release is called when its driver has released it. nil = nobody else could.
	Claim func(run toolcrib.RunID) (release func(), err error)

	// how long failing providers are retried by runs that start; nil = [journal.DefaultRetry]
	Retry *journal.Retry
	Clock Clock         // nil = the machine's
	Mask  *guard.Masker // nil = no secrets to mask
	Log   *slog.Logger  // nil = nowhere
	// nil = nobody watches; called in order for each run, for a run and those nested in it, and for decisions that come
	// together, at the same time; must not block
	Watch func(run toolcrib.RunID, f journal.Frame)
	// reports whether anybody watches a run just now, so that the pieces of a reply need not be shown while nobody does;
	// nil = always
	Watched func(run toolcrib.RunID) bool
	Memory  Memory          // nil = approvals are remembered for their run only
	Ledger  toolcrib.Ledger // nil = no user has a budget
	// TreeUse returns what the tree of a run has used by now, the limits of sessions need it; nil = an agent that
	// has such limits of cost or tokens cannot run
	TreeUse func(ctx context.Context, run toolcrib.RunID) (journal.SessionUse, error)
	// is asked about calls that need an approval (see [Task.Approve]); if nil, the run parks
	Approver Approver
	// the user behind the Approver, with today's rights; if zero, the user whom the run acts for
	Who toolcrib.Principal
	// how long an approval may wait before it is denied; 0 = forever (approvals.expire)
	Expires time.Duration
	// how long a client may take for the calls of its tools, before they have timed out; 0 = forever
	// (server.client_tool_timeout)
	ClientTimeout time.Duration
	// whom a run acts for may deny its calls, but not approve them (approvals.four_eyes)
	FourEyes bool
	// what a person adds to a run, or to one nested in it, asked before each request; "" = nothing; nil = nobody adds
	// anything
	Said func(run toolcrib.RunID) string

	// Inbox returns messages to a run that it has not read, each with an ID: before each request, and where the journal
	// refuses its end with [journal.ErrUnread]. An append of the [journal.Said] with that ID takes a message out. nil =
	// there is no inbox. With Refuses, the journal is known to refuse the first attempt of a request likewise, so that
	// the inbox need not be read before.
	Inbox   func(ctx context.Context, run toolcrib.RunID) ([]journal.Said, error)
	Refuses bool

	// Nested has answered what a call waits for that another call makes, which runs meanwhile, and continues it: it
	// returns the run of that call. If that still waits then, or if Nested is nil, the call is refused.
	Nested func(ctx context.Context, r *Runner, s *State) (*State, error)

	// Seal is what seals answers to questions about secrets, so that only the tool that asks reads them; nil = they
	// are kept as they are.
	Seal func() (cipher.AEAD, error)

	Announcer Announcer                  // nil = nobody is told that a run has parked
	Worker    string                     // names this driver in the journal
	Version   string                     // of toolcrib
	NewID     func(prefix string) string // nil = [NewID]
}

// Runner carries out runs. It holds no state of a run and is safe for use by many
// goroutines.
type Runner struct {
	Options
	tools sync.WaitGroup // calls that outlived their timeout
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

// complete checks what a runner cannot be without, and fills in the defaults.
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
		kept := &journal.Memory{}
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

// Wait waits for tools that did not end when they were told to, at most until
// ctx ends.
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

// CancelError is the cause to cancel a driver's context with so that the run
// ends as cancelled. Any other cause leaves the run resumable.
type CancelError struct {
	By    string
	Token string // the ID of the access token by which it was said; "" = none
}

// CancelBy is a [CancelError] in the name of a principal.
func CancelBy(who toolcrib.Principal) *CancelError {
	return &CancelError{By: NameOf(who), Token: who.TokenID()}
}

func (e *CancelError) Error() string { return "cancelled by " + e.By }

// errWallTime is the cause when a run has used up its wall time.
var errWallTime = errors.New("wall time used up")

// NoticeForbidden tells that an answer at the terminal was not that person's to give.
const NoticeForbidden = "forbidden"

// Announcer tells people elsewhere that a run has parked for a decision of theirs
// (approvals.notify). It is called once for each approval, after the pause is in
// the journal: the decision may be there before Announce ends, and another process may
// continue with the run. A process that dies in between calls it for nobody.
//
// s.Approval is what is asked; s must not be changed, nor kept. Announce must end within
// a few seconds, and soon after ctx does. None of them is wall time of the run. Whatever
// it meets never fails the run, and is no event of it: it would move the time from which
// on the approval expires.
type Announcer interface {
	Announce(ctx context.Context, s *State)
}

// NewID is [journal.NewID] of now.
func NewID(prefix string) string { return journal.NewID(prefix, time.Now()) }
