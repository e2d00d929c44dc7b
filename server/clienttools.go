package server

import (
	"errors"
	"hash/fnv"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/service"
)

// limitsOf returns the limits of a request. If it has none, all are zero.
func limitsOf(b *api.Limits) (l toolcrib.Limits, err error) {
	if b == nil {
		return l, nil
	}
	l.OnLimit = b.OnLimit
	for _, one := range []struct {
		name  string
		to    *int
		value *int
		least int
	}{
		{"max_iterations", &l.MaxIterations, b.MaxIterations, 1},
		{"max_parallel", &l.MaxParallel, b.MaxParallel, 1},
		{"max_calls_per_turn", &l.MaxCallsPerTurn, b.MaxCallsPerTurn, 1},
		{"max_identical_calls", &l.MaxIdenticalCalls, b.MaxIdenticalCalls, 0},
		{"max_depth", &l.MaxDepth, b.MaxDepth, 0},
		{"max_result_bytes", &l.MaxResultBytes, b.MaxResultBytes, guard.MinResultBytes},
	} {
		if one.value == nil {
			continue
		}
		if *one.to = *one.value; *one.to < one.least {
			return l, bad("limits.%s: must be at least %d", one.name, one.least)
		}
	}
	switch b.OnLimit {
	case "", toolcrib.OnLimitFinalize, toolcrib.OnLimitError, toolcrib.OnLimitAsk:
	default:
		return l, bad("limits.on_limit: must be finalize, error or ask")
	}
	if l.ToolTimeout, err = duration("tool_timeout", b.ToolTimeout); err == nil {
		l.WallTime, err = duration("wall_time", b.WallTime)
	}
	return l, err
}

func duration(name, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, bad("limits.%s: must be a time such as 30s", name)
	}
	return d, nil
}

// transcript returns messages as the loop has them: the results of one turn are one message.
func transcript(list []api.Message) ([]toolcrib.Message, error) {
	var all []toolcrib.Message
	for i, m := range list {
		one := toolcrib.Message{Role: m.Role}
		if m.Role == toolcrib.RoleTool {
			result := toolcrib.Part{ToolResult: &toolcrib.ToolResult{
				CallID: m.ToolCallID, Content: m.Content, IsError: m.IsError,
			}}
			if n := len(all); n > 0 && all[n-1].Role == toolcrib.RoleTool {
				all[n-1].Parts = append(all[n-1].Parts, result)
				continue
			}
			one.Parts = append(one.Parts, result)
		} else if m.ToolCallID != "" || m.IsError {
			return nil, bad("messages[%d]: tool_call_id and is_error are for role tool", i)
		} else if m.Content != "" {
			one.Parts = append(one.Parts, toolcrib.Part{Text: m.Content})
		}
		for _, c := range m.ToolCalls {
			arguments, err := guard.Arguments(c.Arguments)
			if err != nil {
				return nil, bad("messages[%d]: the arguments of call %s: %v", i, c.ID, err)
			}
			call := &toolcrib.ToolCall{ID: c.ID, Name: c.Name, Arguments: arguments}
			one.Parts = append(one.Parts, toolcrib.Part{ToolCall: call})
		}
		all = append(all, one)
	}
	return all, nil
}

func (c *call) toolResults(b api.ToolResult) (service.Run, error) {
	id, err := c.id("run_")
	if err != nil {
		return service.Run{}, err
	}
	run, err := c.giveResults(id, b)
	if errors.Is(err, agent.ErrEarly) {
		return c.giveEarly(id, b)
	}
	return run, err
}

// giveEarly is giveResults for a client that answers a call as soon as it is announced: the run may still be
// busy with other calls.
func (c *call) giveEarly(run string, b api.ToolResult) (service.Run, error) {
	found, err := c.Service.FindRun(c, c.who, run)
	if err != nil {
		return service.Run{}, err
	}
	c.pool.Pauses(c, found.ID)
	return c.giveResults(run, b)
}

// giving serializes requests that answer calls of a run. done must be called.
func (s *Server) giving(run toolcrib.RunID) (done func()) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(run)) // a hash never fails to write
	mu := &s.answering[h.Sum32()%uint32(len(s.answering))]
	mu.Lock()
	return mu.Unlock
}

func (c *call) giveResults(run string, b api.ToolResult) (service.Run, error) {
	if (len(b.Results) > 0) == (b.ToolCallID != "") {
		return service.Run{}, bad("give either tool_call_id and body, or results")
	}
	if b.ToolCallID != "" {
		b.Results = []api.OneResult{{ToolCallID: b.ToolCallID, Body: b.Body, IsError: b.IsError}}
	}
	results := make([]service.ClientResult, len(b.Results))
	for i, r := range b.Results {
		results[i] = service.ClientResult{CallID: r.ToolCallID, Body: r.Body, IsError: r.IsError}
	}
	defer c.giving(toolcrib.RunID(run))()
	return c.pool.GiveResults(c.staying(), c.who, run, results)
}

func (c *call) sayToRun(b api.Said) (service.Run, error) {
	id, err := c.id("run_")
	if err != nil {
		return service.Run{}, err
	}
	if err := c.Service.Say(c, c.who, id, b.Text); err != nil {
		return service.Run{}, err
	}
	return c.Service.FindRun(c, c.who, id)
}
