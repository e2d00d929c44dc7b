package modeltest

import (
	"encoding/json"
	"errors"
)

// llamaCppFields are the fields of llama-server that Chat Completions does not
// have, as far as an adapter may send them.
var llamaCppFields = [...]string{"chat_template_kwargs", "cache_prompt", "top_k", "min_p"}

// CheckLlamaCppRequest tells what llama-server would refuse or pass over in a
// request body, besides what [CheckOpenAIRequest] says; nil = nothing.
func CheckLlamaCppRequest(body []byte) error {
	if err := duplicateKeys(body); err != nil {
		return err
	}
	var doc map[string]json.RawMessage
	if err := json.Unmarshal(body, &doc); err != nil {
		return err
	}
	if choice := doc["tool_choice"]; len(choice) > 0 && choice[0] == '{' {
		return errors.New("tool_choice: llama-server takes no named tool, and would choose by itself")
	}
	if doc["tools"] != nil && (doc["response_format"] != nil || doc["grammar"] != nil || doc["json_schema"] != nil) {
		return errors.New("response_format: one grammar cannot hold both calls and the answer")
	}
	if doc["parallel_tool_calls"] != nil && doc["tools"] == nil {
		return errors.New("parallel_tool_calls: only with tools")
	}
	if err := grammarSafe(doc["tools"]); err != nil {
		return err
	}
	for _, name := range llamaCppFields {
		delete(doc, name)
	}
	return CheckOpenAIRequest(encode(doc))
}

// grammarSafe finds the words of schemas that llama-server turns into no grammar,
// or into one that it refuses: any of them fails the whole request.
func grammarSafe(tools json.RawMessage) error {
	var found error
	var visit func(v any)
	visit = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				visit(e)
			}
		case map[string]any:
			if n, ok := v["maxLength"].(float64); ok && n > 2000 {
				found = errors.New("maxLength: more repetitions than a grammar may have")
			}
			if p, ok := v["pattern"].(string); ok && (p == "" || p[0] != '^' || p[len(p)-1] != '$') {
				found = errors.New("pattern: must begin with ^ and end with $")
			}
			for _, e := range v {
				visit(e)
			}
		}
	}
	var doc any
	if len(tools) > 0 && json.Unmarshal(tools, &doc) == nil {
		visit(doc)
	}
	return found
}
