package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/bus"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/server/openai"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/nodes"
	"github.com/toolcrib/toolcrib/service/policy"
	"github.com/toolcrib/toolcrib/service/worker"
)

// chatName is the capability that serves a model.
const chatName = "llm.chat"

// Chat is the body of llm.chat@1.0 and @2.0. The caller executes the tools; the agent's own are not used. The frames
// are token {text}, tool_call_delta {id, name, arguments_delta}, tool_call {id, name, arguments} and notice {code,
// message}; the result is [ChatResult]. The caller returns results of tools either in another call, whose messages
// end with those of the model and of the tools, or, if tool_results is stream, as frames tool_result {tool_call_id,
// body} of the same call. Unknown fields are errors.
type Chat struct {
	// Params are the model, one of the params.model of the offer ("" means the agent's), other params of the offer, and
	// ctx and modalities, which are not used.
	Params map[string]any `json:"params"`
	Input  struct {
		Messages    []ChatMessage   `json:"messages"`
		Tools       []ChatTool      `json:"tools,omitempty"`
		Choice      json.RawMessage `json:"tool_choice,omitempty"` // auto, none, required, or {name}
		MaxTokens   int             `json:"max_tokens,omitempty"`
		Temperature *float64        `json:"temperature,omitempty"`
		TopP        *float64        `json:"top_p,omitempty"` // is not used
		Stop        json.RawMessage `json:"stop,omitempty"`
		Seed        json.RawMessage `json:"seed,omitempty"` // is not used
		Reasoning   string          `json:"reasoning,omitempty"`
		Schema      json.RawMessage `json:"output_schema,omitempty"`
		Stream      *bool           `json:"stream,omitempty"` // if false, there are no frames
		Results     string          `json:"tool_results,omitempty"`
	} `json:"input"`
}

// ChatMessage is a message of a [Chat].
type ChatMessage struct {
	Role    string          `json:"role"`           // system, user, assistant or tool
	Name    string          `json:"name,omitempty"` // is not used
	Content json.RawMessage `json:"content,omitempty"`
	Calls   []ChatCall      `json:"tool_calls,omitempty"`
	CallID  string          `json:"tool_call_id,omitempty"`
}

// ChatCall is a tool call of a model.
type ChatCall struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// ChatTool is a tool that the caller executes.
type ChatTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters_schema,omitempty"`
}

// ChatResult is the result of llm.chat. Meta is what HearthNet calls the frame done.
type ChatResult struct {
	Output ChatOutput `json:"output"`
	Meta   ChatMeta   `json:"meta"`
}

// ChatOutput is the answer, or the calls that the caller has to execute.
type ChatOutput struct {
	Message ChatMessage `json:"message"`
	Calls   []ChatCall  `json:"tool_calls"`
}

// ChatMeta describes an answer. StopReason is end, max_tokens, stop_sequence or tool_calls.
type ChatMeta struct {
	Model      string `json:"model"`
	TokensIn   int64  `json:"tokens_in"`
	TokensOut  int64  `json:"tokens_out"`
	StopReason string `json:"stop_reason"`
	MS         int64  `json:"ms"`
}

// chats returns both versions of llm.chat for an agent.
func (f *front) chats(d bus.Descriptor, agentName string) (all []capability) {
	d.Reads = true // results of the caller's tools
	f.agentTime(&d)
	d.Effect = toolcrib.EffectReadOnly
	d.Description = cmp.Or(d.Description, "Asks a language model. The caller executes the tools that it brings.")
	for _, major := range []int{1, 2} {
		if d.Name.Major != major {
			other := bus.Name{Name: chatName, Major: major}
			if _, named := f.Service().Env.Config.Bus.Offers[other.String()]; named {
				continue
			}
		}
		one := d
		one.Name = bus.Name{Name: chatName, Major: major}
		grants := []string{toolcrib.GroupClient, "agent:" + agentName}
		all = append(all, capability{one, grants, f.chat(&one, agentName)})
	}
	return all
}

// conversation is a call of llm.chat.
type conversation struct {
	*served
	in     Chat
	model  string // "" means the agent's
	ask    *openai.Ask
	before toolcrib.Usage
	ids    map[string]string // public IDs of calls, by those of the run
	made   int               // number of calls of the run so far
	result ChatResult
}

