package wire

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"html"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Errors of servers, in the shapes that are in use.

// APIError is the error object of a reply, with the fields that are known. The APIs put
// them in slightly different places.
type APIError struct {
	Type    string
	Code    string
	Param   string
	Message string
}

// Names of the fields of errors, in lower case.
var (
	messageNames = [...]string{
		"message", "error_message", "errormessage", "error_msg", "errormsg", "errmsg", "msg", "error_description",
		"status_msg", "faultstring", "detail", "title", "reason",
	}
	codeNames = [...]string{"code", "error_code", "errorcode", "errcode", "status_code"}
	typeNames = [...]string{"type", "error_type", "status"}
	// innerNames are objects, or lists of them, with more details than the object around them.
	innerNames = [...]string{"error", "errors", "base_resp", "response", "fault", "data"}
)

// ParseAPIError reads {"error": {...}}, {"error": "text"}, {"message": "text"}, {"detail": …},
// {"code": …, "msg": …}, {"base_resp": {…}} and the like, with keys in any letter case, also in an
// array, in a text, or as the data of a server-sent event.
func ParseAPIError(body []byte) (APIError, bool) { return parseError(body, 0) }

const maxErrorDepth = 4

func parseError(body []byte, depth int) (e APIError, ok bool) {
	body = unframed(body)
	if len(body) > 0 && body[0] == '[' {
		var list []json.RawMessage
		if json.Unmarshal(body, &list) != nil || len(list) == 0 {
			return APIError{}, false
		}
		body = list[0]
	}
	doc := members(body)
	if doc == nil || depth == maxErrorDepth {
		return APIError{}, false
	}
	e = APIError{Type: word(doc, typeNames[:]), Code: word(doc, codeNames[:]), Param: text(doc["param"])}
	for _, name := range messageNames {
		if e.Message = said(doc[name]); e.Message != "" {
			break
		}
	}
	e.Message = upstream(e.Message, doc["metadata"])
	for _, name := range innerNames {
		if inner, ok := parseError(doc[name], depth+1); ok {
			e = APIError{
				Type: cmp.Or(inner.Type, e.Type), Code: cmp.Or(inner.Code, e.Code), Param: cmp.Or(inner.Param, e.Param),
				Message: cmp.Or(inner.Message, e.Message),
			}
			return e, true
		}
	}
	if short := text(doc["error"]); short != "" && filled(doc["error"]) && doc["error"][0] == '"' {
		if e.Message == "" {
			e.Message = short
		} else if short != e.Message {
			e.Message = short + ": " + e.Message
		}
		if !strings.Contains(short, " ") {
			e.Code = cmp.Or(e.Code, short)
		}
	}
	if inner, _ := parseError([]byte(e.Message), depth+1); inner.Message != "" {
		e.Message = inner.Message
	}
	return e, e.Message != "" || e.Type != ""
}

// Failure returns the error inside a part of a reply, or in place of it; nil if there is no error. Many
// servers send errors with a status of success.
func Failure(data []byte) error {
	doc := members(unframed(data))
	failed := string(doc["success"]) == "false" || text(doc["type"]) == "error" || text(doc["object"]) == "error"
	for _, object := range []map[string]json.RawMessage{doc, members(doc["base_resp"]), members(doc["response"])} {
		for _, name := range [...]string{"error", "errors", "error_message", "errormessage", "error_msg", "errmsg", "fault"} {
			failed = failed || filled(object[name])
		}
		code := strings.ToLower(word(object, codeNames[:]))
		good := slices.Contains([]string{"", "0", "200", "ok", "success"}, code)
		failed = failed || !good && (word(object, messageNames[:]) != "")
	}
	if !failed && !(len(doc) == 1 && (filled(doc["detail"]) || filled(doc["message"]))) {
		return nil
	}
	return EventError(data)
}

// filled reports whether a value is neither empty nor false.
func filled(raw json.RawMessage) bool {
	return !slices.Contains([]string{"", "null", "false", "0", `""`, "{}", "[]"}, string(raw))
}

// unframed returns a text, or the data of the first server-sent event in it.
func unframed(body []byte) []byte {
	body = opening(body)
	if isField(body) {
		if f, err := NewFrameReader(bytes.NewReader(body), 0, nil).Next(); err == nil && len(f.Data) > 0 {
			return bytes.TrimSpace(f.Data)
		}
	}
	return bytes.TrimSpace(body)
}

// members returns the members of a JSON object by their names in lower case; nil for any other value.
func members(body []byte) map[string]json.RawMessage {
	var doc map[string]json.RawMessage
	if len(body) == 0 || jsonv2.Unmarshal(body, &doc, replies) != nil {
		return nil
	}
	for name, value := range doc {
		if lower := strings.ToLower(name); doc[lower] == nil {
			doc[lower] = value
		}
	}
	return doc
}

// word returns the first of these members that is not empty.
func word(doc map[string]json.RawMessage, names []string) string {
	for _, name := range names {
		if s := text(doc[name]); s != "" {
			return s
		}
	}
	return ""
}

// text returns the content of a JSON string, or any other value as JSON text.
func text(raw json.RawMessage) string {
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return ""
	case raw[0] == '"':
		unquoted, _ := jsontext.AppendUnquote(nil, raw) // its only error is invalid UTF-8, which it replaces
		return string(unquoted)
	}
	return string(raw)
}

func plainBody(contentType string, body []byte) string {
	switch body = bytes.TrimSpace(body); {
	case len(body) == 0:
		return "empty answer"
	case isPage(contentType, body):
		page := "a web page"
		if title := titleOf(string(body)); title != "" {
			page += " (" + strconv.Quote(title) + ")"
		}
		return "answered with " + page + " instead of JSON: check base_url and proxies"
	}
	return string(unframed(body))
}

func titleOf(page string) string {
	_, rest, _ := strings.Cut(page, "<title>")
	title, _, ok := strings.Cut(rest, "</title>")
	if !ok || !utf8.ValidString(title) {
		return ""
	}
	return Clip(Line(html.UnescapeString(strings.TrimSpace(title))), 80)
}

// maxProblems bounds the problems of a list that are added to a message.
const maxProblems = 3

// said returns the text of a message: a string, or the list of problems of servers made
// with FastAPI, as {"detail": [{"loc": […], "msg": "…"}]} or as that list,
// sometimes again inside a string (Mistral, vLLM).
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

// path returns a location as text: body.messages.0.
func path(loc []any) string {
	var steps []string
	for _, step := range loc {
		steps = append(steps, fmt.Sprint(step))
	}
	return strings.Join(steps, ".")
}

// upstream returns a message with the error that a gateway forwards from the server behind it,
// as OpenRouter does: {"metadata": {"provider_name": "…", "raw": "…"}}. The gateway's own
// message is only "Provider returned error" then.
func upstream(message string, metadata json.RawMessage) string {
	var m struct {
		Provider string          `json:"provider_name"`
		Raw      json.RawMessage `json:"raw"`
	}
	if len(metadata) == 0 || json.Unmarshal(metadata, &m) != nil || len(m.Raw) == 0 {
		return message
	}
	inner := text(m.Raw)
	if e, _ := ParseAPIError([]byte(inner)); e.Message != "" {
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
