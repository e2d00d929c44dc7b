package agent

import (
	"context"
	"encoding/json"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// reconcile asks the tools what became of the writes that had started when the
// driver before was lost. Only a tool that today's gate lets run is asked; of
// everything else nobody can tell, and it stays in doubt. [law]
func (d *driver) reconcile(ctx context.Context) error {
	lost := d.s.Turn.lost()
	for _, c := range lost {
		if d.verdict(c.ID) == nil {
			return d.judge(ctx)
		}
	}
	var bodies []toolcrib.Body
	for _, c := range lost {
		if c.Reconciled != nil {
			continue
		}
		found := d.found(ctx, c)
		bodies = append(bodies, &journal.Reconciled{ID: c.ID, State: found.State})
		if found.State == toolcrib.Happened {
			result := d.happened(c, found.Output)
			bodies = append(bodies, result)
		}
	}
	return d.append(ctx, bodies...)
}

// found asks the tool of one call. An error, a panic and silence all mean doubt.
func (d *driver) found(ctx context.Context, c *Call) toolcrib.Reconciled {
	permit := d.permit(c.ID)
	if c.Verdict == nil || c.Verdict.Decision != toolcrib.Allow || !permit.Valid() || len(c.Started.Prepared) == 0 {
		return toolcrib.Reconciled{}
	}
	ctx, cancel := withTimeout(ctx, permit.Timeout(), errToolTimeout)
	defer cancel()
	found, err := contained(func() (toolcrib.Reconciled, error) {
		return permit.Reconcile(ctx, json.RawMessage(c.Started.Prepared))
	})
	if err != nil {
		d.r.Log.WarnContext(ctx, "reconcile failed", "run", d.s.Run, "name", c.Name, "call", c.ID, "error", d.r.Mask.Mask(err.Error()))
		return toolcrib.Reconciled{}
	}
	return found
}

// happened is the result of a write that took effect before its result could be
// written down.
func (d *driver) happened(c *Call, out toolcrib.Output) *journal.ToolResult {
	permit := d.permit(c.ID)
	untrusted, source := permit.Untrusted() || out.Untrusted, d.r.Mask.Clean(out.Source)
	if source == "" {
		source = c.Name
	}
	fitted := guard.Fit(out, guard.FitOptions{
		MaxBytes: permit.MaxBytes(), Masker: d.r.Mask, Wrap: untrusted, Source: source, Canary: d.s.Start.Canary,
	})
	status := toolcrib.ResultOK
	if out.IsError {
		status = toolcrib.ResultError
	}
	r := &journal.ToolResult{
		ToolCallID: c.ID, Name: c.Name, Status: status, IsError: out.IsError,
		Content: c.noted(fitted.Content), Truncated: fitted.Truncated, Untrusted: untrusted,
	}
	if untrusted {
		r.Source = source
	}
	return r
}
