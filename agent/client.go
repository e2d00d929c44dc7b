package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// A client tool ([toolcrib.ByClient]) is carried out by the program that started the run. Its calls
// are judged with their turn. When the rest of the turn is done, the run parks and uses no resources
// until the client has given the results or its time is over.

// Limits on the input of a client.
const (
	MaxClientTools      = 128
	maxClientToolsBytes = 256 << 10 // size of their specs as shown to a model
	// MaxClientResult bounds the body of a result, in bytes.
	MaxClientResult = 16 << 20
)

// checkClientTools refuses invalid tools.
func checkClientTools(specs []toolcrib.Spec) error {
	if len(specs) > MaxClientTools {
		return usagef("client_tools: %d tools are more than %d", len(specs), MaxClientTools)
	}
	names, size := make(map[string]bool, len(specs)), 0
	for i, spec := range clientTools(specs, nil) {
		key := strings.ToLower(spec.Name)
		err := gate.CheckClientTool(spec)
		size += len(spec.Name) + len(spec.Description) + len(spec.Parameters)
		switch {
		case err != nil:
			return usagef("client_tools[%d]: %v", i, err)
		case names[key]:
			return usagef("client_tools[%d]: another tool of the request is named %s", i, spec.Name)
		case size > maxClientToolsBytes:
			return usagef("client_tools: the tools have more than %d bytes", maxClientToolsBytes)
		}
		names[key] = true
	}
	return nil
}

// clientTools returns specs as tools of a client, with secrets masked.
func clientTools(specs []toolcrib.Spec, mask *guard.Masker) []toolcrib.Spec {
	specs = slices.Clone(specs)
	for i := range specs {
		s := &specs[i]
		s.Source, s.Group, s.AnsweredBy, s.EnabledByDefault = "client", toolcrib.GroupClient, toolcrib.ByClient, true
		s.Description = mask.Mask(s.Description)
		s.Parameters = guard.EscapeJSON(mask.MaskJSON(s.Parameters)) // as stored, so that the hash does not change
	}
	return specs
}

// checkNames refuses client tools with the names of tools that the run is offered otherwise. A fork
// has the tools of the run that it begins from.
func (r *Runner) checkNames(ctx context.Context, start *journal.RunStarted) error {
	if len(start.ClientTools) == 0 || start.ForkedFrom != "" {
		return nil
	}
	scope := scopeOf(start)
	scope.ClientTools = nil
	offer, err := r.Gate.Offer(ctx, start.Principal, scope)
	if err != nil {
		return fmt.Errorf("the offer of tools: %w", err)
	}
	for i, spec := range start.ClientTools {
		for _, t := range offer.Record.Tools {
			if strings.EqualFold(t.Name, spec.Name) {
				return usagef("client_tools[%d]: %s is the name of a tool that the run has already; choose another name, leave that tool out, or use an agent without it, such as one with tools: []", i, t.Name)
			}
		}
	}
	return nil
}

// ClientResult is a client's result of a call.
type ClientResult struct {
	CallID  string
	Body    json.RawMessage // any JSON value; a string is used as text
	IsError bool
}

// ErrEarly is in the error of [Runner.GiveResults] for a result that came while the run was active;
// the run may wait for it soon.
var ErrEarly = errors.New("the run is active")

var errEarly = errors.Join(errState, ErrEarly)

// GiveResults records a client's results of calls of its tools, in the name of by: all, or none if one
// is refused. It does not drive the run. Each call is answered once: of two concurrent results the
// journal's fence admits one, and the other is a conflict, as is a result for a run that does not wait
// for it. A call that is not the client's is not_found, a body that is not JSON is bad_request, and
// one of more than [MaxClientResult] bytes is too_large.
func (r *Runner) GiveResults(ctx context.Context, run toolcrib.RunID, by string, results []ClientResult) (*State,
	error,
) {
	return r.amend(ctx, run, tries, func(s *State, _ error) ([]toolcrib.Body, error) {
		if s.Ended() {
			return nil, stateErrorf(s, "has ended; its calls take no results")
		}
		if len(results) == 0 {
			return nil, usagef("no result is given")
		}
		d := &driver{r: r, s: s, index: -1}
		bodies, given := make([]toolcrib.Body, len(results)), make(map[string]bool, len(results))
		for i := range results {
			id := results[i].CallID
			if given[id] {
				return nil, usagef("call %s is answered twice", id)
			}
			given[id] = true
			result, err := d.clientResult(ctx, &results[i])
			if err != nil {
				return nil, err
			}
			result.By, bodies[i] = cmp.Or(r.Mask.Clean(by), "client"), result
		}
		return bodies, nil
	})
}

// clientResult makes the result of a call from the client's.
func (d *driver) clientResult(ctx context.Context, given *ClientResult) (*journal.ToolResult, error) {
	s := d.s
	i := slices.IndexFunc(s.Trace, func(c *core.Call) bool { return c.ID == given.CallID })
	switch {
	case i < 0 || !s.OfClient(s.Trace[i].Name):
		return nil, toolcrib.Errorf(toolcrib.CodeNotFound, "run %s has no call %s of a client tool", s.Run,
			guard.Visible(given.CallID))
	case s.Trace[i].Result != nil:
		return nil, stateErrorf(s, "has a result of call %s already", given.CallID)
	case !s.WaitsForClient(given.CallID):
		e := toolcrib.Errorf(toolcrib.CodeConflict, "run %s (%s) does not wait for the result of call %s: it must be paused "+
			"for it first", s.Run, s.Status, given.CallID)
		if e.Err = errState; !s.Status.Parked() {
			e.Err = errEarly
		}
		return nil, e
	case len(given.Body) == 0:
		return nil, usagef("call %s: the body is missing; it is any JSON value, also null", given.CallID)
	case len(given.Body) > MaxClientResult:
		return nil, toolcrib.Errorf(toolcrib.CodeTooLarge, "call %s: the body has more than %d bytes", given.CallID,
			MaxClientResult)
	}
	body, err := guard.Canonical(given.Body)
	if err != nil {
		return nil, usagef("call %s: the body must be JSON: %v", given.CallID, err)
	}
	c, out := s.Trace[i], toolcrib.Output{JSON: body, IsError: given.IsError}
	r, opt := d.resultFrom(gate.ClientSource(c.Name), c, &out, c.Verdict.Untrusted, c.Verdict.MaxBytes)
	r.DurationMS = d.r.Clock.Now().Sub(s.Updated).Milliseconds()
	return r, d.finished(ctx, c, r, &out, opt)
}

