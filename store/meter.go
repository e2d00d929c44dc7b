package store

import (
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// Meter knows whom the use of a run is charged to. The zero value is that of a run
// without events; it is a value, and a copy stays as it is.
type Meter struct {
	models []modelName // of the run, never changed
	index  int         // into models, of the last request
	day    Day         // of the last request
	asked  bool        // there was a request
}

type modelName struct {
	provider, id string
	priced       bool
}

// Needs reports whether an event says that anything was used, so that the meter has
// to be known.
func (Meter) Needs(body toolcrib.Body) bool {
	switch b := body.(type) {
	case *journal.Usage:
		return true
	case *journal.ToolResult:
		return toolName(b.Name) // a model may make up any
	case *journal.ModelFailed:
		return !b.Unsent
	}
	return false
}

// Learn takes what an event tells of the models of a run.
func (m *Meter) Learn(body toolcrib.Body, at time.Time) {
	switch b := body.(type) {
	case *journal.RunStarted:
		if m.models != nil {
			return
		}
		m.models = make([]modelName, len(b.Models))
		for i, info := range b.Models {
			m.models[i] = modelName{provider: info.Provider, id: info.ID, priced: info.Price.Known}
		}
	case *journal.ModelRequest:
		m.index, m.day, m.asked = b.Model, DayOf(at), true
	}
}

// Charge is what an event says was used: by a request, or by a call of a tool; or
// that a rule has decided about a call.
type Charge struct {
	key     UsageKey
	sum     UsageSum
	spent   Day // on which sum counts for the budgets of the user
	toolKey ToolUseKey
	toolSum ToolUseSum
	ruleKey RuleUseKey
	ruleSum RuleUseSum
}

// Charge adds what an event says was used to a list. rec is the run as it is before
// the event; what comes after the end of a run counts for nothing.
func (m *Meter) Charge(list []Charge, rec *RunRecord, e toolcrib.Event) []Charge {
	if rec.Status.Ended() {
		return list
	}
	if v, ok := e.Body.(*journal.Verdicts); ok {
		return decidedByRules(list, v, e.Time)
	}
	if !m.Needs(e.Body) {
		return list
	}
	var c Charge
	var model modelName
	if m.asked && m.index >= 0 && m.index < len(m.models) {
		model = m.models[m.index]
	}
	day := DayOf(e.Time)
	switch b := e.Body.(type) {
	case *journal.Usage:
		c.sum = settled(b.Tokens, b.CostUSD, b.Estimated)
		c.sum.Unpriced = m.asked && !model.priced && b.CostUSD == 0 && b.Tokens.CostUSD == nil
	case *journal.ModelFailed:
		c.sum = settled(b.Charged, b.ChargedUSD, b.Charged != toolcrib.TokenUsage{})
		c.sum.Unpriced = c.sum.Estimated && m.asked && !model.priced && b.ChargedUSD == 0
	case *journal.ToolResult:
		c.toolKey = ToolUseKey{Tool: b.Name, Day: day, Agent: rec.Agent, User: rec.User, Provider: model.provider, Model: model.id}
		c.toolSum = calledOnce(b)
		return append(list, c)
	}
	c.key = UsageKey{Day: day, Run: rec.ID, Provider: model.provider, Model: model.id, User: rec.User, Agent: rec.Agent, Session: rec.Session}
	if c.spent = day; m.asked {
		c.spent = m.day
	}
	return append(list, c)
}

// calledOnce is one call of a tool.
func calledOnce(b *journal.ToolResult) ToolUseSum {
	sum := ToolUseSum{Calls: 1, DurationMS: bounded(b.DurationMS)}
	if b.Status != toolcrib.ResultOK {
		sum.Errors = 1
	}
	if b.Status == toolcrib.ResultRefused {
		sum.Refused = 1
	}
	return sum
}

// Add adds a charge.
func (u *Used) Add(c Charge) {
	switch {
	case c.ruleSum.Calls > 0:
		u.addRule(c.ruleKey, c.ruleSum)
	case c.toolSum.Calls > 0:
		u.addTool(c.toolKey, c.toolSum)
	default:
		u.addModel(c.key, c.sum)
		u.addSpent(SpentKey{User: c.key.User, Day: c.spent}, c.sum.SpentBy())
	}
}

// settled is the use of one request.
func settled(t toolcrib.TokenUsage, usd float64, estimated bool) UsageSum {
	return UsageSum{
		Requests: 1, NanoUSD: nano(usd), Estimated: estimated,
		UsageTokens: UsageTokens{
			InputTokens: bounded(t.InputTokens), CachedInputTokens: bounded(t.CachedInputTokens), CacheWriteTokens: bounded(t.CacheWriteTokens),
			OutputTokens: bounded(t.OutputTokens), ReasoningTokens: bounded(t.ReasoningTokens),
		},
	}
}
