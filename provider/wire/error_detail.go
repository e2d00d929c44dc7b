package wire

import (
	"bytes"
	"encoding/json"
	"strings"
)

// maxProblems bounds the problems of a list that are in a message.
const maxProblems = 3

// said is the text of a message: a string, or the problems that servers made
// with FastAPI list, as {"detail": [{"loc": […], "msg": "…"}]} or as that list,
// sometimes once more inside a string (Mistral, vLLM).
func said(raw json.RawMessage) string {
	s := text(raw)
	inner := bytes.TrimSpace([]byte(s))
	var wrapped struct {
		Detail json.RawMessage `json:"detail"`
	}
	if len(inner) > 0 && inner[0] == '{' && json.Unmarshal(inner, &wrapped) == nil && len(wrapped.Detail) > 0 {
		inner = bytes.TrimSpace(wrapped.Detail)
		if inner[0] == '"' {
			return text(wrapped.Detail)
		}
	}
	var problems []struct {
		Loc []any  `json:"loc"`
		Msg string `json:"msg"`
	}
	if len(inner) == 0 || inner[0] != '[' || json.Unmarshal(inner, &problems) != nil {
		return s
	}
	var all []string
	for _, p := range problems {
		if p.Msg == "" || len(all) == maxProblems {
			continue
		}
		if where := path(p.Loc); where != "" {
			p.Msg = where + ": " + p.Msg
		}
		all = append(all, p.Msg)
	}
	if len(all) == 0 {
		return s
	}
	return strings.Join(all, "; ")
}

// path writes a location as body.messages.0.
func path(loc []any) string {
	var steps []string
	for _, step := range loc {
		if raw, err := json.Marshal(step); err == nil {
			steps = append(steps, strings.Trim(string(raw), `"`))
		}
	}
	return strings.Join(steps, ".")
}

// upstream is what a gateway adds to an error of the server behind it, as
// OpenRouter does: {"metadata": {"provider_name": "…", "raw": "…"}}. Its own
// message is no more than "Provider returned error" then.
func upstream(message string, metadata json.RawMessage) string {
	var m struct {
		Provider string          `json:"provider_name"`
		Raw      json.RawMessage `json:"raw"`
	}
	if len(metadata) == 0 || json.Unmarshal(metadata, &m) != nil || len(m.Raw) == 0 {
		return message
	}
	inner := text(m.Raw)
	if e, ok := ParseAPIError([]byte(inner)); ok && e.Message != "" {
		inner = e.Message
	}
	if inner = strings.TrimSpace(inner); inner == "" {
		return message
	}
	if m.Provider != "" {
		inner = m.Provider + ": " + inner
	}
	return strings.TrimPrefix(message+": ", ": ") + inner
}
