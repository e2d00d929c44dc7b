package store

import (
	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// Meter knows whom the use of a run is charged to. The zero value is that of a run
// without events; it is a value, and a copy stays as it is.
type Meter struct {
	models []modelName // of the run, never changed
	index  int         // into models, of the last request
	asked  bool        // there was a request
}

type modelName struct{ provider, id string }

// Needs tells whether an event says that anything was used, so that the meter has
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
func (m *Meter) Learn(body toolcrib.Body) {
	switch b := body.(type) {
	case *journal.RunStarted:
		if m.models != nil {
			return
		}
		m.models = make([]modelName, len(b.Models))
		for i, info := range b.Models {
			m.models[i] = modelName{provider: info.Provider, id: info.ID}
		}
	case *journal.ModelRequest:
		m.index, m.asked = b.Model, true
	}
}

// Charge is what one event says was used: by a request, or by a call of a tool.
type Charge struct {
	key     UsageKey
	sum     UsageSum
	toolKey ToolUseKey
	toolSum ToolUseSum
}

// Charge tells what an event says was used; false = nothing. rec is the run as it is
// before the event; what comes after the end of a run counts for nothing.
func (m *Meter) Charge(rec *RunRecord, e toolcrib.Event) (c Charge, ok bool) {
	if rec.Status.Ended() || !m.Needs(e.Body) {
		return c, false
	}
	var model modelName
	if m.asked && m.index >= 0 && m.index < len(m.models) {
		model = m.models[m.index]
	}
	day := DayOf(e.Time)
	switch b := e.Body.(type) {
	case *journal.Usage:
		c.sum = settled(b.Tokens, b.CostUSD, b.Estimated)
	case *journal.ModelFailed:
		c.sum = settled(b.Charged, b.ChargedUSD, b.Charged != toolcrib.TokenUsage{})
	case *journal.ToolResult:
		c.toolKey = ToolUseKey{Tool: b.Name, Day: day, Agent: rec.Agent, User: rec.User, Provider: model.provider, Model: model.id}
		c.toolSum = calledOnce(b)
		return c, true
	}
	c.key = UsageKey{Day: day, Run: rec.ID, Provider: model.provider, Model: model.id, User: rec.User, Agent: rec.Agent, Session: rec.Session}
	return c, true
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
	if c.toolSum.Calls == 0 {
		u.addModel(c.key, c.sum)
		return
	}
	u.addTool(c.toolKey, c.toolSum)
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
