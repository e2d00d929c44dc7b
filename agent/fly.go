package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// readResultTool is the tool that must be in the offer for a cut result to have a reference.
const readResultTool = "read_result"

// fly runs one call on its own goroutine and reports its end. The driver waits for it no longer than
// its timeout and cancelGrace.
func (x *execution) fly(f *flight) {
	defer x.d.r.tools.Done()
	began := x.d.r.Clock.Awake()
	f.out, f.err = x.perform(f)
	f.took, f.cause = x.d.r.Clock.Awake()-began, context.Cause(f.ctx)
	f.cancel()
	x.news <- news{f: f, ended: true}
}

// perform prepares a write, waits until it is recorded as started, and runs the call.
func (x *execution) perform(f *flight) (toolcrib.Output, error) {
	if f.child == nil && f.permit.Effect().Writes() {
		prepared, err := guard.Contain(func() (json.RawMessage, error) { return f.permit.Prepare(f.ctx) })
		if err != nil {
			return toolcrib.Output{}, err
		}
		f.prepared = prepared
		x.news <- news{f: f}
		if err := <-f.leave; err != nil {
			return toolcrib.Output{}, err
		}
	}
	if f.child != nil {
		return guard.Contain(func() (toolcrib.Output, error) { return x.answerByAgent(f) })
	}
	return guard.Contain(func() (toolcrib.Output, error) {
		return f.permit.Execute(f.ctx, gate.Attachments{
			Progress: f.tell, Alive: f.alive, Behind: x.d.runBehind, Notice: x.d.noteOf,
			Invoke: x.d.r.invoke(x.d.s, f),
		})
	})
}

// tell passes progress on; a slow reader misses some of it.
func (f *flight) tell(message string, fraction float64) {
	select {
	case f.progress <- progress{id: f.call.ID, message: message, fraction: fraction}:
	default:
	}
}

// resultOf makes the result of a call that ran (N21, N22, C3).
func (x *execution) resultOf(f *flight) *journal.ToolResult {
	err := f.err
	if err == nil {
		return x.fit(f, f.out)
	}
	var failure *toolcrib.ToolError
	late := errors.Is(f.cause, errToolTimeout)
	var ours *toolcrib.ToolError  // may be returned unchanged by a tool
	_ = errors.As(f.cause, &ours) // without one it stays nil
	switch {
	case late && errors.As(err, &failure) && failure != ours && failure.Kind == toolcrib.ToolTimeout:
		// The result includes the output so far.
		return x.failed(f, failure)
	case f.cause != nil:
		return endedResult(f, !late)
	case errors.Is(err, errChildCancelled), errors.Is(err, errLeftBehind):
		return endedResult(f, true)
	case errors.As(err, &failure):
		return x.failed(f, failure)
	}
	r := x.fault(f, err)
	if errors.Is(err, errNotStarted) {
		r.Content = guard.ErrorJSON(fmt.Sprintf("execution failed: agent %s cannot be started (%s); continue without it",
			f.child.sub.Agent, r.FaultRef), f.permit.MaxBytes())
	}
	return r
}

// failed returns the result of a call that failed with an error for the model.
func (x *execution) failed(f *flight, failure *toolcrib.ToolError) *journal.ToolResult {
	content := guard.ErrorJSON(x.d.r.Mask.Clean(f.answers.Mask(failure.Error())), f.permit.MaxBytes())
	if f.permit.Untrusted() || failure.Untrusted != "" {
		// Such an error is untrusted text, like a result.
		r := x.fit(f, toolcrib.Output{
			JSON: json.RawMessage(content), IsError: true, Untrusted: true, Source: failure.Untrusted,
		})
		r.Status = statusOf(failure)
		return r
	}
	return f.call.NewResult(statusOf(failure), content)
}

// statusOf returns the status of a failure. A tool that enforced a timeout of its own has timed out
// like one that the loop ended (C18).
func statusOf(failure *toolcrib.ToolError) toolcrib.ResultStatus {
	if failure.Kind == toolcrib.ToolTimeout {
		return toolcrib.ResultTimeout
	}
	return toolcrib.ResultError
}

// fault returns the result of a failure without a message for the model, which reads a neutral text;
// the detail is for the operator.
func (x *execution) fault(f *flight, err error) *journal.ToolResult {
	ref := x.d.r.NewID("ref_")
	clean := func(text string) string {
		const most = 8 << 10
		text = x.d.r.Mask.Clean(text)
		return guard.Clean(text[:min(len(text), most)])
	}
	detail := clean(err.Error())
	x.d.r.Log.ErrorContext(x.ctx, "tool execution failed", "run", x.d.s.Run, "name", f.call.Name, "ref", ref,
		"error", detail+clean(guard.Stack(err)))
	r := f.call.NewResult(toolcrib.ResultError, guard.FaultJSON(f.call.Name, ref))
	r.FaultRef, r.Fault = ref, detail
	return r
}

