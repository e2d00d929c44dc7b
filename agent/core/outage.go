package core

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// Error classes that only the journal uses: a request that was cancelled by its run, and one that was
// open when its driver was lost. Neither is a failure of the provider.
const (
	ClassCancelled toolcrib.ErrorClass = "cancelled"
	ClassLost      toolcrib.ErrorClass = "lost"
)

// If a provider fails, the request is repeated for a while, then sent to the next model. After that a
// run that has a reply parks, and one without fails. All this is decided from events: how long a
// request has been retried is the sum of the waits and durations in the journal.

// Limits on the retries of one request on one model, and on the waits between them.
const (
	maxAttempts = 4 // if there is another model
	firstDelay  = 500 * time.Millisecond
	maxDelay    = 30 * time.Second
	// longestWait is the longest wait that a provider may ask for if there is another model.
	longestWait = 60 * time.Second
	// The pauses after which a server retries a parked run.
	firstPause = time.Minute
	maxPause   = time.Hour
)

// WaitsForProvider reports whether the run is parked because its own provider failed.
func (s *State) WaitsForProvider() bool {
	return s.Pending != nil && s.Pending.Kind == journal.PendingProvider && s.Pending.Run == ""
}

// paused records that the run waits. Waiting for a provider does not count as lack of progress.
func (s *State) paused(b *journal.Paused) error {
	// A pause must not look like an end: a run that has ended may be imported, and one that waits may continue.
	if !b.Status.Parked() || b.Pending.Kind == journal.PendingProvider && b.Pending.Run == "" && b.Pending.Error == nil {
		return fmt.Errorf("a run cannot wait as %q for %q", b.Status, b.Pending.Kind)
	}
	s.Status, s.Pending, s.Held = b.Status, &b.Pending, false
	if s.WaitsForProvider() {
		s.Idle, s.counted = 0, false
		s.parks++
		s.parked += time.Duration(b.Pending.Error.RetryMS) * time.Millisecond
	}
	return nil
}

// askAnew clears the failures of the current request, which is sent again, beginning with the first
// model.
func (s *State) askAnew() {
	if s.WaitsForProvider() {
		s.Pending, s.Status = nil, toolcrib.StatusQueued
	}
	s.Model, s.Failures, s.LastFailed, s.retried, s.shortened, s.overlong = s.First(), 0, nil, 0, false, false
}

// chosen adds the model that answers from now on.
func (s *State) chosen(b *journal.ModelChosen) {
	s.Models = append(s.Models, b.Model)
	s.askAnew()
}

// nextAfterFailure returns the step after a failed request: the same request, the next model, a pause,
// or the end.
func nextAfterFailure(s *State) Step {
	f := s.LastFailed
	if step, ok := repair(s, f); ok {
		return step
	}
	next, skipped := 0, []toolcrib.Body(nil)
	if f.Class != toolcrib.ErrRefused {
		next, skipped = fallback(s)
	}
	if delay, ok := s.retryDelay(f, next > 0); ok {
		step := askAgain(s, s.Failures+1, delay)
		if step.Delay > 0 {
			step.Notices = append(step.Notices, s.retrying(f, step.Delay, next > 0))
		}
		return step
	}
	switch {
	case next > 0:
		step := ask(s, next, 1, 0)
		step.Notices = append(step.Notices, skipped...)
		step.note(NoticeFallback, "%s failed (%s); continuing with %s", s.Models[s.Model].Ref, f.Class, s.Models[next].Ref)
		return step
	case s.Asked != nil && s.Start.Retry.Park >= 0 && f.Class != toolcrib.ErrRefused &&
		f.Class != toolcrib.ErrContextLength:
		return parkForProvider(s, f)
	}
	reason := toolcrib.StopProviderFailed
	if f.Class == toolcrib.ErrContextLength {
		reason = toolcrib.StopContextLength
	}
	step := fail(s, reason, fmt.Sprintf("%s: %s", f.Class, f.Message))
	if after, most := retryAfter(f), s.retryFor(); after > most {
		step.Message += fmt.Sprintf(" (it asks to wait %s; a run without a reply waits %s: retry.first)", after, most)
	}
	if step.Ref = f.Ref; f.Ref != "" {
		step.Class = f.Class
	}
	return step
}

