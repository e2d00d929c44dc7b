package modeltest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

type responsesRequest struct {
	Model             string            `json:"model"`
	Input             []json.RawMessage `json:"input"`
	Instructions      *string           `json:"instructions"`
	Tools             *[]responsesTool  `json:"tools"`
	ToolChoice        json.RawMessage   `json:"tool_choice"`
	ParallelToolCalls *bool             `json:"parallel_tool_calls"`
	Stream            *bool             `json:"stream"`
	StreamOptions     json.RawMessage   `json:"stream_options"`
	Store             *bool             `json:"store"`
	Include           []string          `json:"include"`
	Temperature       *float64          `json:"temperature"`
	TopP              *float64          `json:"top_p"`
	MaxOutputTokens   *int64            `json:"max_output_tokens"`
	MaxToolCalls      *int64            `json:"max_tool_calls"`
	Reasoning         *struct {
		Effort  string `json:"effort"`
		Summary string `json:"summary"`
	} `json:"reasoning"`
	Text           *responsesText    `json:"text"`
	Metadata       map[string]string `json:"metadata"`
	ServiceTier    *string           `json:"service_tier"`
	PromptCacheKey *string           `json:"prompt_cache_key"`
	SafetyID       *string           `json:"safety_identifier"`
	Truncation     *string           `json:"truncation"`
}

type responsesText struct {
	Format *struct {
		Type   string          `json:"type"`
		Name   string          `json:"name"`
		Strict *bool           `json:"strict"`
		Schema json.RawMessage `json:"schema"`
	} `json:"format"`
	Verbosity string `json:"verbosity"`
}

type responsesTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	Strict      *bool           `json:"strict"`
}

type responsesItem struct {
	Type      string           `json:"type"`
	Role      string           `json:"role"`
	Phase     string           `json:"phase"`
	Status    string           `json:"status"`
	Content   json.RawMessage  `json:"content"`
	ID        string           `json:"id"`
	CallID    string           `json:"call_id"`
	Name      string           `json:"name"`
	Arguments *string          `json:"arguments"`
	Output    json.RawMessage  `json:"output"`
	Summary   *json.RawMessage `json:"summary"`
	Encrypted string           `json:"encrypted_content"`
}

// CheckResponsesRequest tells what OpenAI's Responses API would refuse in a
// request body that keeps no state on the server, and what requirements N8, N12
// and N13 forbid; nil = nothing.
func CheckResponsesRequest(body []byte) error {
	var r responsesRequest
	if err := strict(body, &r); err != nil {
		return err
	}
	switch {
	case r.Model == "":
		return errors.New("model: is missing")
	case r.Store == nil || *r.Store:
		return errors.New("store: must be false")
	case r.Temperature != nil && (*r.Temperature < 0 || *r.Temperature > 2):
		return errors.New("temperature: must be 0 to 2")
	case r.MaxOutputTokens != nil && *r.MaxOutputTokens < 1:
		return errors.New("max_output_tokens: must be at least 1")
	case r.StreamOptions != nil && (r.Stream == nil || !*r.Stream):
		return errors.New("stream_options: only with stream")
	}
	if err := r.checkParameters(); err != nil {
		return err
	}
	names, err := r.checkTools()
	if err != nil {
		return err
	}
	if err := r.checkChoice(names); err != nil {
		return err
	}
	return r.checkInput()
}

func (r *responsesRequest) checkParameters() error {
	for _, one := range r.Include {
		if one != "reasoning.encrypted_content" {
			return fmt.Errorf("include: %q", one)
		}
	}
	if e := r.Reasoning; e != nil && !slices.Contains([]string{"", "none", "minimal", "low", "medium", "high", "xhigh"}, e.Effort) {
		return fmt.Errorf("reasoning.effort: unknown value %q", e.Effort)
	}
	if r.Text == nil || r.Text.Format == nil {
		return nil
	}
	switch f := r.Text.Format; f.Type {
	case "text", "json_object":
		return nil
	case "json_schema":
		if !toolName.MatchString(f.Name) || !jsonObject(f.Schema) {
			return errors.New("text.format: needs a name and a schema that is an object")
		}
		return nil
	default:
		return fmt.Errorf("text.format.type: %q", f.Type)
	}
}

func (r *responsesRequest) checkTools() (names []string, err error) {
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
		case !toolName.MatchString(t.Name):
			return nil, fmt.Errorf("%s.name: %q does not match %s", where, t.Name, toolName)
		case slices.Contains(names, t.Name):
			return nil, fmt.Errorf("%s.name: %q twice", where, t.Name)
		case t.Strict == nil || *t.Strict:
			return nil, fmt.Errorf("%s.strict: must be false; it is true by default", where)
		}
		if err := objectSchema(where+".parameters", t.Parameters); err != nil {
			return nil, err
		}
		names = append(names, t.Name)
	}
	if !slices.IsSorted(names) {
		return nil, errors.New("tools: not sorted by name (C5)")
	}
	return names, nil
}

