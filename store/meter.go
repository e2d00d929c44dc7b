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

// Learn takes what an event says about the models of a run.
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

// Charge adds rows of what an event says was used: by a request, by a call of a tool, or
// that a rule has decided about a call. rec is the run as it is before the event; what comes
// after the end of a run counts for nothing.
func (m *Meter) Charge(list []UseEntry, rec *RunRecord, e toolcrib.Event) []UseEntry {
	if rec.Status.Ended() {
		return list
	}
	if v, ok := e.Body.(*journal.Verdicts); ok {
		return decisions(list, v, e.Time)
	}
	if !m.Needs(e.Body) {
		return list
	}
	var c UseEntry
	var model modelName
	if m.asked && m.index >= 0 && m.index < len(m.models) {
		model = m.models[m.index]
	}
	c.UseKey = UseKey{
		Kind: UseRequests, Day: DayOf(e.Time), User: rec.User, Agent: rec.Agent, Provider: model.provider,
		Model: model.id,
	}
	switch b := e.Body.(type) {
	case *journal.Usage:
		c.UseSum = settled(b.Tokens, b.CostUSD, b.Estimated)
		c.Unpriced = m.asked && !model.priced && b.CostUSD == 0 && b.Tokens.CostUSD == nil
	case *journal.ModelFailed:
		c.UseSum = settled(b.Charged, b.ChargedUSD, b.Charged != toolcrib.TokenUsage{})
		c.Unpriced = c.Estimated && m.asked && !model.priced && b.ChargedUSD == 0
	case *journal.ToolResult:
		c.Kind, c.Tool, c.UseSum = UseCalls, b.Name, UseSum{Calls: 1, DurationMS: bounded(b.DurationMS)}
		if b.Status != toolcrib.ResultOK {
			c.Errors = 1
		}
		if b.Status == toolcrib.ResultRefused {
			c.Refused = 1
		}
		return append(list, c)
	}
	spent := UseEntry{UseKey{Kind: UseSpent, Day: c.Day, User: c.User}, UseSum{Requests: c.Requests, NanoUSD: c.NanoUSD}}
	spent.InputTokens, spent.OutputTokens = c.InputTokens, c.OutputTokens
	if m.asked {
		spent.Day = m.day
	}
	c.Run, c.Session = rec.ID, rec.Session
	return append(list, c, spent)
}

// decisions adds the calls that rules have decided about.
func decisions(list []UseEntry, b *journal.Verdicts, at time.Time) []UseEntry {
	if b.Again {
		return list
	}
	for i := range b.Verdicts {
		v := &b.Verdicts[i]
		if v.Rule == "" || len(v.Rule) > maxRuleName || !toolName(v.Tool) {
			continue
		}
		list = append(list, UseEntry{
			UseKey{Kind: UseDecisions, Day: DayOf(at), Rule: v.Rule, Decision: v.Decision, Tool: v.Tool},
			UseSum{Calls: 1, Last: at.UnixMicro()},
		})
	}
	return list
}

// settled is the use of one request.
func settled(t toolcrib.TokenUsage, usd float64, estimated bool) UseSum {
	return UseSum{
		Requests: 1, NanoUSD: nano(usd), Estimated: estimated,
		UsageTokens: UsageTokens{
			InputTokens: bounded(t.InputTokens), CachedInputTokens: bounded(t.CachedInputTokens),
			CacheWriteTokens: bounded(t.CacheWriteTokens),
			OutputTokens:     bounded(t.OutputTokens), ReasoningTokens: bounded(t.ReasoningTokens),
		},
	}
}
