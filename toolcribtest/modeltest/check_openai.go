package modeltest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

type openAIRequest struct {
	Model               string              `json:"model"`
	Messages            []openAIMessage     `json:"messages"`
	Tools               *[]openAITool       `json:"tools"`
	ToolChoice          json.RawMessage     `json:"tool_choice"`
	ParallelToolCalls   *bool               `json:"parallel_tool_calls"`
	Stream              *bool               `json:"stream"`
	StreamOptions       *openAIStreamOption `json:"stream_options"`
	Temperature         *float64            `json:"temperature"`
	TopP                *float64            `json:"top_p"`
	MaxTokens           *int64              `json:"max_tokens"`
	MaxCompletionTokens *int64              `json:"max_completion_tokens"`
	ReasoningEffort     *string             `json:"reasoning_effort"`
	ResponseFormat      json.RawMessage     `json:"response_format"`
	Stop                json.RawMessage     `json:"stop"`
	Seed                *int64              `json:"seed"`
	N                   *int                `json:"n"`
	User                *string             `json:"user"`
	Metadata            map[string]string   `json:"metadata"`
	Store               *bool               `json:"store"`
	ServiceTier         *string             `json:"service_tier"`
	Verbosity           *string             `json:"verbosity"`
	PromptCacheKey      *string             `json:"prompt_cache_key"`
	FrequencyPenalty    *float64            `json:"frequency_penalty"`
	PresencePenalty     *float64            `json:"presence_penalty"`
	LogitBias           map[string]float64  `json:"logit_bias"`
	Logprobs            *bool               `json:"logprobs"`
	TopLogprobs         *int                `json:"top_logprobs"`
}

type openAIStreamOption struct {
	IncludeUsage bool `json:"include_usage"`
}

type openAIMessage struct {
	Role       string           `json:"role"`
	Content    *json.RawMessage `json:"content"`
	Name       *string          `json:"name"`
	Refusal    *string          `json:"refusal"`
	ToolCalls  *[]openAICall    `json:"tool_calls"`
	ToolCallID *string          `json:"tool_call_id"`
}

type openAICall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string  `json:"name"`
		Arguments *string `json:"arguments"`
	} `json:"function"`
}

type openAITool struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
		Strict      *bool           `json:"strict"`
	} `json:"function"`
}

// CheckOpenAIRequest tells what OpenAI's Chat Completions API would refuse in a
// request body, and what requirements 4c.2, N8, N12 and N13 forbid; nil = nothing.
func CheckOpenAIRequest(body []byte) error {
	var r openAIRequest
	if err := strict(body, &r); err != nil {
		return err
	}
	if r.Model == "" {
		return errors.New("model: is missing")
	}
	if r.MaxTokens != nil && r.MaxCompletionTokens != nil {
		return errors.New("max_tokens and max_completion_tokens exclude each other")
	}
	if r.StreamOptions != nil && (r.Stream == nil || !*r.Stream) {
		return errors.New("stream_options: only with stream")
	}
	if t := r.Temperature; t != nil && (*t < 0 || *t > 2) {
		return errors.New("temperature: must be 0 to 2")
	}
	if e := r.ReasoningEffort; e != nil && !slices.Contains([]string{"none", "minimal", "low", "medium", "high", "xhigh", "max"}, *e) {
		return fmt.Errorf("reasoning_effort: unknown value %q", *e)
	}
	names, err := r.checkTools()
	if err != nil {
		return err
	}
	if err := r.checkChoice(names); err != nil {
		return err
	}
	return r.checkMessages()
}

func (r *openAIRequest) checkTools() (names []string, err error) {
	if r.Tools == nil {
		return nil, nil
	}
	if len(*r.Tools) == 0 {
		return nil, errors.New("tools: must not be empty; leave it out (N8)")
	}
	for i, t := range *r.Tools {
		where := fmt.Sprintf("tools[%d]", i)
		switch {
		case t.Type != "function":
			return nil, fmt.Errorf("%s.type: must be function", where)
		case !toolName.MatchString(t.Function.Name):
			return nil, fmt.Errorf("%s.function.name: %q does not match %s", where, t.Function.Name, toolName)
		case slices.Contains(names, t.Function.Name):
			return nil, fmt.Errorf("%s.function.name: %q twice", where, t.Function.Name)
		}
		if err := objectSchema(where+".function.parameters", t.Function.Parameters); err != nil {
			return nil, err
		}
		names = append(names, t.Function.Name)
	}
	if !slices.IsSorted(names) {
		return nil, errors.New("tools: not sorted by name (C5)")
	}
	return names, nil
}

