package agent

import (
	"bytes"
	"crypto/sha256"
	"hash"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// State is what the journal of a run amounts to. Only [Fold] changes it.
type State struct {
	Run    toolcrib.RunID
	Seq    toolcrib.Seq
	Start  *journal.RunStarted
	Status toolcrib.Status

	Messages []toolcrib.Message // valid for every provider whenever Turn is nil
	Epoch    int                // see toolcrib.Request.Epoch
	LastText string             // the last text of the assistant
	Last     *journal.Message   // the last reply

	Offer      journal.Offer
	Iterations int                   // rounds begun, without the closing request
	Requests   int                   // requests numbered so far
	Models     []journal.ModelInfo   // the agent's model and its fallbacks, then those that were chosen later
	Model      int                   // index of the model in use
	Open       *journal.ModelRequest // sent, neither answered nor failed
	Asked      *journal.ModelRequest // the last one that was answered
	Failures   int                   // of the current request on the current model, in a row
	LastFailed *journal.ModelFailed  // of the current request; nil = it has not failed yet
	Usage      toolcrib.Usage
	Children   toolcrib.Usage // of the child runs that have ended, with those below them
	// TokensEstimated is set if tokens were estimated. Usage.Estimated is also set where a price is unknown.
	TokensEstimated bool

	Turn      *Turn   // calls that are not all answered yet
	Trace     []*Call // every call of the run, in order
	Spare     bool    // a worker has no calls left, but one request without tools
	Closed    bool    // the closing request was answered
	Denied    bool    // a person denied a call
	Truncated bool
	Stopping  *journal.Stopping
	Approval  *journal.ConfirmationRequired // open
	Pending   *journal.Pending              // while parked

	Done   *journal.Done
	Failed *journal.Error

	Epochs int           // takings-up so far
	Idle   int           // takings-up since anything was achieved
	Driven time.Duration // time under a driver, up to the last event; not while a person decides
	Warned bool          // the budget's warning was given
	// WorkerWarned is set when a worker's cap of cost was warned of.
	WorkerWarned bool
	reported     []toolcrib.Notice // that the run above is to have, too
	Granted      journal.Granted   // limits that were raised, summed up
	// Declined is set when a person would not raise a limit that was reached.
	Declined bool
	Said     []journal.Said // messages that the model has not read yet
	// Taint names the sources of untrusted data that the run has read.
	Taint []string
	// Remembered are approvals of this run that hold for later calls, too.
	Remembered []gate.Remembered
	Started    time.Time
	Updated    time.Time

	// CondenseFailed is set when a summary was asked for and did not come.
	CondenseFailed bool
	// AsText holds the models, by index, that turned out to take no tools.
	AsText map[int]bool

	// Checked is the last answer that was held against the agent's output_schema;
	// AnswerTries counts those that did not fit.
	Checked     *journal.AnswerChecked
	AnswerTries int

	// unanswered is what failed requests were charged, less what was granted since.
	unanswered toolcrib.Usage
	overlong   bool // the current request is refused for its length, and not shortened yet

	first   int           // index of the model that is asked first
	retried time.Duration // how long the current request was retried, on all models
	parks   int           // for a provider, since the last reply
	parked  time.Duration // how long a server waits in all of them before it tries again
	counted bool          // the last taking-up counts as one without progress

	childRuns  int   // child runs that have ended, with those below them
	childBytes int64 // of their journals
	bytes      int64 // of its own
	turnBytes  int64 // up to the reply whose calls are the turn
	task       int   // index of the message that this run began with
	shortened  bool  // since the last reply, because the API refused a request for its length
	askedShort bool  // and asked again after that
	textFrom   int   // the request by which a model turned out to take no tools

	found []string // tools that were found or called, in their order; only where the offer has a finder

	choiceAgain bool // the next request demands once more the call that did not come
	empty       bool // the last reply had neither text nor calls

	files     bool            // the transcript has files
	replaced  int             // assistant's messages that were condensed or dropped
	held      bool            // a driver holds the run since Updated
	limits    toolcrib.Limits // of Start, complete
	ids       map[string]bool
	repeat    repeat
	size      size
	digest    hash.Hash // over Messages, in order
	assembled *toolcrib.Message
	scratch   []byte          // for the digest
	offered   map[string]bool // of the offer offeredAs
	offeredAs string
}

// Turn is one reply's calls.
type Turn struct {
	Iteration int
	Calls     []*Call
	Expected  int // calls that the reply has; the turn is whole when all have come
	Judged    bool
	Rejudge   bool // a decision came since the last judgement
}

// Call is one call of a run and what became of it.
type Call struct {
	toolcrib.ToolCall
	Iteration int
	Verdict   *journal.Verdict
	Decision  *journal.CallDecision
	DecidedBy *journal.ConfirmationResolved
	Asked     *journal.Verdict // that it was asked about, the last time
	Started   *journal.ToolStarted
	// Lost is set while the call is a write that had started when its driver was
	// lost, and nobody knows yet what became of it.
	Lost       bool
	Reconciled *journal.Reconciled
	Doubt      *journal.CallDecision // a person's word on a call in doubt
	Retried    bool                  // a person said to run it once more
	retryBound *journal.Binding      // what that is bound to, until it is approved again
	Answer     *journal.CallDecision // a person's answer to a question
	Result     *journal.ToolResult
	Child      *journal.ChildStarted // of a call that another agent answers: its run
	Waits      *journal.ChildParked  // while that run waits
	waitsSince int                   // the taking-up of this run during which it began to
	ChildEnd   *journal.ChildEnded
	Counted    bool // for the access token, at the first verdict that let it run
}

// repeat counts the same call with the same result in a row.
type repeat struct {
	name, content string
	arguments     []byte
	n             int
}

// size keeps what is needed to estimate the tokens of the next request.
type size struct {
	bytes         int64   // of all messages now
	rest          int64   // of the system text and the tools, when tokens were reported
	perToken      float64 // bytes a token, as reported; 0 = not known
	reportedBytes int64   // of the messages of the last request whose tokens were reported
	reported      int64   // its input tokens
}

// Public is the state as users of a server read it (see [journal.Public]). No run continues from it.
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

// Whole reports whether all calls of the turn have come.
func (t *Turn) Whole() bool { return len(t.Calls) == t.Expected }

// doubtful reports whether the call started once, has not started again, and nobody knows
// whether it took effect.
func (c *Call) doubtful() bool { return c.Lost || c.Retried && c.Started == nil }

// lost returns the calls of which nobody knows what became of them.
func (t *Turn) lost() []*Call {
	return t.openIf(func(c *Call) bool { return c.Lost })
}

// open returns the calls without a result.
func (t *Turn) open() []*Call { return t.openIf(anyCall) }

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

// countIf counts the calls without a result for which is holds.
func (t *Turn) countIf(is func(*Call) bool) (n int) {
	for _, c := range t.Calls {
		if c.Result == nil && is(c) {
			n++
		}
	}
	return n
}

// Ended reports whether the run has ended.
func (s *State) Ended() bool { return s.Done != nil || s.Failed != nil }

// NewState is the state of a run of which nothing is known yet, with room for five rounds.
func NewState(run toolcrib.RunID) *State {
	return &State{Run: run, ids: make(map[string]bool), digest: sha256.New(), Messages: make([]toolcrib.Message, 0, 12)}
}

// Limits returns the limits of the run, complete.
func (s *State) Limits() toolcrib.Limits {
	l := s.limits
	l.MaxIterations += s.Granted.Iterations
	return l
}

// OfferedNow returns what was offered with the request that the current turn
// answers; nil = nothing.
func (s *State) OfferedNow() map[string]bool {
	if s.Start.Given == nil {
		if s.Asked == nil || s.Asked.OfferHash == "" || s.Asked.Choice.Mode == toolcrib.ChoiceNone {
			return nil
		}
	}
	return s.offerSet()
}

// Reconciled reports whether an open call is a write of which its tool has said that
// it happened: its result follows at once.
func (s *State) Reconciled(callID string) bool {
	c, err := s.find(callID)
	return err == nil && c.Reconciled != nil && c.Reconciled.State == toolcrib.Happened
}

// Repeated reports how often in a row, up to now, this call had the same result.
func (s *State) Repeated(name string, arguments []byte) int {
	if s.repeat.name != name || !bytes.Equal(s.repeat.arguments, arguments) {
		return 0
	}
	return s.repeat.n
}