// retrying returns the notice that a request is sent again. It is one line, without what the provider
// said: that is in the journal and in the log.
func (s *State) retrying(f *journal.ModelFailed, delay time.Duration, spare bool) *journal.Notice {
	cause := strings.ReplaceAll(string(f.Class), "_", " ")
	if f.Status > 0 {
		cause = strconv.Itoa(f.Status)
	}
	again := fmt.Sprintf("trying again in %v s (%d of %d)", math.Round(delay.Seconds()*10)/10, s.Failures+1,
		s.attempts(delay, spare))
	if f.OutputBegan {
		return journal.Noticef(NoticeRestarted, "%s: %s, %s; ignore what was shown of this reply", f.Provider, cause, again)
	}
	n := journal.Noticef(NoticeRetry, "%s: %s, %s", f.Provider, cause, again)
	if f.Ref != "" {
		n.Public = fmt.Sprintf("%s; %s (%s)", journal.RequestFailed(f.Class), again, f.Ref)
	}
	return n
}

// attempts returns how often the current request is sent at most, if the next attempt follows after
// delay and no provider asks for a longer wait.
func (s *State) attempts(delay time.Duration, spare bool) int {
	n, left := s.Failures+1, s.retryFor()-s.retried-delay
	for ; left > 0 && !(spare && n >= maxAttempts); n++ {
		left -= backoff(n)
	}
	return n
}

// backoff returns the delay after so many failures in a row.
func backoff(failures int) time.Duration { return min(firstDelay<<min(failures-1, 10), maxDelay) }

// repair returns the step after a failure that another form of the request may avoid. ok reports
// whether it is such a failure.
func repair(s *State, f *journal.ModelFailed) (step Step, ok bool) {
	switch {
	case f.NoTools && s.textFrom == f.Request:
		step := ask(s, s.Model, 1, 0)
		step.note(NoticeToolsAsText, "%s takes no tools; it is asked again by the text protocol", s.Models[s.Model].Ref)
		return step, true
	case f.Class == toolcrib.ErrContextLength && s.shortened:
		if !s.askedShort {
			return ask(s, s.Model, 1, 0), true
		}
	case f.Class == toolcrib.ErrContextLength:
		return shorten(s)
	}
	return Step{}, false
}

// shorten returns the step after a request that was refused for its length. ok is false if nothing can
// be replaced.
func shorten(s *State) (step Step, ok bool) {
	if s.Start.Agent.ContextStrategy == ContextFail {
		return Step{}, false
	}
	// The API takes less than was sent, whatever its context is said to be.
	limit := estimateInput(s, s.toolBytes()) * 7 / 10
	if known := room(&s.Models[s.Model], defaultReserve); known > 0 {
		limit = min(limit, known)
	}
	return condense(s, s.Model, limit, string(toolcrib.ErrContextLength))
}

// askAgain requests again, from the same model, the reply or summary that failed.
func askAgain(s *State, attempt int, delay time.Duration) Step {
	if s.overlong {
		if step, ok := shorten(s); ok {
			return step.after(attempt, delay)
		}
	}
	return ask(s, s.Model, attempt, delay)
}

// after sets the attempt of a step's request and the delay before it. A step without a request has no
// delay.
func (step Step) after(attempt int, delay time.Duration) Step {
	if step.Kind == StepCondense && step.Condense.Ask {
		step.Attempt, step.Delay = attempt, delay
	}
	return step
}

// retryFor returns how long the current request may be retried.
func (s *State) retryFor() time.Duration {
	if s.Asked == nil {
		return s.Start.Retry.First
	}
	return s.Start.Retry.MaxElapsed
}