func (r *openAIRequest) checkChoice(names []string) error {
	if r.ToolChoice == nil {
		return nil
	}
	if len(names) == 0 {
		return errors.New("tool_choice: only allowed with tools")
	}
	var mode string
	if json.Unmarshal(r.ToolChoice, &mode) == nil {
		if !slices.Contains([]string{"auto", "none", "required"}, mode) {
			return fmt.Errorf("tool_choice: unknown value %q", mode)
		}
		return nil
	}
	var named struct {
		Type     string `json:"type"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if err := strict(r.ToolChoice, &named); err != nil {
		return fmt.Errorf("tool_choice: %w", err)
	}
	if named.Type != "function" || !slices.Contains(names, named.Function.Name) {
		return fmt.Errorf("tool_choice: %q is not in tools", named.Function.Name)
	}
	return nil
}

func (r *openAIRequest) checkMessages() error {
	if len(r.Messages) == 0 {
		return errors.New("messages: must not be empty")
	}
	var open []string // calls of the assistant turn before that wait for an answer
	used := map[string]bool{}
	for i := range r.Messages {
		m := &r.Messages[i]
		where := fmt.Sprintf("messages[%d]", i)
		if m.Role != "tool" && len(open) > 0 {
			return fmt.Errorf("%s: tool_calls %q were not answered right after their turn (N12)", where, open)
		}
		var err error
		switch m.Role {
		case "system", "developer", "user":
			err = m.checkPlain()
		case "assistant":
			open, err = m.checkAssistant()
			for _, id := range open {
				if used[id] {
					return fmt.Errorf("%s: call ID %q was used before", where, id)
				}
				used[id] = true
			}
		case "tool":
			open, err = m.checkTool(open)
		default:
			err = fmt.Errorf("unknown role %q", m.Role)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("messages: tool_calls %q are not answered (N12)", open)
	}
	return nil
}

// isNull tells whether a member is missing or null; a pointer to a raw message
// is nil for both.
func (m *openAIMessage) content() (text string, isText, isNull bool) {
	if m.Content == nil {
		return "", false, true
	}
	err := json.Unmarshal(*m.Content, &text)
	return text, err == nil, false
}

func (m *openAIMessage) checkPlain() error {
	if m.ToolCalls != nil || m.ToolCallID != nil {
		return errors.New("only assistant and tool messages carry calls")
	}
	_, isText, isNull := m.content()
	if isNull {
		return errors.New("content: must not be null")
	}
	if isText {
		return nil
	}
	return checkContentParts(*m.Content)
}

func checkContentParts(raw json.RawMessage) error {
	var parts []struct {
		Type     string          `json:"type"`
		Text     *string         `json:"text"`
		ImageURL json.RawMessage `json:"image_url"`
		File     json.RawMessage `json:"file"`
		Audio    json.RawMessage `json:"input_audio"`
	}
	if err := strict(raw, &parts); err != nil {
		return fmt.Errorf("content: %w", err)
	}
	if len(parts) == 0 {
		return errors.New("content: empty list")
	}
	for _, p := range parts {
		if p.Type == "text" && p.Text == nil {
			return errors.New("content: text part without text")
		}
	}
	return nil
}

func (m *openAIMessage) checkAssistant() (open []string, err error) {
	if m.ToolCallID != nil {
		return nil, errors.New("tool_call_id: only in tool messages")
	}
	text, isText, isNull := m.content()
	if m.ToolCalls == nil {
		if isNull {
			return nil, errors.New("content: may only be null with tool_calls")
		}
		return nil, nil
	}
	if len(*m.ToolCalls) == 0 {
		return nil, errors.New("tool_calls: must not be empty; leave it out (1c.4)")
	}
	if isText && text == "" {
		return nil, errors.New(`content: must be null, not "", beside tool_calls (4c.2)`)
	}
	for i, c := range *m.ToolCalls {
		switch {
		case c.ID == "" || len(c.ID) > 40:
			return nil, fmt.Errorf("tool_calls[%d].id: %q must be 1 to 40 characters", i, c.ID)
		case slices.Contains(open, c.ID):
			return nil, fmt.Errorf("tool_calls[%d].id: %q twice", i, c.ID)
		case c.Type != "function":
			return nil, fmt.Errorf("tool_calls[%d].type: must be function", i)
		case !toolName.MatchString(c.Function.Name):
			return nil, fmt.Errorf("tool_calls[%d].function.name: %q does not match %s", i, c.Function.Name, toolName)
		case c.Function.Arguments == nil || !jsonObject([]byte(*c.Function.Arguments)):
			return nil, fmt.Errorf("tool_calls[%d].function.arguments: must be a string that holds a JSON object (N13)", i)
		}
		open = append(open, c.ID)
	}
	return open, nil
}

func (m *openAIMessage) checkTool(open []string) ([]string, error) {
	if m.ToolCallID == nil {
		return nil, errors.New("tool_call_id: is missing")
	}
	if _, isText, _ := m.content(); !isText {
		return nil, errors.New("content: must be a string")
	}
	at := slices.Index(open, *m.ToolCallID)
	if at < 0 {
		return nil, fmt.Errorf("tool_call_id: %q answers no call of the turn before", *m.ToolCallID)
	}
	if at > 0 {
		return nil, fmt.Errorf("tool_call_id: %q is out of order (N12)", *m.ToolCallID)
	}
	return open[1:], nil
}