func (f *front) chat(d *bus.Descriptor, agentName string) nodes.Serve {
	return func(ctx context.Context, who toolcrib.Principal, x *bus.Exchange) (json.RawMessage, error) {
		began := time.Now()
		v := &conversation{ids: map[string]string{}}
		err := decode(x.Body, &v.in)
		if err != nil {
			return nil, err
		}
		if v.model, err = modelOf(v.in.Params, d.Params); err != nil {
			return nil, err
		}
		if v.ask, err = v.in.read(); err != nil {
			return nil, err
		}
		if err := v.start(ctx, f, who, x, agentName); err != nil {
			return nil, err
		}
		defer v.leave()
		for {
			calls, err := v.tell(ctx)
			switch {
			case err != nil:
				return nil, err
			case len(calls) > 0 && v.in.Input.Results == "stream":
				if err := v.results(ctx, calls); err != nil {
					return nil, err
				}
				continue
			}
			v.result.Meta.MS = time.Since(began).Milliseconds()
			return json.Marshal(v.result)
		}
	}
}

// modelOf returns the model that params name, or "". offered are the params of the offer.
func modelOf(params map[string]any, offered map[string][]any) (string, error) {
	for name := range params {
		if _, known := offered[name]; !known && !slices.Contains([]string{"model", "ctx", "modalities"}, name) {
			return "", toolcrib.Errorf(toolcrib.CodeBadRequest, "unknown field %+q of params", guard.Clip(name, 64))
		}
	}
	m := params["model"]
	if m == nil || m == "" || slices.Contains(offered["model"], m) {
		text, _ := m.(string)
		return text, nil
	}
	return "", toolcrib.Errorf(toolcrib.CodeBadRequest, "params.model: %+q is not offered; offered are %q, and the node's "+
		"choice without it", guard.Clip(fmt.Sprint(m), 64), offered["model"])
}

// start continues the run that waits for the results in the call, or starts a run.
func (v *conversation) start(
	ctx context.Context, f *front, who toolcrib.Principal, x *bus.Exchange, agentName string,
) error {
	waiting := &served{front: f, who: who, x: x, run: v.ask.Answers(), sub: &worker.Subscription{}}
	if waiting.run != "" {
		v.served = waiting
		if ok, err := v.continues(ctx, agentName); ok || err != nil {
			return err
		}
	}
	r := service.StartRequest{
		Agent: agentName, Messages: v.ask.Messages, MessageFiles: v.ask.Files, ClientTools: v.ask.Tools, Tools: []string{},
		Asked: v.ask.Digest(), Replaces: waiting.run,
	}
	r.Model, r.ToolChoice = v.model, v.ask.Choice
	r.Answering = policy.Answering{
		System: v.ask.System, Temperature: v.ask.Temperature, MaxOutputTokens: v.ask.MaxOutputTokens,
		Schema: v.ask.Schema, Reasoning: v.in.Input.Reasoning,
	}
	if last := len(r.Messages) - 1; r.Messages[last].Role == toolcrib.RoleUser {
		r.Prompt, r.Messages, r.Files = r.Messages[last].Text(), r.Messages[:last], v.ask.Files[last]
		delete(r.MessageFiles, last)
	}
	var err error
	v.served, err = f.begin(ctx, who, x, r)
	c := v.ask.Choice
	must := c != nil && (c.Mode == toolcrib.ChoiceRequired || c.Mode == toolcrib.ChoiceName)
	if must && toolcrib.CodeOf(err) == toolcrib.CodeBadRequest { // the model takes no tools
		r.ToolChoice = nil
		var again error
		if v.served, again = f.begin(ctx, who, x, r); again != nil {
			return err
		}
		err = v.frame(ctx, "notice", toolcrib.Notice{
			Code: "tools_ignored", Message: "tool_choice is ignored: the model takes no tools",
		})
	}
	return err
}

// continues gives the results in the call to the run that asked for them. It returns false if the run does not wait
// for exactly these; another run then continues the conversation in the call.
func (v *conversation) continues(ctx context.Context, agentName string) (bool, error) {
	s := v.Service()
	run, err := s.Run(ctx, v.who, string(v.run))
	if toolcrib.CodeOf(err) == toolcrib.CodeNotFound { // of another caller, or removed
		return false, nil
	}
	if err != nil {
		return false, err
	}
	asked, err := s.RequestOf(ctx, v.who, run.ID)
	if err != nil || asked != v.ask.Digest() || run.Agent != agentName || len(v.ask.Said) > 0 ||
		run.Status != toolcrib.StatusWaitingForTool || run.Pending == nil || len(run.Pending.Calls) != len(v.ask.Results) {
		return false, err
	}
	results := make([]service.ClientResult, len(v.ask.Results))
	for i, r := range v.ask.Results {
		of, n, ok := openai.ReadCallID(r.CallID)
		if !ok || of != run.ID || n > len(run.Trace) || run.Trace[n-1].Status != "" {
			return false, nil
		}
		body, err := json.Marshal(r.Content)
		if err != nil {
			return false, err
		}
		results[i] = service.ClientResult{CallID: run.Trace[n-1].ID, Body: body}
	}
	if v.after, v.before, err = v.paused(ctx); err != nil {
		return false, err
	}
	v.made = len(run.Trace)
	v.leave = s.Bus.Serve(string(run.ID), v.x)
	_, err = v.Pool.GiveResults(context.WithoutCancel(ctx), v.who, string(run.ID), results)
	if err != nil {
		v.leave()
	}
	if toolcrib.CodeOf(err) == toolcrib.CodeConflict || errors.Is(err, agent.ErrEarly) {
		return false, nil
	}
	return err == nil, err
}

