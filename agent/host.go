package agent

import (
	"context"
	"crypto/cipher"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// Host is the part of [Options] for programs that run agents for many users, in several processes or as teams, such
// as toolcrib's own server. Other programs leave it zero.
type Host struct {
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
	// its driver calls release at the end. While another process drives the run, Claim waits. If ctx
	// ends meanwhile, and [CancelOf] its cause is not nil, Claim passes that on to the process and waits
	// for it for a limited time. If Claim is nil, the run is not locked.
	Claim func(ctx context.Context, run toolcrib.RunID) (release func(), err error)
	// HandOver returns a function that gives a child run to another process, or nil if this process is
	// to drive it. The run has begun and is not locked. The function returns when a process has locked
	// the run, to drive it with [Runner.ResumeChild], or when none is likely to. HandOver is not called
	// for the first of the child runs that are driven in parallel. It may be nil.
	HandOver func() func(ctx context.Context, run toolcrib.RunID)
	// Nested obtains the decisions that s, the run of a call made by a call in progress, waits for,
	// and continues s. It returns the state of s. If s still waits then, or if Nested is nil, the call
	// is refused.
	Nested func(ctx context.Context, r *Runner, s *State) (*State, error)

	// Attended means that a person is asked in this process about what a parked run waits for. What its tools run beyond
	// their calls, such as commands in the background, then continues until the run ends, or [Runner.Release] is called.
	Attended bool
	// Who is the user behind the Approver, with current rights. If zero, it is the user of the run.
	Who       toolcrib.Principal
	Announcer Announcer // if nil, parked runs are not announced
	// Watched reports whether a run is being watched, so that the pieces of a reply are not shown in
	// vain. If nil, runs are always watched.
	Watched func(run toolcrib.RunID) bool
	// TreeUse returns the usage of the run's tree so far, for the limits of sessions. If nil, an agent
	// that limits the cost or tokens of a session cannot run.
	TreeUse func(ctx context.Context, run toolcrib.RunID) (journal.SessionUse, error)

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

	// Buffers are the texts of files in a person's editor, for the tools that read and write files. If nil, there
	// is no editor.
	Buffers toolcrib.Buffers
	// Seal returns the cipher that seals answers to questions about secrets, so that only the tool
	// that asks reads them. If nil, answers are kept unsealed.
	Seal func() (cipher.AEAD, error)

	Clock   Clock                      // if nil, the machine's clock
	Worker  string                     // name of this driver in the journal
	Version string                     // toolcrib's version
	NewID   func(prefix string) string // if nil, [NewID]
}

// Hosted is the part of a [Task] that links its run to other runs, clients and skills. The runner fills it in for
// forks and sub-agents, and a [Host] for what it manages. Other programs leave it zero.
type Hosted struct {
	Run    toolcrib.RunID // ID that was assigned before; if "", a new one is made
	Driver string         // cli or server
	Site   string         // see [journal.RunStarted]
	Once   string         // see [journal.RunStarted]
	Asked  string         // see [journal.RunStarted]
	// Before is the usage of the session before the run tree. For a child run, Worked includes the
	// time of the runs above.
	Before journal.SessionUse
	Canary string         // the token that marks untrusted data in History; if "", a new one is made
	Retry  *journal.Retry // if nil, [Options.Retry]

	// FromClient means that a client supplied History. It is then checked, and the results of tools
	// in it are untrusted data. Without a Prompt it must end with a message of the user or with results.
	FromClient bool
	// HistoryFiles are attached to messages of History, by index. At most 64 files, with the limits of
	// Files.
	HistoryFiles map[int][]toolcrib.OutputFile

	Parent toolcrib.RunID
	Depth  int
	Above  *journal.Above // restrictions by the runs above; nil if none
	Share  *journal.Share // share of their budget; if nil, there is no cap
	Worker *journal.WorkerLimits

	// ForkedFrom and ForkedRound are the origin of History. If they are set, Prompt may be empty.
	ForkedFrom  toolcrib.RunID
	ForkedRound int
	Compact     bool      // only condense History, even if it would fit; there is no Prompt
	Ran         []RanCall // calls that took effect before; a person is asked before they run again

	SkillTools  []string
	WorkerTools []string
	// Skills are those in use by the run. The caller must set SkillTools to the tools that they allow,
	// and add their text to History.
	Skills []journal.Skill
	// Listed are further skills that the run may read. They neither restrict nor grant tools.
	Listed  []journal.Skill
	Notices []toolcrib.Notice // notices for readers of its events from the start

	// Given makes a run of one call without a model. Beside is the session in which a person made the
	// call, if any.
	Given  *toolcrib.ToolCall
	Beside toolcrib.SessionID
}