// endedResult returns the result of a call that was cancelled or timed out.
func endedResult(f *flight, cancelled bool) *journal.ToolResult {
	if cancelled {
		return f.call.NewResult(toolcrib.ResultCancelled, core.TextCancelled)
	}
	late := toolcrib.Failf(toolcrib.ToolTimeout, "%s", seconds(f.permit.Timeout()))
	return f.call.NewResult(toolcrib.ResultTimeout, guard.ErrorJSON(late.Error(), 0))
}

// seconds formats a duration (C15): "30s", "0.5s".
func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s"
}

// fit prepares an output for the model: masked, cleaned, cut by type, wrapped. The whole is stored if
// it was cut.
func (x *execution) fit(f *flight, out toolcrib.Output) *journal.ToolResult {
	if nested := f.nested.Load(); nested != nil {
		out.Untrusted, out.Source = true, cmp.Or(out.Source, *nested)
	}
	out.Text, out.JSON = f.answers.Mask(out.Text), f.answers.MaskJSON(out.JSON)
	r, opt := x.d.resultFor(f.call, f.permit, &out)
	ref := ""
	if len(out.Files) > 0 || mayCut(&out, f.permit.MaxBytes()) {
		ref = x.d.r.NewID("res_")
	}
	r.Files = x.files(f, ref, &out)
	f.whole = x.d.shape(r, &out, opt, ref)
	if r.Untrusted {
		r.Sources = f.sources
	}
	r.Found = out.Found
	return r
}

// shape sets the content of a result. If that is cut, whole is the text to be stored under r.Ref,
// which is ref, or a new one if ref is "".
func (d *driver) shape(r *journal.ToolResult, out *toolcrib.Output, opt guard.FitOptions, ref string) (whole string) {
	_, shown := d.s.Offer.Find(readResultTool)
	if shown {
		opt.Ref = ref
	}
	fitted := guard.Fit(*out, opt)
	if fitted.Cut && ref == "" {
		ref = d.r.NewID("res_")
		if shown {
			opt.Ref = ref
			fitted = guard.Fit(*out, opt)
		}
	}
	r.Content, r.Truncated = fitted.Content, fitted.Truncated
	if fitted.Cut {
		whole = fitted.Whole.String()
		r.Ref, r.Bytes = ref, int64(len(whole))
	}
	return whole
}

// finished makes an output the result of a call, and stores its files and its whole text.
func (d *driver) finished(ctx context.Context, c *core.Call, r *journal.ToolResult, out *toolcrib.Output,
	opt guard.FitOptions,
) error {
	err := d.keep(ctx, r, d.shape(r, out, opt, ""))
	r.Content = c.Noted(r.Content)
	return err
}

// keep stores the files and the whole text of a result before the result that refers to them.
func (d *driver) keep(ctx context.Context, r *journal.ToolResult, whole string, files ...keptFile) error {
	if r.Ref == "" && len(files) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), appendGrace)
	defer cancel()
	if r.Ref != "" {
		files = append(files, keptFile{ref: r.Ref, data: []byte(whole)})
	}
	for _, k := range files {
		if err := d.r.Contents.Put(ctx, d.s.Run, k.ref, k.data); err != nil {
			return fmt.Errorf("store the result of %s: %w", r.ToolCallID, err)
		}
	}
	return nil
}

// mayCut reports whether an output is likely to be cut, and so needs a reference. Few texts grow by
// half or more when they are prepared.
func mayCut(out *toolcrib.Output, most int) bool {
	return max(len(out.JSON), len(out.Text)) >= most/2
}

