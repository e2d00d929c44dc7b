package gate

import (
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// Scope is what narrows the tools of one run: the agent's list, the run's list,
// and so on. A nil list means no restriction from that layer, an empty list
// means nothing (N15). It comes from the run's snapshot, so it holds for the
// whole run; the policy (overrides, settings, protected paths) is today's and
// belongs to the [Gate].
type Scope struct {
	Agent       string   // name of the agent
	AgentTools  []string // names and globs
	SkillTools  []string
	RunTools    []string
	WorkerTools []string // what the parent of a worker passes on
	// AboveSkills are the lists of the skills of the runs above a worker: each holds for
	// the arguments of calls, too. Their names are in WorkerTools already.
	AboveSkills [][]string
	Worker      *journal.WorkerLimits // bounds of the calls of a worker; nil = none
	TaintWrites string                // ask | deny | allow: sinks once untrusted data has been read; anything else is ask
	HasSkills   bool                  // without any, the run has no read_skill either
	ReadOnly    bool                  // refuse every write
	NobodyAsks  bool                  // --approve deny: whatever would be asked is refused
	AllApproved bool                  // --approve all: nobody looks at what is asked
	TimeoutSet  bool                  // Timeout also bounds a tool whose calls may ask for their own
	Workspace   string                // absolute
	Depth       int                   // 0 = the run of a person
	MaxDepth    int
	MaxCalls    int // a turn
	MaxRepeats  int // identical calls in a row; 0 = off
	Timeout     time.Duration
	MaxBytes    int
	FindAbove   int // bytes; a larger offer has a [toolcrib.Finder]; 0 = never
	// ClientTools are those that the client of the run carries out ([toolcrib.ByClient]).
	ClientTools []toolcrib.Spec
}

// Facts is what the fold of the journal knows when a turn is judged.
type Facts struct {
	Run     toolcrib.RunID
	Session toolcrib.SessionID
	// Offered is the offer of the request that the calls answer. nil = nothing.
	Offered map[string]bool
	// Repeated returns how often in a row, up to now, this very call had the
	// same result; nil = never.
	Repeated func(name string, arguments []byte) int
	// Ran returns where a call with these arguments, or one that did what this one does
	// ([Gate.Does]), took effect before the run began, in what it was forked from; "" or
	// nil = nowhere.
	Ran func(name string, arguments []byte, does []string) string
	// Decided holds decisions of a person on calls of this turn, by call ID; the
	// zero value of an entry lets nothing pass.
	Decided map[string]Decided
	// Taint names the sources of untrusted data that the run has read.
	Taint []string
	// Remembered are earlier approvals that hold for later calls, too.
	Remembered []Remembered
	// Lasting returns those from outside of the run. It is called for a question that they may answer. nil = none.
	Lasting func() []Remembered
	// Share says why a call that another agent answers has no part in the run's budget
	// any more, by the call's ID; "" = it has one. nil = there is no budget. A call whose
	// child run was started keeps its part.
	Share func(callID string) string
	// Begun are the calls, by ID, whose own run has begun: what the run has read since
	// cannot be in what that was told.
	Begun map[string]bool
	// Place is where a call is in its turn, by ID, for when not all calls of the turn
	// are judged; a call that is not in it stands where it is among those that are.
	Place map[string]int
	// Hops is how many calls the run has tried before this turn, SpentUSD what it has
	// spent: for the bounds of a worker.
	Hops     int
	SpentUSD float64
	// Mask hides secrets in a preview; nil = there are none.
	Mask func(string) string
	// Counted are the calls of this turn, by ID, that were counted for the access
	// token when they were judged before.
	Counted map[string]bool
	// Past says that the calls are judged as they were made then: what is left of the
	// calls of an access token, and what the workspace and its files are now, is not
	// looked at.
	Past bool
	// DryRun says that the calls are judged to tell what would be, not to run: none
	// is counted.
	DryRun bool
}

// Decided is what a person decided on one call.
type Decided struct {
	Decision   string // journal.DecisionApprove or journal.DecisionDeny; anything else is no decision
	ApprovalID string
	By         string
	Reason     string // a person's words, or "expired"
	// Asked are the questions that the person was asked. A call that asks another one now
	// is asked about again.
	Asked []journal.Question
	// Binding is what the approval is bound to: where that is otherwise now, the call is
	// asked about again. Unbound says that nobody was shown how things are (--approve all).
	Binding *journal.Binding
	Unbound bool
	// Begun says that the call had begun to run: that its files are otherwise now may be
	// its own doing.
	Begun bool
	// Retried says that the call is in doubt and that a person said to run it once more.
	// That word is bound to Binding like an approval, also where nothing else asks.
	Retried bool
}

// Verdict is the gate's answer to one call: the record that is journaled, and,
// if and only if the call may run, the permit to run it.
type Verdict struct {
	journal.Verdict
	// Content is what the model reads of a refusal (contract §6), as JSON.
	Content string
	Permit  Permit
	// Programs are those that the call starts; only of a call that is not to run
	// ([Facts.DryRun]).
	Programs []toolcrib.Program
}
