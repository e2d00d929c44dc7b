package core

import (
	"fmt"
	"slices"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// StepKind is the action of a step.
type StepKind string

const (
	StepNone      StepKind = ""          // the run has ended
	StepWait      StepKind = "wait"      // parked: a decision is needed first
	StepAsk       StepKind = "ask"       // send a request
	StepJudge     StepKind = "judge"     // let the gate decide about the turn
	StepConfirm   StepKind = "confirm"   // ask a person about the turn
	StepPark      StepKind = "park"      // release the run: there is no decision, or no provider
	StepSettle    StepKind = "settle"    // settle a request whose driver was lost
	StepReconcile StepKind = "reconcile" // find out whether lost writes took effect
	StepExecute   StepKind = "execute"   // run the allowed calls, answer the refused ones
	StepChildren  StepKind = "children"  // see whether child runs that waited can continue
	StepAnswer    StepKind = "answer"    // answer open calls without running them
	StepStop      StepKind = "stop"      // record that the run is to end
	StepFinish    StepKind = "finish"    // end the run
	StepCondense  StepKind = "condense"  // shorten the transcript
	StepCheck     StepKind = "check"     // check the answer against the agent's schema
)

// Step is the next step of a run. Kind determines which fields are set.
type Step struct {
	Kind StepKind

	// StepAsk
	Model   int // index into RunStarted.Models
	Attempt int // from 1
	Delay   time.Duration
	Closing bool
	Choice  toolcrib.ToolChoice
	Reserve Reserve
	Notices []toolcrib.Body // written before the step

	Condense *Condensation // StepCondense

	Pending *journal.Pending // StepPark; nil means the open approval

	// StepAnswer
	Answers []Answer

	// StepStop and StepFinish
	Reason    toolcrib.StopReason
	Status    toolcrib.Status
	Code      string // code of a failure
	Class     toolcrib.ErrorClass
	Message   string
	Ref       string
	Content   string
	Truncated bool
}

func (step *Step) note(code, format string, args ...any) {
	step.Notices = append(step.Notices, journal.Noticef(code, format, args...))
}

// Answer is the result of a call that is not run.
type Answer struct {
	Call    *Call
	Status  toolcrib.ResultStatus
	Reason  toolcrib.Reason
	Content string
	Raw     []byte // JSON to prepare for the model, instead of Content
}

// Reserve is the estimated maximum cost of a request.
type Reserve struct {
	Input, Output int64
	USD           float64
	MaxOutput     int // to be sent; 0 means the provider's default
}

// The texts that a model reads for calls that were not run.
const (
	TextIterationLimit = "iteration limit reached; finalise your answer"
	TextCancelled      = `{"error":"cancelled"}`
	TextInDoubt        = `{"error":"it is not known whether this call took effect; do not repeat it without checking"}`
	textEdited         = "[a person changed the arguments of this call before it ran; it ran with:] "
	textNotAnswered    = `{"error":"the person did not answer"}`
	textNotHappened    = `{"error":"the call was cut off and did not take effect"}`
)

// The notices of the loop itself.
const (
	NoticeFallback        = "fallback_used"
	NoticeRetry           = "retrying"
	NoticeRestarted       = "reply_restarted"
	NoticeOutputTruncated = "output_truncated"
	NoticeCostWarning     = "cost_warning"
	NoticePriceUnknown    = "price_unknown"
	NoticeToolsIgnored    = "tools_ignored"
	NoticeChoiceIgnored   = "tool_choice_ignored" // the model did not make the demanded call
	NoticeToolsAsText     = "tools_as_text"
	NoticeReplyEmpty      = "reply_empty"
	NoticeUnread          = "message_unread"
	NoticeWorkerCost      = "worker_tool_cost_warning"
)

const (
	// defaultReserve is reserved for a reply that has no bound.
	defaultReserve = 4096
	// largeOutput is more than most models write in one reply. A budget that leaves more is not sent
	// as a bound, because an API may refuse a number above its own.
	largeOutput = 32768
)

// Next returns the next step. It is pure.
func Next(s *State) Step {
	switch {
	case s.Ended():
		return Step{Kind: StepNone}
	case s.Open != nil:
		return Step{Kind: StepSettle}
	case s.Idle > maxIdle && s.Stopping == nil:
		return Step{
			Kind: StepStop, Reason: toolcrib.StopWorkerLost,
			Message: fmt.Sprintf("taken up %d times without progress", maxIdle),
		}
	case s.Turn != nil:
		return nextInTurn(s)
	case s.Stopping != nil:
		return finishStopped(s)
	case s.Start.Given != nil:
		return completed(s.Trace[0].Result.Content, false)
	case s.Denied && s.Start.Agent.OnDenial == onDenialStop:
		return fail(s, toolcrib.StopApprovalDenied, "a person denied a call, and the agent stops on a denial")
	case s.WaitsForProvider():
		return Step{Kind: StepWait}
	case s.Failures > 0:
		return nextAfterFailure(s)
	case s.Closed():
		return finishClosed(s)
	case s.atLimit() && asksForMore(s) && s.Limits().MaxIterations < toolcrib.MaxIterationsCeiling: // more can be granted
		return nextForMore(s, "")
	case s.atLimit() && s.Limits().OnLimit == toolcrib.OnLimitError:
		return fail(s, toolcrib.StopMaxIterations, fmt.Sprintf("max tool iterations (%d) exceeded", s.Limits().MaxIterations))
	case s.Last != nil && !hasCalls(s.Last):
		return finishAnswered(s)
	}
	return ask(s, s.Model, 1, 0)
}

const (
	onDenialStop = "stop"
	// maxIdle is how often a run is resumed without progress before it fails.
	maxIdle = 3
)

// atLimit reports whether the run has used all its rounds and the last one asks for another.
func (s *State) atLimit() bool {
	return s.Turn == nil && s.Start.Given == nil && s.Last != nil && hasCalls(s.Last) &&
		s.Iterations >= s.Limits().MaxIterations
}

// closing reports whether the next request is the closing one, which has no tools.
func (s *State) closing() bool { return s.usedUp() || s.atLimit() }

func hasCalls(m *journal.Message) bool {
	for _, p := range m.Parts {
		if p.ToolCall != nil {
			return true
		}
	}
	return false
}

// nextInTurn returns the next step while calls are open.
func nextInTurn(s *State) Step {
	t := s.Turn
	switch {
	case s.Stopping != nil:
		return answerAll(t, toolcrib.ResultCancelled, "", TextCancelled)
	case s.Last != nil && s.Last.Closing:
		return answerAll(t, toolcrib.ResultRefused, toolcrib.ReasonMaxIterations, TextIterationLimit)
	case s.Start.Given == nil && t.Iteration > s.Limits().MaxIterations: // an answer that was requested again
		return answerAll(t, toolcrib.ResultRefused, toolcrib.ReasonMaxIterations, TextIterationLimit)
	case s.Pending != nil:
		return Step{Kind: StepWait}
	case s.Approval != nil:
		return Step{Kind: StepPark}
	case len(t.Lost()) > 0:
		return nextForLost(t.Lost())
	case !t.Judged || t.Rejudge:
		return Step{Kind: StepJudge}
	}
	questions, clients, others := 0, 0, 0
	for _, c := range t.Calls {
		switch {
		case c.Result != nil:
		case c.Verdict != nil && c.Verdict.Decision == toolcrib.Ask:
			return Step{Kind: StepConfirm}
		case c.Question():
			questions++
		case c.ByClient():
			clients++
		case c.Waits != nil:
		default:
			others++
		}
	}
	switch {
	case others > 0:
		return Step{Kind: StepExecute}
	case clients > 0:
		return Step{Kind: StepPark, Pending: clientPending(t.Calls)}
	case questions > 0:
		return nextForQuestions(t)
	}
	return Step{Kind: StepChildren}
}

// Question reports whether a person answers the call, instead of a tool.
func (c *Call) Question() bool {
	return c.Verdict != nil && c.Verdict.Decision == toolcrib.Allow && c.Verdict.AnsweredBy == toolcrib.ByPerson
}

// nextForQuestions asks a person the questions of a turn, one after another, when all its other calls
// are answered.
func nextForQuestions(t *Turn) Step {
	step := Step{Kind: StepAnswer}
	for _, c := range t.Open() {
		if c.Answer == nil {
			continue
		}
		a := Answer{Call: c, Status: toolcrib.ResultOK, Raw: c.Answer.Result}
		if c.Answer.Decision != journal.DecisionAnswer {
			a = Answer{Call: c, Status: toolcrib.ResultError, Content: textNotAnswered}
		}
		step.Answers = append(step.Answers, a)
	}
	if len(step.Answers) > 0 {
		return step
	}
	return Step{Kind: StepConfirm}
}

// asksForMore reports whether a person is asked to raise a limit that was reached.
func asksForMore(s *State) bool {
	return s.Limits().OnLimit == toolcrib.OnLimitAsk && !s.Declined
}

// nextForMore asks a person whether to raise a limit.
func nextForMore(s *State, short string) Step {
	switch {
	case s.Pending != nil:
		return Step{Kind: StepWait}
	case s.Approval != nil:
		return Step{Kind: StepPark}
	}
	if short == "" {
		short = fmt.Sprintf("limits.max_iterations: %d reached", s.Limits().MaxIterations)
	}
	return Step{Kind: StepConfirm, Message: short}
}

func answerAll(t *Turn, status toolcrib.ResultStatus, reason toolcrib.Reason, text string) Step {
	step := Step{Kind: StepAnswer}
	for _, c := range t.Open() {
		a := Answer{Call: c, Status: status, Reason: reason, Content: text}
		if c.Doubtful() {
			a.Status, a.Reason, a.Content = toolcrib.ResultInDoubt, "", TextInDoubt
		}
		step.Answers = append(step.Answers, a)
	}
	return step
}

// nextForLost decides about writes whose driver was lost. First the tool is asked, then a person; the
// answer becomes the result.
func nextForLost(lost []*Call) Step {
	if slices.ContainsFunc(lost, func(c *Call) bool { return c.Reconciled == nil }) {
		return Step{Kind: StepReconcile}
	}
	step := Step{Kind: StepAnswer}
	for _, c := range lost {
		switch {
		case c.Doubt == nil:
			return Step{Kind: StepConfirm}
		case c.Doubt.Decision == journal.DecisionHappened:
			step.Answers = append(step.Answers, Answer{Call: c, Status: toolcrib.ResultOK, Raw: c.Doubt.Result})
		case c.Doubt.Decision == journal.DecisionNotHappened:
			step.Answers = append(step.Answers, Answer{Call: c, Status: toolcrib.ResultError, Content: textNotHappened})
		default:
			step.Answers = append(step.Answers, Answer{Call: c, Status: toolcrib.ResultInDoubt, Content: TextInDoubt})
		}
	}
	return step
}

// ask returns the step of the next request, or of the end if the budget is used up.
func ask(s *State, model, attempt int, delay time.Duration) Step {
	step := Step{Kind: StepAsk, Model: model, Attempt: attempt, Delay: delay, Closing: s.closing()}
	// auto is the zero value, so that the request is the same in every round.
	if choice := s.Start.Agent.ToolChoice; choice.Mode != toolcrib.ChoiceAuto &&
		(s.Asked == nil || s.choiceAgain || s.empty && demandsCall(s.Asked) || choice.Mode == toolcrib.ChoiceNone) {
		step.Choice = choice
	}
	reserve, short, more := reserveFor(s, model, s.Used())
	if room, fits := makeRoom(s, model, reserve); !fits {
		return room.after(attempt, delay)
	}
	if short != "" && more && asksForMore(s) {
		return nextForMore(s, short)
	}
	if short != "" && more && !s.Declined && s.Start.Retry.Park >= 0 {
		if _, other, _ := reserveFor(s, model, s.answered()); other == "" {
			return parkForBudget(s, model, short)
		}
	}
	if short != "" {
		return Step{Kind: StepStop, Reason: toolcrib.StopBudgetExhausted, Message: short}
	}
	step.Reserve = reserve
	if s.Budget().Mode == toolcrib.BudgetWarn && !s.Warned {
		if caps := spentCaps(s); caps != "" {
			step.note(NoticeCostWarning, "the run's budget is spent (%s); its mode is warn, so the run continues", caps)
		}
	}
	return step
}

func completed(content string, truncated bool) Step {
	return Step{
		Kind: StepFinish, Status: toolcrib.StatusCompleted, Reason: toolcrib.StopCompleted, Content: content,
		Truncated: truncated,
	}
}

func fail(s *State, reason toolcrib.StopReason, message string) Step {
	return Step{
		Kind: StepFinish, Status: toolcrib.StatusFailed, Reason: reason, Code: string(reason), Message: message,
		Content: s.LastText,
	}
}

// finishAnswered ends a run whose last reply has no calls.
func finishAnswered(s *State) Step {
	text := toolcrib.Message{Parts: s.Last.Parts}.Text()
	switch {
	case s.Last.Finish == FinishBudget, s.Last.Finish == FinishTime:
		step := completed(text, true)
		step.Reason = toolcrib.StopReason(s.Last.Finish)
		return step
	case s.Last.Finish == toolcrib.FinishFiltered:
		return fail(s, toolcrib.StopProviderFailed, "refused: the provider filtered the answer")
	case s.empty:
		return fail(s, toolcrib.StopProviderFailed, "refused: the model gave neither text nor calls")
	case len(s.Start.Agent.OutputSchema) > 0 && s.mustCheck():
		return Step{Kind: StepCheck}
	case len(s.Start.Agent.OutputSchema) > 0:
		return finishChecked(s)
	}
	return completed(text, s.Last.Finish == toolcrib.FinishLength)
}

// finishClosed ends a run after its closing request. If a worker had no calls left, its answer is
// still complete (X6).
func finishClosed(s *State) Step {
	switch held := s.usedUp() && !hasCalls(s.Last) && len(s.Start.Agent.OutputSchema) > 0; {
	case held && s.mustCheck():
		return Step{Kind: StepCheck}
	case held:
		return finishChecked(s)
	}
	if s.usedUp() && !hasCalls(s.Last) && s.Iterations < s.Limits().MaxIterations {
		return completed(s.LastText, s.Last.Finish == toolcrib.FinishLength)
	}
	step := completed(s.LastText, true)
	step.Reason = toolcrib.StopMaxIterations
	return step
}

// finishStopped ends a run that was stopped early, with the text so far (N10).
func finishStopped(s *State) Step {
	step := Step{
		Kind: StepFinish, Reason: s.Stopping.Reason, Message: s.Stopping.Message, Content: s.LastText,
		Truncated: true,
	}
	switch s.Stopping.Reason {
	case toolcrib.StopCancelled:
		step.Status, step.Truncated = toolcrib.StatusCancelled, s.LastText != ""
	case toolcrib.StopBudgetExhausted, toolcrib.StopWallTime:
		step.Status = toolcrib.StatusCompleted
	default:
		step.Status, step.Code = toolcrib.StatusFailed, string(s.Stopping.Reason)
	}
	return step
}