// invoke returns the function by which a tool calls another one: in a child run of one given call,
// through the same loop and gate (H18).
func (r *Runner) invoke(s *State, f *flight) func(context.Context, string, json.RawMessage) (toolcrib.Invoked, error) {
	return func(ctx context.Context, name string, arguments json.RawMessage) (toolcrib.Invoked, error) {
		if !toolcrib.ValidToolName(name) {
			return toolcrib.Invoked{}, fmt.Errorf("%q is not a valid tool name", name)
		}
		call := &toolcrib.ToolCall{ID: "call_1", Name: name}
		ReadArguments(call, r.Mask, arguments)
		child, err := r.Run(ctx, Task{
			Agent: s.Start.Agent, Principal: s.Start.Principal, Workspace: s.Start.Workspace,
			RunTools: s.Start.RunTools, Approve: nestedApprove(Approve(s.Start.Approve)), Taint: f.taint,
			Hosted: Hosted{
				Parent: s.Run, Depth: s.Start.Depth + 1, Driver: s.Start.Driver, Site: s.Start.Site, SkillTools: s.Start.SkillTools,
				Skills: s.Start.Skills, Listed: s.Start.Listed, WorkerTools: s.PassedTools(), Above: s.Start.Above,
				Given: call, Ran: ranBefore(s.Start.Ran),
			},
		})
		if err != nil {
			return toolcrib.Invoked{}, err
		}
		if child.Trace[0].Result == nil && r.Nested != nil {
			f.hold()
			now, err := r.Nested(ctx, r, child)
			f.resume()
			switch {
			case err != nil && ctx.Err() == nil:
				return toolcrib.Invoked{}, err
			case now != nil:
				child = now
			}
		}
		if n := len(child.Taint); n > len(f.taint) {
			f.nested.Store(&child.Taint[n-1])
		}
		result := child.Trace[0].Result
		if result == nil {
			// Its question was not answered, and it must not remain as a parked run.
			if _, err := r.Cancel(context.WithoutCancel(ctx), child.Run, &CancelError{By: "run " + string(s.Run)}); err != nil {
				return toolcrib.Invoked{}, err
			}
			return toolcrib.Invoked{Status: toolcrib.ResultRefused, Reason: toolcrib.ReasonNeedsConfirmation}, nil
		}
		content, answer := r.openAnswer(child.Run, result.Content)
		if answer != "" {
			f.answers.Learn(guard.Secret{Name: "answer", Value: answer})
		}
		return toolcrib.Invoked{Status: result.Status, Reason: result.Reason, Content: content}, nil
	}
}

// nestedApprove returns how a nested call is approved. It cannot park, because the call around it is
// running, so it is refused if the Approver cannot be asked.
func nestedApprove(a Approve) Approve {
	if a == ApproveAll || a == ApproveAsk {
		return a
	}
	return ApproveDeny
}

// reconcile asks the tools whether the writes that had started when the previous driver was lost took
// effect. Only a tool that the current gate allows is asked; all others stay in doubt. [law]
func (d *driver) reconcile(ctx context.Context) error {
	lost := d.s.Turn.Lost()
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
			result, opt := d.resultFor(c, d.permit(c.ID), &found.Output)
			if err := d.finished(ctx, c, result, &found.Output, opt); err != nil {
				return err
			}
			bodies = append(bodies, result)
		}
	}
	return d.append(ctx, bodies...)
}

// found asks the tool of one call. An error, a panic or a timeout means that the call is in doubt.
func (d *driver) found(ctx context.Context, c *core.Call) toolcrib.Reconciled {
	permit := d.permit(c.ID)
	if c.Verdict == nil || c.Verdict.Decision != toolcrib.Allow || !permit.Valid() || len(c.Started.Prepared) == 0 {
		return toolcrib.Reconciled{}
	}
	var bound clock
	bound.start(ctx, permit.Timeout(), func() { bound.end(errToolTimeout) })
	defer bound.cancel()
	found, err := guard.Contain(func() (toolcrib.Reconciled, error) {
		return permit.Reconcile(bound.ctx, json.RawMessage(c.Started.Prepared))
	})
	if err != nil {
		d.r.Log.WarnContext(ctx, "reconcile failed", "run", d.s.Run, "name", c.Name, "call", c.ID, "error",
			d.r.Mask.Mask(err.Error()+guard.Stack(err)))
		return toolcrib.Reconciled{}
	}
	return found
}

// resultFor returns the result for an output of a tool, without its content, and the options to
// prepare that content.
func (d *driver) resultFor(c *core.Call, permit *gate.Permit, out *toolcrib.Output) (
	*journal.ToolResult, guard.FitOptions,
) {
	source := gate.Source(cmp.Or(d.r.Mask.Clean(out.Source), c.Name))
	return d.resultFrom(source, c, out, permit.Untrusted() || out.Untrusted, permit.MaxBytes())
}

func (d *driver) resultFrom(source string, c *core.Call, out *toolcrib.Output, untrusted bool, most int) (
	*journal.ToolResult, guard.FitOptions,
) {
	r := c.NewResult(toolcrib.ResultOK, "")
	if out.IsError {
		r = c.NewResult(toolcrib.ResultError, "")
	}
	if r.Untrusted = untrusted; untrusted {
		r.Source = source
	}
	return r, guard.FitOptions{
		MaxBytes: most, Wrap: untrusted, Source: source, Masker: d.r.Mask, Canary: d.s.Start.Canary,
		Neutralize: d.s.Start.Worker != nil,
	}
}
