package core

import (
	"bytes"
	"crypto/sha256"
	"hash"
	"slices"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// State is the state of a run after the events of its journal. Only [Fold] changes it. Its parts are
// embedded, so their fields are fields of the state.
type State struct {
	Run     toolcrib.RunID
	Seq     toolcrib.Seq
	Start   *journal.RunStarted
	Status  toolcrib.Status
	Started time.Time
	Updated time.Time

	Transcript
	Calls
	Asking
	Retrying
	Answering
	Spending
	Driving
	offering
	notices

	Approval *journal.ConfirmationRequired // open approval
	Pending  *journal.Pending              // while parked
	Stopping *journal.Stopping
	Done     *journal.Done
	Failed   *journal.Error
}

// Transcript is the conversation of a run as its next request shows it.
type Transcript struct {
	Messages []toolcrib.Message // valid for all providers while there is no turn
	Epoch    int                // see toolcrib.Request.Epoch
	LastText string             // last text of the assistant
	Said     []journal.Said     // messages that the model has not read
	HasFiles bool

	task      int               // index of the message that this run began with
	replaced  int               // messages of the assistant that were condensed or dropped
	assembled *toolcrib.Message // the reply whose calls are still to come
	size      size
	digest    hash.Hash // over Messages, in order
	scratch   []byte    // for the digest
}

// Calls has the calls of a run, and the facts about it that decide about the next ones.
type Calls struct {
	Turn   *Turn   // the turn whose calls do not all have results; nil if none
	Trace  []*Call // every call of the run, in order
	Denied bool    // a person denied a call
	// Taint names the sources of untrusted data that the run has read.
	Taint []string
	// Remembered are approvals in this run that apply to later calls as well.
	Remembered []journal.Remembered
	// Agreed are the questions that were approved for the rest of the run.
	Agreed []journal.Question
	IDs    map[string]bool // IDs in use

	repeat repeat
}

// Asking has the requests of a run to its models.
type Asking struct {
	Iterations int                   // rounds begun, without the closing request
	Requests   int                   // requests numbered so far
	Models     []journal.ModelInfo   // the agent's model and its fallbacks, then those that were chosen later
	Model      int                   // index of the model in use
	Open       *journal.ModelRequest // sent, neither answered nor failed
	Asked      *journal.ModelRequest // the last request that was answered
	Last       *journal.Message      // last reply
	// AsText has the indexes of models that turned out not to take tools.
	AsText map[int]bool

	textFrom int // the request for which a model turned out not to take tools
}

// Retrying has the failures of the current request.
type Retrying struct {
	Failures   int                  // on the current model, in a row
	LastFailed *journal.ModelFailed // nil if the request has not failed
	// CondenseFailed is set if a request for a summary failed.
	CondenseFailed bool

	retried    time.Duration // how long the request has been retried, on all models
	parks      int           // pauses for a provider since the last reply
	parked     time.Duration // sum of the pauses before a server retries
	overlong   bool          // it was refused for its length and was not shortened yet
	shortened  bool          // since the last reply, because the API refused a request for its length
	askedShort bool          // and requested again after that
}

// Answering has the checks of an answer that must have a form.
type Answering struct {
	// Checked is the last check of an answer against the agent's output_schema. AnswerTries counts the
	// answers that did not match.
	Checked     *journal.AnswerChecked
	AnswerTries int

	choiceAgain bool // the next request demands again the call that was not made
	empty       bool // the last reply had neither text nor calls
}

// Spending has what a run has used, and what was granted.
type Spending struct {
	Usage    toolcrib.Usage
	Children Used // usage of the child runs that have ended, and of those below them
	// TokensEstimated is set if tokens were estimated. Usage.Estimated is also set if a price is
	// unknown.
	TokensEstimated bool
	Granted         journal.Granted // sum of the amounts by which limits were raised
	// Declined is set if a person refused to raise a limit that was reached.
	Declined bool

	limits     toolcrib.Limits // limits of the start, with defaults
	unanswered toolcrib.Usage  // charge for failed requests, less what was granted since
	bytes      int64           // size of the run's own journal
	turnBytes  int64           // size up to the reply whose calls are the turn
}

// Driving has the drivers of a run.
type Driving struct {
	Epochs int           // how often the run was started or resumed
	Idle   int           // how often since the last progress
	Driven time.Duration // time with a driver, up to the last event, without time for decisions
	Held   bool          // a driver has had the run since the last event

	counted bool // Idle includes the last start or resume
}

// offering has the tools that the run may call.
type offering struct {
	Offer journal.Offer

	found     []string        // tools found or called, in order; only if the offer has a finder
	offered   map[string]bool // names in the offer offeredAs
	offeredAs string
}

// notices has the notices that are given once or passed on.
type notices struct {
	Warned       bool              // about the budget
	WorkerWarned bool              // about a worker's cap on cost
	reported     []toolcrib.Notice // to be reported to the run above
}

// Turn is the calls of one reply.
type Turn struct {
	Iteration int
	Calls     []*Call
	Expected  int // number of calls in the reply; the turn is complete when all were recorded
	Judged    bool
	Rejudge   bool // a decision was made since the last judgement
}

// Call is one call of a run and its outcome.
type Call struct {
	toolcrib.ToolCall
	Iteration int
	Verdict   *journal.Verdict
	Decision  *journal.CallDecision
	DecidedBy *journal.ConfirmationResolved
	Asked     *journal.Verdict // the last verdict that asked for approval
	Started   *journal.ToolStarted
	// Lost is set while the call is a write that had started when its driver was lost and whose
	// outcome is unknown.
	Lost       bool
	Reconciled *journal.Reconciled
	Doubt      *journal.CallDecision // a person's decision on a call in doubt
	Retried    bool                  // a person decided to run the call again
	RetryBound *journal.Binding      // binding of that decision, until the call is approved again
	Answer     *journal.CallDecision // a person's answer to a question
	Result     *journal.ToolResult
	Child      *journal.ChildStarted // the run of a call that another agent answers
	Waits      *journal.ChildParked  // set while that run waits
	WaitsSince int                   // value of Epochs when it began to wait
	ChildEnd   *journal.ChildEnded
	Counted    bool // the access token has been charged for the call, at the first verdict that let it run
}

// repeat has the number of equal calls with equal results in a row.
type repeat struct {
	name, content string
	arguments     []byte
	n             int
}

// size has the values to estimate the tokens of the next request with.
type size struct {
	bytes         int64   // of all current messages
	rest          int64   // of the system text and the tools when tokens were reported
	perToken      float64 // bytes per token, as reported; 0 if unknown
	reportedBytes int64   // of the messages in the last request with reported tokens
	reported      int64   // input tokens of that request
}

// Public returns the state as shown to users of a server (see [journal.Public]). A run cannot continue
// from it.
func (s *State) Public() *State {
	p := *s
	if s.Failed != nil {
		p.Failed, _ = journal.Public(s.Failed).(*journal.Error)
	}
	if s.Pending != nil {
		pending := *s.Pending
		pending.Error = pending.Error.Public()
		p.Pending = &pending
	}
	p.Trace = make([]*Call, len(s.Trace))
	for i, c := range s.Trace {
		one := *c
		if c.Result != nil {
			one.Result, _ = journal.Public(c.Result).(*journal.ToolResult)
		}
		if c.Verdict != nil {
			verdict := c.Verdict.Public()
			one.Verdict = &verdict
		}
		p.Trace[i] = &one
	}
	return &p
}

// Whole reports whether all calls of the turn were recorded.
func (t *Turn) Whole() bool { return len(t.Calls) == t.Expected }

// Doubtful reports whether the call has started once, was not started again, and may have taken
// effect.
func (c *Call) Doubtful() bool { return c.Lost || c.Retried && c.Started == nil }

// Lost returns the calls whose driver was lost.
func (t *Turn) Lost() []*Call {
	return t.openIf(func(c *Call) bool { return c.Lost })
}

// Open returns the calls without a result.
func (t *Turn) Open() []*Call { return t.openIf(anyCall) }

func anyCall(*Call) bool { return true }

func (t *Turn) openIf(is func(*Call) bool) []*Call {
	n := t.countIf(is)
	if n == 0 {
		return nil
	}
	calls := make([]*Call, 0, n)
	for _, c := range t.Calls {
		if c.Result == nil && is(c) {
			calls = append(calls, c)
		}
	}
	return calls
}

// countIf counts the calls without a result for which is returns true.
func (t *Turn) countIf(is func(*Call) bool) (n int) {
	for _, c := range t.Calls {
		if c.Result == nil && is(c) {
			n++
		}
	}
	return n
}

// Closed reports whether the closing request was answered.
func (s *State) Closed() bool { return s.Last != nil && s.Last.Closing }

// First returns the index of the model to ask first: the last one that was chosen.
func (s *State) First() int {
	if chosen := len(s.Models) - len(s.Start.Models); chosen > 0 {
		return len(s.Models) - 1
	}
	return 0
}

// usedUp reports whether a worker has no calls left, except for one request without tools.
func (s *State) usedUp() bool {
	return slices.ContainsFunc(s.Trace, func(c *Call) bool {
		return c.Result != nil && (c.Result.Reason == toolcrib.ReasonHopBudgetExhausted ||
			c.Result.Reason == toolcrib.ReasonCostCapExceeded)
	})
}

// Ended reports whether the run has ended.
func (s *State) Ended() bool { return s.Done != nil || s.Failed != nil }

// NewState returns the state of a run before its first event, with room for five rounds.
func NewState(run toolcrib.RunID) *State {
	s := &State{Run: run}
	s.IDs, s.digest, s.Messages = make(map[string]bool), sha256.New(), make([]toolcrib.Message, 0, 12)
	return s
}

// Limits returns the limits of the run, with defaults.
func (s *State) Limits() toolcrib.Limits {
	l := s.limits
	l.MaxIterations += s.Granted.Iterations
	return l
}

// OfferedNow returns the tools that were offered with the request that the current turn answers; nil
// if none were.
func (s *State) OfferedNow() map[string]bool {
	if s.Start.Given == nil {
		if s.Asked == nil || s.Asked.OfferHash == "" || s.Asked.Choice.Mode == toolcrib.ChoiceNone {
			return nil
		}
	}
	return s.offerSet()
}

// Reconciled reports whether an open call is a write whose tool reported that it happened; its result
// follows at once.
func (s *State) Reconciled(callID string) bool {
	c, err := s.Find(callID)
	return err == nil && c.Reconciled != nil && c.Reconciled.State == toolcrib.Happened
}

// Repeated returns how often in a row, so far, this call had the same result.
func (s *State) Repeated(name string, arguments []byte) int {
	if s.repeat.name != name || !bytes.Equal(s.repeat.arguments, arguments) {
		return 0
	}
	return s.repeat.n
}
