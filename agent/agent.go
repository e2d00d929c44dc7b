// Package agent is the loop of toolcrib: ask the model, judge its calls, execute the allowed ones,
// record everything, and repeat.
//
// The loop is a state machine with a pure core, package core. [core.Fold] builds the [State] of a run
// from its journal and [core.Next] returns the next step; neither can use a clock, I/O or randomness.
// The [Runner] carries out a step and appends its events. So to resume is to fold and continue, and to
// replay is to fold and compare.
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
	// memory until the program ends.
	Journal  toolcrib.Journal
	Contents toolcrib.Contents

	// Agents makes the task of a sub-agent for the user of the run: its agent, models, skills, and the
	// text of the skills in History. The runner adds the restrictions that the run passes on. It is
	// called concurrently. If nil, no sub-agent can be started.
	Agents func(ctx context.Context, who toolcrib.Principal, name, workspace string) (Task, error)
	// Shape changes the task of a run that answers the call with the ID call of the run above, after
	// all restrictions were filled in. It may restrict the task further, set requirements for its
	// answer, and pass on the input of the run above. If it returns an error, the run cannot be
	// started. If nil, tasks are not changed.
	Shape func(ctx context.Context, above *journal.RunStarted, call string, task *Task) error
	// Enough reports whether the calls that other agents still answer are no longer needed; these are
	// then cancelled. results are those of the turn so far, nil for a call without one. hurried means
	// that a person is content with these. If Enough is nil, every call is needed.
	Enough func(s *State, results []*journal.ToolResult, hurried bool) bool
	// Hurry receives a value when a person is content with the answers that the run has. If Enough
	// reports that there are none, the run is cancelled with the value.
	Hurry <-chan *CancelError
	// Claim locks a child run for this process, so that no other process drives it at the same time;
	// its driver calls release at the end. If nil, the run is not locked.
	Claim func(run toolcrib.RunID) (release func(), err error)

	// Retry is how long new runs retry a failing provider. If nil, [journal.DefaultRetry] applies.
	Retry *journal.Retry
	Clock Clock         // if nil, the machine's clock
	Mask  *guard.Masker // if nil, no secrets are masked
	Log   *slog.Logger  // if nil, nothing is logged
	// Watch, if not nil, receives the frames of runs. It must not block. Calls for one run are in
	// order; calls for a run, for those nested in it and for decisions made together may be
	// concurrent.
	Watch func(run toolcrib.RunID, f journal.Frame)
	// Watched reports whether a run is being watched, so that the pieces of a reply are not shown in
	// vain. If nil, runs are always watched.
	Watched func(run toolcrib.RunID) bool
	Memory  Memory          // if nil, approvals are remembered for their run only
	Ledger  toolcrib.Ledger // if nil, users have no budgets
	// TreeUse returns the usage of the run's tree so far, for the limits of sessions. If nil, an agent
	// that limits the cost or tokens of a session cannot run.
	TreeUse func(ctx context.Context, run toolcrib.RunID) (journal.SessionUse, error)
	// Approver is asked about calls that need an approval (see [Task.Approve]). If nil, the run parks.
	Approver Approver
	// Who is the user behind the Approver, with current rights. If zero, it is the user of the run.
	Who toolcrib.Principal
	// Expires is how long an approval may wait before it is denied (approvals.expire). 0 means
	// forever.
	Expires time.Duration
	// ClientTimeout is how long a client may take for the calls of its tools before they time out
	// (server.client_tool_timeout). 0 means forever.
	ClientTimeout time.Duration
	// FourEyes lets the user of a run deny its calls, but not approve them (approvals.four_eyes).
	FourEyes bool
	// Said returns a person's message to a run, or to one nested in it, or "" if none. It is
	// called before each request. If nil, there are no such messages.
	Said func(run toolcrib.RunID) string

	// Inbox returns the messages that a run has not read, each with an ID. It is called before each
	// request, and when the journal refuses the end of the run with [journal.ErrUnread]. Appending the
	// [journal.Said] with its ID removes a message. If Inbox is nil, there are no messages. Refuses
	// means that the journal also refuses the first attempt of a request if messages are unread, so
	// that the inbox need not be read before it.
	Inbox   func(ctx context.Context, run toolcrib.RunID) ([]journal.Said, error)
	Refuses bool

	// Nested obtains the decisions that s, the run of a call made by a call in progress, waits for,
	// and continues s. It returns the state of s. If s still waits then, or if Nested is nil, the call
	// is refused.
	Nested func(ctx context.Context, r *Runner, s *State) (*State, error)

	// Buffers are the texts of files in a person's editor, for the tools that read and write files. If nil, there
	// is no editor.
	Buffers toolcrib.Buffers
	// Seal returns the cipher that seals answers to questions about secrets, so that only the tool
	// that asks reads them. If nil, answers are kept unsealed.
	Seal func() (cipher.AEAD, error)

	Announcer Announcer                  // if nil, parked runs are not announced
	Worker    string                     // name of this driver in the journal
	Version   string                     // toolcrib's version
	NewID     func(prefix string) string // if nil, [NewID]
}

// Runner carries out runs. It holds no state of a run and is safe for concurrent use.
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