// retryDelay returns the delay before the same model is asked again. ok is false if it is not. The
// limits are lower if there is another model.
func (s *State) retryDelay(f *journal.ModelFailed, spare bool) (delay time.Duration, ok bool) {
	left, after := s.retryFor()-s.retried, retryAfter(f)
	// toolcrib itself delays requests to the provider, which has failed often enough.
	heldBack := f.Unsent && f.Class == toolcrib.ErrOverloaded
	switch {
	case !f.Class.Retryable() || left <= 0:
		return 0, false
	case spare && (heldBack || s.Failures >= maxAttempts || after > longestWait):
		return 0, false
	case heldBack && after > 0:
		return after, true // a request sent sooner would be held back
	case after > 0:
		return min(after, left), true
	}
	return min(backoff(s.Failures), left), true
}

// parkForProvider releases a run until its provider can be asked again.
func parkForProvider(s *State, f *journal.ModelFailed) Step {
	out := &journal.Outage{
		Class: f.Class, Provider: f.Provider, Model: s.Models[s.Model].Ref, Message: f.Message,
		Ref: f.Ref,
	}
	if left := s.Start.Retry.Park - s.parked; f.Class.Retryable() && left > 0 {
		pause := min(max(firstPause<<min(s.parks, 10), retryAfter(f)), max(maxPause, retryAfter(f)), left)
		out.RetryMS = pause.Milliseconds()
	}
	return Step{Kind: StepPark, Pending: &journal.Pending{Kind: journal.PendingProvider, Error: out}}
}

// ClassBudget is the class of the [journal.Outage] of a run whose budget was used up by failed
// requests.
const ClassBudget toolcrib.ErrorClass = "budget_exhausted"

// answered returns the usage of the run without failed requests.
func (s *State) answered() Used {
	spent := s.Used()
	spent.Requests -= s.unanswered.Requests
	spent.TotalTokens -= s.unanswered.TotalTokens
	spent.CostUSD -= s.unanswered.CostUSD
	return spent
}

// parkForBudget parks a run that could send its next request if earlier ones had not failed, so that
// an outage does not end it. short is the name of the cap.
func parkForBudget(s *State, model int, short string) Step {
	lost, m := &s.unanswered, &s.Models[model]
	out := &journal.Outage{
		Class: ClassBudget, Provider: m.Provider, Model: m.Ref,
		Message: fmt.Sprintf("%s; requests that failed (%d) have used %d tokens", short, lost.Requests, lost.TotalTokens),
	}
	if lost.CostUSD > 0 {
		out.Message += fmt.Sprintf(" and $%.4f", lost.CostUSD)
	}
	if f := s.LastFailed; f != nil {
		out.Message += fmt.Sprintf(" (the last one: %s: %s)", f.Class, f.Message)
		out.Ref = f.Ref
	}
	b := s.Budget()
	if b.MaxTokens > 0 {
		out.AddTokens = lost.TotalTokens
	}
	if b.MaxCostUSD > 0 {
		out.AddCostUSD = math.Ceil(lost.CostUSD*1e4) / 1e4
	}
	if b.MaxRequests > 0 {
		out.AddRequests = lost.Requests
	}
	out.Message += fmt.Sprintf(": `runs resume %s%s` makes up for them", s.Run, out.Adds())
	return Step{Kind: StepPark, Pending: &journal.Pending{Kind: journal.PendingProvider, Error: out}}
}

// fallback returns the next model that may be asked, or 0. If a cap on cost is enforced (the run's
// own, that of the run that started it, or the user's), models without a price are skipped.
func fallback(s *State) (next int, skipped []toolcrib.Body) {
	capped := s.CostCap()
	for next = s.Model + 1; next < len(s.Models); next++ {
		m := &s.Models[next]
		if capped == "" || m.Price.Known {
			return next, skipped
		}
		skipped = append(skipped, journal.Noticef(NoticePriceUnknown,
			"%s has no known price, so %s cannot be kept with it; it is skipped", m.Ref, capped))
	}
	return 0, nil
}

// CostCap returns the name of an enforced cap on cost, which needs a price for every model, or "".
func (s *State) CostCap() string {
	all, n := s.bounds()
	if slices.ContainsFunc(all[:n], func(b bound) bool { return b.CostUSD > 0 }) {
		return "budget.max_cost_usd"
	}
	return s.Start.CostCap
}

func retryAfter(f *journal.ModelFailed) time.Duration {
	return time.Duration(f.RetryAfterMS) * time.Millisecond
}