// checkHistory refuses a transcript that an API could reject. Each call must be answered once, by the
// message after it.
func checkHistory(task *Task) error {
	var open map[string]string // calls of the previous message, by ID
	seen := map[string]bool{}
	for i := range task.History {
		m := &task.History[i]
		calls, results := map[string]string{}, 0
		for _, p := range m.Parts {
			switch {
			case p.ToolCall != nil && m.Role == toolcrib.RoleAssistant:
				id := p.ToolCall.ID
				if id == "" || seen[id] || !toolcrib.ValidToolName(p.ToolCall.Name) {
					return usagef("messages[%d]: each call needs a tool's name, and an id of its own", i)
				}
				seen[id], calls[id] = true, p.ToolCall.Name
			case p.ToolResult != nil && m.Role == toolcrib.RoleTool:
				name, known := open[p.ToolResult.CallID]
				if !known {
					return usagef("messages[%d]: %q is not a call of the message before, or answered twice", i,
						p.ToolResult.CallID)
				}
				delete(open, p.ToolResult.CallID)
				p.ToolResult.Name = name
				results++
			case p.ToolCall != nil || p.ToolResult != nil || p.Thinking != nil || p.File != nil || m.Role == toolcrib.RoleTool:
				return usagef("messages[%d]: role %s does not go with its content", i, m.Role)
			}
		}
		switch {
		case len(open) > 0:
			return usagef("messages[%d]: %s of the message before without a result", i, guard.Count(len(open), "call"))
		case m.Role == toolcrib.RoleTool && results > 0, m.Role == toolcrib.RoleAssistant && len(calls) > 0:
		case m.Role != toolcrib.RoleUser && (m.Role != toolcrib.RoleAssistant || i == 0):
			return usagef("messages[%d]: role %q does not fit here", i, m.Role)
		case strings.TrimSpace(m.Text()) == "" && len(task.HistoryFiles[i]) == 0:
			return usagef("messages[%d]: is empty", i)
		case len(task.HistoryFiles[i]) > 0 && m.Role != toolcrib.RoleUser:
			return usagef("messages[%d]: files are the user's", i)
		}
		open = calls
	}
	n, more := len(task.History), task.Prompt != "" || len(task.Files) > 0
	switch {
	case len(open) > 0:
		return usagef("messages: %s of the last message without a result", guard.Count(len(open), "call"))
	case n == 0 && !more, n > 0 && !more && task.History[n-1].Role == toolcrib.RoleAssistant:
		return usagef("messages: must end with a message of the user, or with the results of calls")
	}
	return nil
}

// fence makes the results of tools in a transcript fit for a model, as if the client had given them to
// the run.
func (r *Runner) fence(task *Task) {
	if task.Canary == "" {
		task.Canary = r.newCanary()
	}
	opt := guard.FitOptions{
		MaxBytes: task.Agent.Limits.MaxResultBytes, Wrap: true, Masker: r.Mask, Canary: task.Canary,
	}
	task.History, task.Taint = slices.Clone(task.History), slices.Clone(task.Taint)
	for i := range task.History {
		m := &task.History[i]
		m.Parts = slices.Clone(m.Parts)
		for k := range m.Parts {
			if m.Parts[k].ToolResult == nil {
				continue
			}
			result := *m.Parts[k].ToolResult
			opt.Source = gate.ClientSource(result.Name)
			result.Content = guard.Fit(toolcrib.Output{Text: result.Content}, opt).Content
			m.Parts[k].ToolResult = &result
			if !slices.Contains(task.Taint, opt.Source) {
				task.Taint = append(task.Taint, opt.Source)
			}
		}
	}
}

// ExpireClient gives a timeout as the result of calls whose client took too long. expired reports
// whether there were any.
func (r *Runner) ExpireClient(ctx context.Context, run toolcrib.RunID) (expired bool, err error) {
	_, err = r.amend(ctx, run, 1, func(s *State, _ error) (bodies []toolcrib.Body, err error) {
		now := r.Clock.Now()
		expired = !s.Ended() && s.AwaitsClient() && s.Pending.ExpiresAt != nil && !now.Before(*s.Pending.ExpiresAt)
		for i := 0; expired && i < len(s.Pending.Calls); i++ {
			item := &s.Pending.Calls[i]
			bodies = append(bodies, &journal.ToolResult{
				ToolCallID: item.ID, Name: item.Name, Status: toolcrib.ResultTimeout, IsError: true, Content: textClientTimeout,
				DurationMS: now.Sub(s.Updated).Milliseconds(),
			})
		}
		return bodies, nil
	})
	return expired && err == nil, err
}

const textClientTimeout = `{"error":"timeout: the client did not answer the call in time"}`