// paused returns the last pause of the run, and its usage until then.
func (v *conversation) paused(ctx context.Context) (after toolcrib.Seq, used toolcrib.Usage, err error) {
	var now toolcrib.Usage
	err = v.Service().Events(ctx, v.who, string(v.run), 0, false, func(f journal.Frame) error {
		switch d := f.Data.(type) {
		case *journal.Paused:
			after, used = f.Seq, now
		case toolcrib.Usage:
			now = d
		}
		return nil
	})
	return after, used, err
}

// tell sends the frames of the run until it answers or calls tools of the caller. It returns these calls.
func (v *conversation) tell(ctx context.Context) ([]openai.Call, error) {
	t := openai.NewTeller(v.ask, &teller{conversation: v, ctx: ctx}, v.before)
	err := v.follow(ctx, func(frame journal.Frame) error {
		switch d := frame.Data.(type) {
		case journal.CallDeltaView:
			d.ID = v.idOf(d.ID)
			return v.frame(ctx, journal.FrameToolCallDelta, d)
		case journal.CallView:
			v.idOf(d.ID)
		case toolcrib.Notice:
			return v.frame(ctx, "notice", toolcrib.Notice{Code: d.Code, Message: d.Message})
		case *journal.Paused:
			if err := waits(d); err != nil {
				return err
			}
			v.after = frame.Seq
		case journal.ErrorView:
			return failed(&d)
		}
		return t.Frame(frame)
	})
	if toolcrib.CodeOf(err) == toolcrib.CodeProviderFailed { // the caller asks again
		v.cancel(ctx)
	}
	if err != nil && !errors.Is(err, openai.ErrOver) {
		return nil, err
	}
	run, err := v.Service().Run(ctx, v.who, string(v.run))
	if err != nil {
		return nil, err
	}
	v.result.Meta = ChatMeta{Model: run.Model}
	place := func(id string) int {
		return 1 + slices.IndexFunc(run.Trace, func(c api.TraceCall) bool { return c.ID == id })
	}
	if err := t.Over(v.run, place, func(*journal.Pending) string { return "" }); err != nil {
		return nil, err
	}
	v.made, v.before = len(run.Trace), t.Used
	calls := v.result.Output.Calls
	out := make([]openai.Call, len(calls))
	for i, c := range calls {
		out[i] = openai.Call{ID: c.ID, Name: c.Name, Arguments: string(c.Arguments)}
	}
	return out, nil
}

// idOf returns the public ID of a call of the run.
func (v *conversation) idOf(id string) string {
	if v.ids[id] == "" {
		v.ids[id] = openai.CallID(v.run, v.made+len(v.ids)+1)
	}
	return v.ids[id]
}

// frame sends a frame if the caller wants frames.
func (v *conversation) frame(ctx context.Context, event toolcrib.Kind, data any) error {
	if v.in.Input.Stream != nil && !*v.in.Input.Stream {
		return nil
	}
	return v.send(ctx, event, data)
}

// results receives the results of calls as frames and gives them to the run.
func (v *conversation) results(ctx context.Context, calls []openai.Call) error {
	open := map[string]string{} // IDs of the run, by those of the caller
	for id, public := range v.ids {
		open[public] = id
	}
	maps.DeleteFunc(open, func(public, _ string) bool {
		return !slices.ContainsFunc(calls, func(c openai.Call) bool { return c.ID == public })
	})
	var results []service.ClientResult
	for len(open) > 0 {
		frame, err := v.x.Recv(ctx)
		if err != nil && ctx.Err() != nil {
			return v.left(ctx)
		}
		if err != nil {
			return err
		}
		var r struct {
			ID      string          `json:"tool_call_id"`
			Body    json.RawMessage `json:"body"`
			IsError bool            `json:"is_error"`
		}
		if err := json.Unmarshal(frame.Data, &r); err != nil || frame.Event != "tool_result" || open[r.ID] == "" {
			return toolcrib.Errorf(toolcrib.CodeBadRequest, "the frame must be a tool_result of an open call")
		}
		results = append(results, service.ClientResult{CallID: open[r.ID], Body: r.Body, IsError: r.IsError})
		delete(open, r.ID)
	}
	v.ids, v.sub = map[string]string{}, &worker.Subscription{}
	_, err := v.Pool.GiveResults(context.WithoutCancel(ctx), v.who, string(v.run), results)
	return err
}

