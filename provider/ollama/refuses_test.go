package ollama_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

// refuses returns parts of a request that the API rejects or ignores silently although its own types
// accept them; nil if none. The API accepts IDs of calls, but matches results by position, so
// that no ID is sent (N14).
func refuses(_ string, body []byte) error {
	var doc struct {
		Truncate *bool          `json:"truncate"`
		Options  map[string]any `json:"options"`
		Think    any            `json:"think"`
		Format   any            `json:"format"`
		Tools    []any          `json:"tools"`
		Messages []struct {
			Role     string   `json:"role"`
			Content  *string  `json:"content"`
			Thinking *string  `json:"thinking"`
			ToolName string   `json:"tool_name"`
			Images   [][]byte `json:"images"`
			CallID   string   `json:"tool_call_id"`
			Calls    []struct {
				ID string `json:"id"`
			} `json:"tool_calls"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return err
	}
	var errs []error
	wrong := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	wrong(doc.Truncate == nil || *doc.Truncate, "truncate: must be false, or a long prompt is cut silently")
	wrong(doc.Options != nil && len(doc.Options) == 0, "options: empty; leave it out")
	for name, value := range doc.Options {
		_, isText := value.(string)
		wrong(isText && name != "stop", "options.%s: is a text", name)
	}
	wrong(!slices.Contains([]any{nil, true, false, "low", "medium", "high", "max"}, doc.Think), "think: %v", doc.Think)
	_, isSchema := doc.Format.(map[string]any)
	wrong(doc.Format != nil && doc.Format != "json" && !isSchema, `format: must be "json" or a JSON Schema`)
	wrong(doc.Format != nil && doc.Tools != nil, "format: keeps the model from calling tools")
	for i, m := range doc.Messages {
		wrong(!slices.Contains([]string{"system", "user", "assistant", "tool"}, m.Role), "messages[%d].role: %q", i, m.Role)
		wrong(m.Content == nil, "messages[%d].content: must be a string", i)
		wrong(m.Role == "system" && i > 0, "messages[%d]: templates take role system at the beginning only", i)
		wrong((m.Role == "tool") != (m.ToolName != ""), "messages[%d].tool_name: is for results, which need one", i)
		wrong(m.Thinking != nil && *m.Thinking == "", "messages[%d].thinking: must not be empty; leave it out", i)
		wrong(m.Role == "assistant" && m.Calls == nil && (m.Content == nil || *m.Content == ""), "messages[%d]: the turn says nothing", i)
		withID := m.CallID != ""
		for _, call := range m.Calls {
			withID = withID || call.ID != ""
		}
		wrong(withID, "messages[%d]: the ID of a call (N14)", i)
		for _, image := range m.Images {
			wrong(len(image) == 0, "messages[%d].images: is empty", i)
		}
	}
	return errors.Join(errs...)
}

// check reports errors that the API would return for a request.
func check(body []byte) error { return errors.Join(modeltest.Ollama.Check(body), refuses("", body)) }
