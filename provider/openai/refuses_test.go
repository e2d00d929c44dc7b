package openai_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// findings collects errors of an API.
type findings struct{ errs []error }

func (f *findings) wrong(is bool, format string, args ...any) {
	if is {
		f.errs = append(f.errs, fmt.Errorf(format, args...))
	}
}

// sentRequest has the fields of a request that both APIs have.
type sentRequest struct {
	Stream        bool     `json:"stream"`
	StreamOptions any      `json:"stream_options"`
	Temperature   *float64 `json:"temperature"`
}

func (f *findings) common(r sentRequest) {
	f.wrong(r.StreamOptions != nil && !r.Stream, "stream_options: only with stream")
	f.wrong(r.Temperature != nil && (*r.Temperature < 0 || *r.Temperature > 2), "temperature: must be 0 to 2")
}

func (f *findings) effort(effort string) {
	f.wrong(!slices.Contains([]string{"", "none", "minimal", "low", "medium", "high", "xhigh", "max"}, effort),
		"unknown effort %q", effort)
}

// refusesChat returns errors that Chat Completions reports although its own types accept the request;
// nil if none.
func refusesChat(_ string, body []byte) error {
	var doc struct {
		sentRequest
		MaxTokens           *int   `json:"max_tokens"`
		MaxCompletionTokens *int   `json:"max_completion_tokens"`
		Effort              string `json:"reasoning_effort"`
		Messages            []struct {
			Role   string `json:"role"`
			Calls  []any  `json:"tool_calls"`
			CallID string `json:"tool_call_id"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return err
	}
	var f findings
	f.common(doc.sentRequest)
	f.wrong(doc.MaxTokens != nil && doc.MaxCompletionTokens != nil, "max_tokens and max_completion_tokens exclude each other")
	f.effort(doc.Effort)
	for i, m := range doc.Messages {
		f.wrong(!slices.Contains([]string{"system", "developer", "user", "assistant", "tool"}, m.Role), "messages[%d]: role %q", i, m.Role)
		f.wrong(m.Role != "assistant" && m.Calls != nil, "messages[%d]: only the assistant calls", i)
		f.wrong(m.Role != "tool" && m.CallID != "", "messages[%d]: only results have tool_call_id", i)
	}
	return errors.Join(f.errs...)
}

// refusesResponses returns errors that the Responses API reports although its own types accept the
// request; nil if none.
func refusesResponses(_ string, body []byte) error {
	var doc struct {
		sentRequest
		Store     *bool    `json:"store"`
		MaxTokens *int     `json:"max_output_tokens"`
		Include   []string `json:"include"`
		Reasoning struct {
			Effort string `json:"effort"`
		} `json:"reasoning"`
		Text struct {
			Format struct {
				Type, Name string
				Schema     map[string]any
			} `json:"format"`
		} `json:"text"`
		Tools []struct {
			Type   string `json:"type"`
			Strict *bool  `json:"strict"`
		} `json:"tools"`
		Input []struct {
			Type, Role, Phase string
			ID                string
			Content, Output   json.RawMessage
			Summary           any
			Sealed            string `json:"encrypted_content"`
		} `json:"input"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return err
	}
	var f findings
	f.common(doc.sentRequest)
	f.wrong(doc.Store == nil || *doc.Store, "store: must be false")
	f.wrong(doc.MaxTokens != nil && *doc.MaxTokens < 1, "max_output_tokens: must be at least 1")
	f.wrong(len(doc.Include) > 1 || len(doc.Include) == 1 && doc.Include[0] != "reasoning.encrypted_content", "include: %v", doc.Include)
	f.effort(doc.Reasoning.Effort)
	format := doc.Text.Format
	f.wrong(!slices.Contains([]string{"", "text", "json_object", "json_schema"}, format.Type), "text.format: %q", format.Type)
	f.wrong(format.Type == "json_schema" && (format.Name == "" || format.Schema == nil), "text.format: needs a name and a schema")
	for i, tool := range doc.Tools {
		f.wrong(tool.Type != "function", "tools[%d].type: must be function", i)
		f.wrong(tool.Strict == nil || *tool.Strict, "tools[%d].strict: must be false; it is true by default", i)
	}
	reasoning := false // the item before is reasoning, which must lead to something
	for i, item := range doc.Input {
		own := item.Type == "reasoning" || item.Type == "function_call" || item.Role == "assistant"
		f.wrong(reasoning && !own, "input[%d]: reasoning without the item that follows it", i)
		reasoning = item.Type == "reasoning"
		f.wrong(reasoning && (item.Sealed == "" || !strings.HasPrefix(item.ID, "rs_") || item.Summary == nil),
			"input[%d]: reasoning needs id, summary and encrypted_content", i)
		if item.Role == "assistant" {
			var said string
			f.wrong(json.Unmarshal(item.Content, &said) != nil || said == "", "input[%d]: an assistant's content is a text", i)
			f.wrong(!slices.Contains([]string{"", "commentary", "final_answer"}, item.Phase), "input[%d]: phase %q", i, item.Phase)
			continue
		}
		f.files(i, item.Content)
		f.files(i, item.Output)
	}
	f.wrong(reasoning, "input: reasoning without the item that follows it")
	return errors.Join(f.errs...)
}

// files checks that in a list of content, images and files are complete.
func (f *findings) files(i int, content json.RawMessage) {
	var parts []struct {
		Type     string
		ImageURL string `json:"image_url"`
		Name     string `json:"filename"`
		Data     string `json:"file_data"`
	}
	if content == nil || json.Unmarshal(content, &parts) != nil {
		return
	}
	for _, p := range parts {
		f.wrong(!slices.Contains([]string{"input_text", "input_image", "input_file"}, p.Type), "input[%d]: %q", i, p.Type)
		f.wrong(p.Type == "input_image" && !strings.HasPrefix(p.ImageURL, "data:image/"), "input[%d]: an image without data", i)
		f.wrong(p.Type == "input_file" && (p.Name == "" || !strings.HasPrefix(p.Data, "data:")), "input[%d]: a file that is not whole", i)
	}
}