// teller sends an answer as frames.
type teller struct {
	*conversation
	ctx context.Context // of the call
}

// Whole implements [openai.Answer], as the other methods do.
func (t *teller) Whole() any { return nil }

func (t *teller) Think(string) error { return nil }

func (t *teller) Say(text string) error {
	return t.frame(t.ctx, journal.FrameToken, journal.TextView{Text: text})
}

func (t *teller) Break() error { return nil }

func (t *teller) End(o *openai.Outcome) error {
	text, err := json.Marshal(o.Text)
	if err != nil {
		return err
	}
	m := &t.result.Meta
	m.TokensIn, m.TokensOut, m.StopReason = o.Usage.InputTokens, o.Usage.OutputTokens, "end"
	switch {
	case o.Stopped:
		m.StopReason = "stop_sequence"
	case o.Cut:
		m.StopReason = "max_tokens"
	}
	t.result.Output = ChatOutput{Message: ChatMessage{Role: "assistant", Content: text}, Calls: []ChatCall{}}
	for _, c := range o.Calls {
		m.StopReason = "tool_calls"
		call := ChatCall{ID: c.ID, Name: c.Name, Arguments: json.RawMessage(c.Arguments)}
		if err := t.frame(t.ctx, journal.KindToolCall, call); err != nil {
			return err
		}
		t.result.Output.Calls = append(t.result.Output.Calls, call)
	}
	return nil
}

func (t *teller) Fail(openai.ErrorDetail, toolcrib.Usage) error { return nil }

// Requests of OpenAI's API.
type (
	function struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters,omitempty"`
		Arguments   string          `json:"arguments,omitempty"`
	}
	entry struct {
		ID       string   `json:"id,omitempty"`
		Type     string   `json:"type"`
		Function function `json:"function"`
	}
	message struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content,omitempty"`
		Calls   []entry         `json:"tool_calls,omitempty"`
		CallID  string          `json:"tool_call_id,omitempty"`
	}
)

// read returns the body as a request of OpenAI's API.
func (in *Chat) read() (*openai.Ask, error) {
	q := &in.Input
	messages := make([]message, len(q.Messages))
	for i, m := range q.Messages {
		messages[i] = message{Role: m.Role, Content: m.Content, CallID: m.CallID}
		if m.Role == "tool" && len(m.Content) > 0 && m.Content[0] != '"' { // an object becomes JSON text
			messages[i].Content, _ = json.Marshal(string(m.Content)) // does not fail for a string
		}
		for _, c := range m.Calls {
			f := function{Name: c.Name, Arguments: string(c.Arguments)}
			messages[i].Calls = append(messages[i].Calls, entry{c.ID, "function", f})
		}
	}
	body := map[string]any{"messages": messages, "stop": q.Stop}
	if len(q.Tools) > 0 {
		tools := make([]entry, len(q.Tools))
		for i, t := range q.Tools {
			tools[i] = entry{Type: "function", Function: function{
				Name:        t.Name,
				Description: t.Description, Parameters: t.Parameters,
			}}
		}
		body["tools"] = tools
	}
	if len(q.Choice) > 0 {
		body["tool_choice"] = q.Choice
		var named struct{ Name string }
		if q.Choice[0] == '{' && json.Unmarshal(q.Choice, &named) == nil {
			body["tool_choice"] = entry{Type: "function", Function: function{Name: named.Name}}
		}
	}
	if q.MaxTokens > 0 {
		body["max_tokens"] = q.MaxTokens
	}
	if q.Temperature != nil {
		body["temperature"] = *q.Temperature
	}
	if len(q.Schema) > 0 {
		schema := map[string]any{"name": "answer", "schema": q.Schema}
		body["response_format"] = map[string]any{"type": "json_schema", "json_schema": schema}
	}
	var request openai.ChatRequest
	raw, err := json.Marshal(body)
	if err == nil {
		err = json.Unmarshal(raw, &request)
	}
	if err != nil {
		return nil, err
	}
	ask, err := openai.ReadChat(request)
	var wrong *openai.Error
	switch {
	case errors.As(err, &wrong):
		return nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "input.%s", wrong)
	case err != nil:
		return nil, err
	case ask.Choice != nil && ask.Choice.Mode == toolcrib.ChoiceRequired && len(ask.Tools) == 0:
		return nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "input.tool_choice: required needs tools")
	case ask.Choice != nil && ask.Choice.Mode == toolcrib.ChoiceName &&
		!slices.ContainsFunc(ask.Tools, func(t toolcrib.Spec) bool { return t.Name == ask.Choice.Name }):
		return nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "input.tool_choice: there is no tool %q", ask.Choice.Name)
	case len(ask.Messages) == 0:
		return nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "input.messages: is missing")
	}
	return ask, nil
}
