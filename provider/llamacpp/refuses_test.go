package llamacpp_test

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

// refuses returns parts of a request that llama-server rejects or ignores, although they are
// valid in Chat Completions; nil if none.
func refuses(_ string, body []byte) error {
	var doc map[string]any
	if err := json.Unmarshal(body, &doc); err != nil {
		return err
	}
	var errs []error
	wrong := func(is bool, text string) {
		if is {
			errs = append(errs, errors.New(text))
		}
	}
	_, named := doc["tool_choice"].(map[string]any)
	wrong(named, "tool_choice: llama-server takes no named tool, and would choose by itself")
	wrong(doc["tools"] != nil && (doc["response_format"] != nil || doc["grammar"] != nil || doc["json_schema"] != nil),
		"response_format: one grammar cannot hold both calls and the answer")
	wrong(doc["parallel_tool_calls"] != nil && doc["tools"] == nil, "parallel_tool_calls: only with tools")
	wrong(doc["max_tokens"] != nil && doc["max_completion_tokens"] != nil, "max_tokens: two limits")
	var grammarSafe func(v any)
	grammarSafe = func(v any) { // otherwise there is no grammar, and the whole request fails
		switch v := v.(type) {
		case []any:
			for _, inner := range v {
				grammarSafe(inner)
			}
		case map[string]any:
			n, _ := v["maxLength"].(float64)
			wrong(n > 2000, "maxLength: more repetitions than a grammar may have")
			p, ok := v["pattern"].(string)
			wrong(ok && (!strings.HasPrefix(p, "^") || !strings.HasSuffix(p, "$")), "pattern: must begin with ^ and end with $")
			for _, inner := range v {
				grammarSafe(inner)
			}
		}
	}
	grammarSafe(doc["tools"])
	return errors.Join(errs...)
}

// check reports errors that the server would return for a request.
func check(body []byte) error {
	return errors.Join(modeltest.LlamaCpp.Check(body), refuses("", body))
}