func (r *responsesRequest) checkChoice(names []string) error {
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
		Type string `json:"type"`
		Name string `json:"name"`
	}
	if err := strict(r.ToolChoice, &named); err != nil {
		return fmt.Errorf("tool_choice: %w", err)
	}
	if named.Type != "function" || !slices.Contains(names, named.Name) {
		return fmt.Errorf("tool_choice: %q is not in tools", named.Name)
	}
	return nil
}

// responsesInput is what is known while the items are walked over.
type responsesInput struct {
	open      []string // calls that wait for their output
	used      map[string]bool
	reasoning bool // the item before is reasoning, which must lead to something
}

func (r *responsesRequest) checkInput() error {
	if len(r.Input) == 0 {
		return errors.New("input: must not be empty")
	}
	in := responsesInput{used: map[string]bool{}}
	for i, raw := range r.Input {
		var item responsesItem
		err := strict(raw, &item)
		if err == nil {
			if item.Type == "" && item.Role != "" {
				item.Type = "message" // it may be left out
			}
			err = in.check(&item)
		}
		if err != nil {
			return fmt.Errorf("input[%d]: %w", i, err)
		}
	}
	switch {
	case in.reasoning:
		return errors.New("input: reasoning without the item that follows it")
	case len(in.open) > 0:
		return fmt.Errorf("input: no output for the calls %q (N12)", in.open)
	}
	return nil
}

func (in *responsesInput) check(item *responsesItem) error {
	own := item.Type == "reasoning" || item.Type == "function_call" || item.Type == "message" && item.Role == "assistant"
	if in.reasoning && !own {
		return errors.New("reasoning without the item that follows it")
	}
	in.reasoning = item.Type == "reasoning"
	switch item.Type {
	case "message":
		if len(in.open) > 0 && !own {
			return fmt.Errorf("no output for the calls %q (N12)", in.open)
		}
		return item.checkMessage()
	case "reasoning":
		if !strings.HasPrefix(item.ID, "rs_") || item.Summary == nil || item.Encrypted == "" {
			return errors.New("reasoning: needs id, summary and encrypted_content")
		}
	case "function_call":
		switch {
		case item.CallID == "" || len(item.CallID) > 64:
			return fmt.Errorf("call_id: %q must be 1 to 64 characters", item.CallID)
		case in.used[item.CallID]:
			return fmt.Errorf("call_id: %q was used before", item.CallID)
		case !toolName.MatchString(item.Name):
			return fmt.Errorf("name: %q does not match %s", item.Name, toolName)
		case item.Arguments == nil || !jsonObject([]byte(*item.Arguments)):
			return errors.New("arguments: must be a string that holds a JSON object (N13)")
		}
		in.used[item.CallID] = true
		in.open = append(in.open, item.CallID)
	case "function_call_output":
		if len(in.open) == 0 || in.open[0] != item.CallID {
			return fmt.Errorf("call_id: output of %q, waiting for %q (N12)", item.CallID, in.open)
		}
		in.open = in.open[1:]
		return checkResponsesContent(item.Output)
	default:
		return fmt.Errorf("type: %q", item.Type)
	}
	return nil
}

func (item *responsesItem) checkMessage() error {
	switch item.Role {
	case "assistant":
		var text string
		if json.Unmarshal(item.Content, &text) != nil || text == "" {
			return errors.New("content: an assistant's is a text")
		}
		if !slices.Contains([]string{"", "commentary", "final_answer"}, item.Phase) {
			return fmt.Errorf("phase: %q", item.Phase)
		}
		return nil
	case "user", "system", "developer":
		return checkResponsesContent(item.Content)
	}
	return fmt.Errorf("role: %q", item.Role)
}

// checkResponsesContent checks what a message or a result holds: a text, or parts.
func checkResponsesContent(raw json.RawMessage) error {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return nil
	}
	var parts []struct {
		Type     string  `json:"type"`
		Text     *string `json:"text"`
		ImageURL string  `json:"image_url"`
		Detail   string  `json:"detail"`
		FileName string  `json:"filename"`
		FileData string  `json:"file_data"`
	}
	if err := strict(raw, &parts); err != nil {
		return fmt.Errorf("content: %w", err)
	}
	if len(parts) == 0 {
		return errors.New("content: empty list")
	}
	for _, p := range parts {
		switch {
		case p.Type == "input_text" && p.Text != nil:
		case p.Type == "input_image" && strings.HasPrefix(p.ImageURL, "data:image/"):
		case p.Type == "input_file" && p.FileName != "" && strings.HasPrefix(p.FileData, "data:"):
		default:
			return fmt.Errorf("content: a part of type %q that is not whole", p.Type)
		}
	}
	return nil
}
