package modeltest

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

type ollamaRequest struct {
	Model       string           `json:"model"`
	Messages    []ollamaMessage  `json:"messages"`
	Tools       *[]openAITool    `json:"tools"`
	Stream      *bool            `json:"stream"`
	Format      json.RawMessage  `json:"format"`
	Options     *json.RawMessage `json:"options"`
	KeepAlive   json.RawMessage  `json:"keep_alive"`
	Think       json.RawMessage  `json:"think"`
	Truncate    *bool            `json:"truncate"`
	Shift       *bool            `json:"shift"`
	Logprobs    *bool            `json:"logprobs"`
	TopLogprobs *int             `json:"top_logprobs"`
}

type ollamaMessage struct {
	Role      string        `json:"role"`
	Content   *string       `json:"content"`
	Thinking  *string       `json:"thinking"`
	Images    *[]string     `json:"images"`
	ToolCalls *[]ollamaTool `json:"tool_calls"`
	ToolName  *string       `json:"tool_name"`
}

type ollamaTool struct {
	Function struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"function"`
}

type ollamaOptions struct {
	NumCtx           *int64          `json:"num_ctx"`
	NumPredict       *int64          `json:"num_predict"`
	NumKeep          *int64          `json:"num_keep"`
	NumBatch         *int64          `json:"num_batch"`
	NumGPU           *int64          `json:"num_gpu"`
	MainGPU          *int64          `json:"main_gpu"`
	NumThread        *int64          `json:"num_thread"`
	Seed             *int64          `json:"seed"`
	TopK             *int64          `json:"top_k"`
	RepeatLastN      *int64          `json:"repeat_last_n"`
	Temperature      *float64        `json:"temperature"`
	TopP             *float64        `json:"top_p"`
	MinP             *float64        `json:"min_p"`
	TypicalP         *float64        `json:"typical_p"`
	RepeatPenalty    *float64        `json:"repeat_penalty"`
	PresencePenalty  *float64        `json:"presence_penalty"`
	FrequencyPenalty *float64        `json:"frequency_penalty"`
	UseMMap          *bool           `json:"use_mmap"`
	Stop             json.RawMessage `json:"stop"`
}

// CheckOllamaRequest tells what Ollama's /api/chat would refuse or pass over in a
// request body, and what requirements N8, N12, N13 and N14 forbid; nil = nothing.
// The API takes IDs of calls, but knows results by their place, so that there is
// none on the wire (N14).
func CheckOllamaRequest(body []byte) error {
	var r ollamaRequest
	if err := strict(body, &r); err != nil {
		return err
	}
	if r.Model == "" {
		return errors.New("model: is missing")
	}
	if r.Truncate == nil || *r.Truncate {
		return errors.New("truncate: must be false, or a long prompt is cut silently")
	}
	if err := r.checkParameters(); err != nil {
		return err
	}
	tools := openAIRequest{Tools: r.Tools}
	if _, err := tools.checkTools(); err != nil {
		return err
	}
	if len(r.Format) > 0 && r.Tools != nil {
		return errors.New("format: keeps the model from calling tools")
	}
	return r.checkMessages()
}

func (r *ollamaRequest) checkParameters() error {
	if r.Options != nil {
		var o ollamaOptions
		if err := strict(*r.Options, &o); err != nil {
			return fmt.Errorf("options: %w", err)
		}
		if string(*r.Options) == "{}" {
			return errors.New("options: empty; leave it out")
		}
	}
	if len(r.Think) > 0 && !slices.Contains([]string{"true", "false", `"low"`, `"medium"`, `"high"`, `"max"`}, string(r.Think)) {
		return fmt.Errorf("think: unknown value %s", r.Think)
	}
	if len(r.Format) > 0 && string(r.Format) != `"json"` && !jsonObject(r.Format) {
		return errors.New(`format: must be "json" or a JSON Schema`)
	}
	return nil
}

func (r *ollamaRequest) checkMessages() error {
	if len(r.Messages) == 0 {
		return errors.New("messages: must not be empty")
	}
	var open []string // names of the calls of the assistant turn before that wait for a result
	for i := range r.Messages {
		m := &r.Messages[i]
		where := fmt.Sprintf("messages[%d]", i)
		if m.Role != "tool" && len(open) > 0 {
			return fmt.Errorf("%s: calls of %q have no result right after their turn (N12)", where, open)
		}
		if m.Content == nil {
			return fmt.Errorf("%s.content: must be a string", where)
		}
		var err error
		switch m.Role {
		case "system":
			if i > 0 {
				err = errors.New("role system: the templates of many models take it at the beginning only")
			}
		case "user":
			err = m.checkUser()
		case "assistant":
			open, err = m.checkAssistant()
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
		return fmt.Errorf("messages: calls of %q have no result (N12)", open)
	}
	return nil
}

func (m *ollamaMessage) checkUser() error {
	if m.ToolCalls != nil || m.ToolName != nil || m.Thinking != nil {
		return errors.New("only assistant and tool messages carry calls and reasoning")
	}
	if m.Images == nil {
		return nil
	}
	if len(*m.Images) == 0 {
		return errors.New("images: must not be empty; leave it out")
	}
	for i, image := range *m.Images {
		if data, err := base64.StdEncoding.DecodeString(image); err != nil || len(data) == 0 {
			return fmt.Errorf("images[%d]: no base64", i)
		}
	}
	return nil
}

func (m *ollamaMessage) checkAssistant() (open []string, err error) {
	if m.ToolName != nil || m.Images != nil {
		return nil, errors.New("an assistant message carries neither images nor results")
	}
	if m.Thinking != nil && *m.Thinking == "" {
		return nil, errors.New("thinking: must not be empty; leave it out")
	}
	if m.ToolCalls == nil {
		if *m.Content == "" {
			return nil, errors.New("content: the turn says nothing")
		}
		return nil, nil
	}
	if len(*m.ToolCalls) == 0 {
		return nil, errors.New("tool_calls: must not be empty; leave it out (1c.4)")
	}
	for i, c := range *m.ToolCalls {
		switch {
		case !toolName.MatchString(c.Function.Name):
			return nil, fmt.Errorf("tool_calls[%d].function.name: %q does not match %s", i, c.Function.Name, toolName)
		case !jsonObject(c.Function.Arguments):
			return nil, fmt.Errorf("tool_calls[%d].function.arguments: must be an object (N13, N14)", i)
		}
		open = append(open, c.Function.Name)
	}
	return open, nil
}

func (m *ollamaMessage) checkTool(open []string) ([]string, error) {
	switch {
	case m.ToolCalls != nil || m.Thinking != nil || m.Images != nil:
		return nil, errors.New("a result carries text only")
	case m.ToolName == nil || !toolName.MatchString(*m.ToolName):
		return nil, errors.New("tool_name: is missing or no name")
	case len(open) == 0:
		return nil, fmt.Errorf("tool_name: %q answers no call of the turn before", *m.ToolName)
	}
	return open[1:], nil
}
