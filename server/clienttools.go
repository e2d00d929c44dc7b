package server

import (
	"encoding/json"
	"errors"
	"hash/fnv"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/service"
)

// Limits are the limits of a run that a request may lower.
type Limits struct {
	MaxIterations     *int   `json:"max_iterations,omitempty"`
	OnLimit           string `json:"on_limit,omitempty" jsonschema:"finalize, error or ask"`
	MaxParallel       *int   `json:"max_parallel,omitempty"`
	MaxCallsPerTurn   *int   `json:"max_calls_per_turn,omitempty"`
	MaxIdenticalCalls *int   `json:"max_identical_calls,omitempty"`
	ToolTimeout       string `json:"tool_timeout,omitempty" jsonschema:"such as 30s"`
	MaxResultBytes    *int   `json:"max_result_bytes,omitempty"`
	MaxDepth          *int   `json:"max_depth,omitempty"`
	WallTime          string `json:"wall_time,omitempty" jsonschema:"such as 15m"`
}

// limits are those of the body; zero = it has none.
func (b *Limits) limits() (l toolcrib.Limits, err error) {
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

// ClientTool is a tool that the client carries out.
type ClientTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty" jsonschema:"JSON Schema of the arguments; default: any object"`
	Effect      toolcrib.Effect `json:"effect,omitempty" jsonschema:"read_only (default), idempotent_write or non_idempotent_write: tools.confirm decides which writes need approval"`
}

// Message is a message of a transcript.
type Message struct {
	Role       toolcrib.Role `json:"role" jsonschema:"user, assistant or tool"`
	Content    string        `json:"content,omitempty"`
	ToolCalls  []MessageCall `json:"tool_calls,omitempty" jsonschema:"with role assistant"`
	ToolCallID string        `json:"tool_call_id,omitempty" jsonschema:"with role tool: the ID of the call"`
	IsError    bool          `json:"is_error,omitempty" jsonschema:"with role tool: true if the call failed"`
}

// MessageCall is a call in a transcript.
type MessageCall struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments,omitempty" jsonschema:"an object"`
}

// transcript is a list of messages as the loop has it: the results of one turn are one message.
func transcript(list []Message) ([]toolcrib.Message, error) {
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

// ToolResult is the result of a call that the client has carried out, or several.
type ToolResult struct {
	ToolCallID string          `json:"tool_call_id,omitempty"`
	Body       json.RawMessage `json:"body,omitempty" jsonschema:"any JSON value; a string is used as plain text"`
	IsError    bool            `json:"is_error,omitempty"`
	Results    []OneResult     `json:"results,omitempty" jsonschema:"several results instead of one; all are accepted or none"`
}

// OneResult is one of several results.
type OneResult struct {
	ToolCallID string          `json:"tool_call_id"`
	Body       json.RawMessage `json:"body"`
	IsError    bool            `json:"is_error,omitempty"`
}

func (c *call) toolResults(b ToolResult) (service.Run, error) {
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

// giveEarly is giveResults of a client that answers a call as soon as it hears of it: the run may still be
// busy with others.
func (c *call) giveEarly(run string, b ToolResult) (service.Run, error) {
	found, err := c.Service.FindRun(c, c.who, run)
	if err != nil {
		return service.Run{}, err
	}
	c.pool.Pauses(c, found.ID)
	return c.giveResults(run, b)
}

// giving has requests that answer calls of a run come one after another, until done is called.
func (s *Server) giving(run toolcrib.RunID) (done func()) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(run)) // a hash never fails to write
	mu := &s.answering[h.Sum32()%uint32(len(s.answering))]
	mu.Lock()
	return mu.Unlock
}

func (c *call) giveResults(run string, b ToolResult) (service.Run, error) {
	if (len(b.Results) > 0) == (b.ToolCallID != "") {
		return service.Run{}, bad("give either tool_call_id and body, or results")
	}
	if b.ToolCallID != "" {
		b.Results = []OneResult{{b.ToolCallID, b.Body, b.IsError}}
	}
	results := make([]service.ClientResult, len(b.Results))
	for i, r := range b.Results {
		results[i] = service.ClientResult{CallID: r.ToolCallID, Body: r.Body, IsError: r.IsError}
	}
	defer c.giving(toolcrib.RunID(run))()
	return c.pool.GiveResults(c.staying(), c.who, run, results)
}

// Said is a message to a run.
type Said struct {
	Text string `json:"text" jsonschema:"what the model reads before its next reply"`
}

func (c *call) sayToRun(b Said) (service.Run, error) {
	id, err := c.id("run_")
	if err != nil {
		return service.Run{}, err
	}
	if err := c.Service.Say(c, c.who, id, b.Text); err != nil {
		return service.Run{}, err
	}
	return c.Service.FindRun(c, c.who, id)
}
