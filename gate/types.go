package gate

import (
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// Scope narrows the tools of one run: the agent's list, the run's list, and so on. A nil list
// restricts nothing, an empty list allows nothing. The scope comes from the run's snapshot,
// so it applies to the whole run. The current policy (overrides, settings, protected paths) is part
// of the [Gate].
type Scope struct {
	Agent       string   // name of the agent
	AgentTools  []string // names and globs
	SkillTools  []string
	RunTools    []string
	WorkerTools []string // passed on by the parent of a worker
	// AboveSkills has the lists of the skills of the runs above a worker. Each is also checked
	// against the arguments of calls. Their names are already in WorkerTools.
	AboveSkills [][]string
	Worker      *journal.WorkerLimits // bounds of the calls of a worker, or nil
	TaintWrites string                // ask | deny | allow: sinks once untrusted data has been read; anything else is ask
	HasSkills   bool                  // if not set, the run has no read_skill either
	ReadOnly    bool                  // refuse every write
	Unattended  bool                  // --approve deny: calls that need an approval are refused
	AllApproved bool                  // --approve all: no person looks at the questions
	TimeoutSet  bool                  // Timeout also bounds a tool whose calls may ask for their own
	Workspace   string                // absolute
	Depth       int                   // 0 for the run of a person
	MaxDepth    int
	MaxCalls    int // calls of a turn
	MaxRepeats  int // identical calls in a row; 0 means no limit
	Timeout     time.Duration
	MaxBytes    int
	FindAbove   int // bytes; a larger offer has a [toolcrib.Finder]; 0 means never
	// ClientTools are executed by the client of the run ([toolcrib.ByClient]).
	ClientTools []toolcrib.Spec
}

// Facts has the facts from the journal when a turn is judged.
type Facts struct {
	Run     toolcrib.RunID
	Session toolcrib.SessionID
	// Offered is the offer of the request that the calls answer. If nil, nothing is offered.
	Offered map[string]bool
	// Read has the arguments of calls as they were read from the reply ([Gate.Read]), by call ID.
	// The arguments of a call without an entry are read when it is judged.
	Read map[string]*Arguments
	// Repeated returns how many times in a row, up to now, an identical call had the same result.
	// If nil, none had.
	Repeated func(name string, arguments []byte) int
	// Ran returns where a call with these arguments, or a call with the same actions ([Gate.Does]),
	// took effect before the run began, in the run that it was forked from. It returns "" if
	// nowhere; if Ran is nil, no call did.
	Ran func(name string, arguments []byte, does []string) string
	// Decided has a person's decisions on calls of this turn, by call ID. The zero value of an
	// entry allows nothing.
	Decided map[string]Decided
	// Taint names the sources of untrusted data that the run has read.
	Taint []string
	// Remembered has earlier approvals that apply to later calls as well.
	Remembered []journal.Remembered
	// Agreed has the questions that were approved for the rest of the run ([journal.Question.Run]).
	Agreed []journal.Question
	// Lasting returns those from outside the run. It is called for a question that they may answer.
	// It may be nil.
	Lasting func() []journal.Remembered
	// Share says why a call that another agent answers has no share of the run's budget left, by
	// call ID. It returns "" if the call has one. If Share is nil, there is no budget. A call whose
	// child run was started keeps its share.
	Share func(callID string) string
	// Begun has the IDs of the calls whose own run has begun: data that this run has read since
	// cannot be in the input of that run.
	Begun map[string]bool
	// Place has the index of a call in its turn, by call ID, if not all calls of the turn are
	// judged. For a call that is not in it, the index among the judged calls is used.
	Place map[string]int
	// Hops is the number of calls that the run has tried before this turn, and SpentUSD its cost so
	// far, for the bounds of a worker.
	Hops     int
	SpentUSD float64
	// Buffers and Images are given to the calls ([toolcrib.Call]).
	Buffers toolcrib.Buffers
	Images  bool
	// Mask hides secrets in a preview. If nil, there are none.
	Mask func(string) string
	// Counted has the IDs of the calls of this turn that were counted for the access token when
	// they were judged before.
	Counted map[string]bool
	// Elsewhere reports whether another program carries the calls out, by its own tools: that a plan has no
	// effect says nothing about them.
	Elsewhere bool
	// NoEffect has the IDs of the calls that would have changed nothing, if Past is set.
	NoEffect map[string]bool
	// Past reports whether calls are judged as at the time they were made: the remaining calls of
	// an access token and the current state of the workspace and its files are ignored.
	Past bool
	// DryRun reports whether calls are judged only to show the result, not to run. They are not
	// counted.
	DryRun bool
}

// Decided is a person's decision on one call.
type Decided struct {
	Decision   string // journal.DecisionApprove or journal.DecisionDeny; anything else is no decision
	ApprovalID string
	By         string
	Reason     string // a person's words, or "expired"
	// Asked has the questions that the person was asked. A call that now raises another question is
	// asked about again.
	Asked []journal.Question
	// Binding is the state that the approval is bound to. If it has changed, the call is asked
	// about again. Unbound reports whether no person was shown the state (--approve all).
	Binding *journal.Binding
	Unbound bool
	// Begun reports whether the call had begun to run, so that it may have changed its files
	// itself.
	Begun bool
	// Retried reports whether the call is in doubt and a person decided to run it again. That
	// decision is bound to Binding like an approval, even if there is no other question.
	Retried bool
}

// Verdict is the gate's answer to one call: the record that is journaled, and,
// if and only if the call may run, the permit to run it.
type Verdict struct {
	journal.Verdict
	// Content is the text of a refusal for the model, as JSON.
	Content string
	Permit  Permit
	// Programs are the programs that the call starts. They are set only for a call that is not to
	// run ([Facts.DryRun]).
	Programs []toolcrib.Program
}
