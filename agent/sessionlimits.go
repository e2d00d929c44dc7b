package agent

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// The limits of a session (agents.X.session) apply to all its runs together. The runs of a session
// follow one another, and the first event of each has the usage of the session before it. Cost and
// tokens of its own run tree are read from the store before each request. Calls that a person makes
// next to the session may run at the same time; they are not included.

// strictest returns the smaller of each pair of limits; 0 means no limit.
func strictest(a, b toolcrib.SessionLimits) toolcrib.SessionLimits {
	return toolcrib.SessionLimits{
		MaxCostUSD: smaller(a.MaxCostUSD, b.MaxCostUSD), MaxTokens: smaller(a.MaxTokens, b.MaxTokens),
		WallTime: smaller(a.WallTime, b.WallTime),
	}
}

// smaller returns the smaller of two caps; 0 means no cap.
func smaller[T cmp.Ordered](a, b T) T {
	var none T
	if a == none || b != none && b < a {
		return b
	}
	return a
}

// sessionLimits returns those of the agent, narrowed by those of the runs above.
func sessionLimits(a *toolcrib.Agent, above *journal.Above) toolcrib.SessionLimits {
	if above == nil {
		return a.Session
	}
	return strictest(a.Session, above.Session)
}

// BySession marks a stop because of the limits of the session.
const BySession = "session"

// sessionSpent stops a run before a request if the cost or the tokens of its session are used up.
func (d *driver) sessionSpent(ctx context.Context) (stop bool, err error) {
	l := sessionLimits(&d.s.Start.Agent, d.s.Start.Above)
	if l.MaxCostUSD <= 0 && l.MaxTokens <= 0 {
		return false, nil
	}
	if d.r.TreeUse == nil {
		return false, usagef("run %s has limits of its session, which need Options.TreeUse", d.s.Run)
	}
	// The store knows only the usage that is in the journal.
	if err := d.flush(ctx); err != nil {
		return false, err
	}
	use, err := d.r.TreeUse(ctx, d.s.Run)
	if err != nil && ctx.Err() != nil {
		return true, d.givenUp(ctx, context.Cause(ctx))
	}
	if err != nil {
		return false, fmt.Errorf("the limits of the session: %w", err)
	}
	use.CostUSD, use.Tokens = use.CostUSD+d.s.Start.Before.CostUSD, use.Tokens+d.s.Start.Before.Tokens
	spent := &journal.Stopping{Reason: toolcrib.StopBudgetExhausted, By: BySession}
	switch {
	case l.MaxCostUSD > 0 && use.CostUSD >= l.MaxCostUSD:
		spent.Message = fmt.Sprintf("session.max_cost_usd: %.6g of %g spent by the runs of the session", use.CostUSD, l.MaxCostUSD)
	case l.MaxTokens > 0 && use.Tokens >= l.MaxTokens:
		spent.Message = fmt.Sprintf("session.max_tokens: %d of %d used by the runs of the session", use.Tokens, l.MaxTokens)
	default:
		return false, nil
	}
	return true, d.append(ctx, spent)
}

// sessionTime returns the time that the limits of the session leave a run that has worked so long.
func (d *driver) sessionTime(worked time.Duration) (left time.Duration, bounded bool) {
	l := sessionLimits(&d.s.Start.Agent, d.s.Start.Above)
	return l.WallTime - d.s.Start.Before.Worked - worked, l.WallTime > 0
}
