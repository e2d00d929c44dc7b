package agent

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/journal"
)

// This file has what package team needs of the loop: turns whose remaining calls are no longer needed,
// and notices about the calls of workers.

// enoughAnswered is the reason for cancelling a call whose answer is no longer needed.
const enoughAnswered = "the answers of the other agents"

// enough cancels the calls that other agents still answer if [Options.Enough] reports true. hurry is
// what [Options.Hurry] has received, or nil.
func (x *execution) enough(hurry *CancelError) error {
	s := x.d.s
	if x.d.r.Enough == nil || x.ctx.Err() != nil || s.Turn == nil ||
		!slices.ContainsFunc(s.Turn.Calls, (*core.Call).ByAgent) {
		return nil
	}
	results := make([]*journal.ToolResult, len(s.Turn.Calls))
	for i, c := range s.Turn.Calls {
		results[i] = c.Result
		if at := slices.Index(x.order, c); at >= 0 && x.results[at] != nil {
			results[i] = x.results[at]
		}
	}
	if !x.d.r.Enough(s, results, hurry != nil) {
		if hurry != nil {
			x.d.cancel(hurry)
		}
		return nil
	}
	if hurry == nil {
		hurry = &CancelError{By: enoughAnswered}
	}
	for _, c := range x.waiting {
		if err := x.endChild(c); err != nil {
			return err
		}
		x.put(c, c.NewResult(toolcrib.ResultCancelled, core.TextCancelled))
	}
	x.waiting = nil
	for _, f := range x.flying {
		if f.child != nil && f.ctx.Err() == nil {
			f.end(hurry)
			x.awaitEnd(f)
		}
	}
	return nil
}

// workerNotices adds notices in the run of a worker: for each call that starts, for each call with
// invalid arguments, and for the usage that first exceeds its cap on cost (X10, X16, X19).
func (d *driver) workerNotices(bodies []toolcrib.Body) []toolcrib.Body {
	if d.s.Start == nil || d.s.Start.Worker == nil {
		return bodies
	}
	out := make([]toolcrib.Body, 0, len(bodies)+1)
	note := func(code, callID, why string) {
		if c, err := d.s.Find(callID); err == nil {
			var arguments map[string]json.RawMessage
			_ = json.Unmarshal(c.Arguments, &arguments) // arguments that cannot be read have no names
			keys := slices.Sorted(maps.Keys(arguments))
			n := journal.Noticef(code, "%s(%s)%s", c.Name, strings.Join(keys, ", "), why)
			n.SessionID, n.Tool, n.ArgsKeys = d.s.Start.Session, c.Name, keys
			out = append(out, n)
		}
	}
	for _, b := range bodies {
		out = append(out, b)
		switch b := b.(type) {
		case *journal.Usage:
			out = append(out, d.costWarning(b.Sum.CostUSD)...)
		case *journal.ModelFailed:
			out = append(out, d.costWarning(b.Sum.CostUSD)...)
		case *journal.ToolStarted:
			note(core.NoticeInnerCall, b.ID, "")
		case *journal.Verdicts:
			for i := range b.Verdicts {
				if v := &b.Verdicts[i]; v.Reason == toolcrib.ReasonInvalidArguments {
					note(core.NoticeInnerInvalid, v.CallID, ": "+v.Message)
				}
			}
		}
	}
	return out
}

// costWarning returns the notice, once, that a worker has spent more than its cap. An unknown mode
// warns (X15).
func (d *driver) costWarning(spent float64) []toolcrib.Body {
	w := d.s.Start.Worker
	if w.CostCapUSD <= 0 || spent <= w.CostCapUSD || d.s.WorkerWarned || w.CostCapMode == toolcrib.BudgetEnforce ||
		w.CostCapMode == toolcrib.BudgetOff {
		return nil
	}
	return []toolcrib.Body{journal.Noticef(core.NoticeWorkerCost,
		"the worker has spent $%.6f, and its cap is $%.6f; mode is warn, so it continues", spent, w.CostCapUSD)}
}
