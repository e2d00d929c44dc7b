package openai

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// Bounds of the strict subset (OpenAI guide "Structured Outputs", supported
// schemas).
const (
	maxStrictDepth      = 10
	maxStrictProperties = 5000
	maxStrictEnum       = 1000
)

// strictWords are the keywords of the strict subset.
var strictWords = []string{
	"$defs", "$ref", "additionalProperties", "anyOf", "const", "default", "definitions", "description", "enum", "format",
	"items", "maxItems", "maximum", "minItems", "minimum", "exclusiveMaximum", "exclusiveMinimum", "multipleOf", "pattern",
	"properties", "required", "title", "type",
}

var strictFormats = []string{"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}

// strictness counts the properties and enum values of a schema during its check.
type strictness struct{ properties, enum int }

// fitsStrict reports whether a schema is in the subset that the API can enforce.
// Any other schema is sent unchanged, without strict, and only guides the
// model. The answer is checked elsewhere in both cases.
func fitsStrict(raw json.RawMessage) bool {
	var root map[string]any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if dec.Decode(&root) != nil || root["type"] != "object" || root["anyOf"] != nil {
		return false
	}
	var s strictness
	return s.fits(root, 0)
}

func (s *strictness) fits(schema map[string]any, depth int) bool {
	if depth > maxStrictDepth {
		return false
	}
	for word := range schema {
		if !slices.Contains(strictWords, word) {
			return false
		}
	}
	if format, ok := schema["format"].(string); ok && !slices.Contains(strictFormats, format) {
		return false
	}
	if values, ok := schema["enum"].([]any); ok {
		if s.enum += len(values); s.enum > maxStrictEnum {
			return false
		}
	}
	if _, isList := schema["items"].([]any); isList || !s.object(schema) {
		return false
	}
	ok := true
	wire.Subschemas(schema, func(word string, inner any) any {
		one, isSchema := inner.(map[string]any)
		ok = ok && (word == "additionalProperties" || isSchema && s.fits(one, depth+1))
		return inner
	})
	return ok
}

// object checks that an object lists every property as required and permits no
// other.
func (s *strictness) object(schema map[string]any) bool {
	properties, has := schema["properties"].(map[string]any)
	if !has && !wire.HasType(schema, "object") {
		return true
	}
	if schema["additionalProperties"] != false {
		return false
	}
	if s.properties += len(properties); s.properties > maxStrictProperties {
		return false
	}
	required, _ := schema["required"].([]any)
	for name := range properties {
		if !slices.Contains(required, any(name)) {
			return false
		}
	}
	return len(required) == len(properties)
}

// objectRoot reports whether a schema is one of an object, as the API requires.
func objectRoot(raw json.RawMessage) bool {
	var root struct {
		Type any `json:"type"`
	}
	return json.Unmarshal(raw, &root) == nil && root.Type == "object"
}

// answerPlan is how a request asks for an answer that matches the schema.
type answerPlan struct {
	format string // json_schema, json_object, or "" for the system text only
	words  bool   // the schema is in the system text
	strict bool
	schema json.RawMessage
}

// answerOf returns the plan for a schema. It must not depend on whether tools are offered,
// because the system text must be the same throughout a run.
func (r rules) answerOf(schema json.RawMessage) answerPlan {
	var compact bytes.Buffer
	if len(schema) == 0 || json.Compact(&compact, schema) != nil || compact.String() == "null" {
		return answerPlan{}
	}
	p := answerPlan{format: "json_schema", schema: compact.Bytes(), strict: fitsStrict(schema)}
	switch {
	case r.answers == answerObject:
		p.format, p.words = "json_object", true
	case r.answers == answerApart:
		p.words = true
	case r.vendor && !objectRoot(schema):
		p.format, p.words = "", true
	}
	return p
}

// formatFor returns the format for a request, or "" for none.
func (r rules) formatFor(p answerPlan, tools bool) string {
	if r.answers == answerApart && tools {
		return ""
	}
	return p.format
}

// detail is one element of reasoning_details (OpenRouter, "Preserving reasoning"):
// a text with its signature, a summary, or encrypted data. The server expects the
// list back as it sent it, with the pieces of an element joined.
type detail struct {
	Kind      string                 `json:"type"`
	ID        string                 `json:"id"`
	Format    string                 `json:"format"`
	Text      wire.Text              `json:"text"`
	Summary   wire.Text              `json:"summary"`
	Data      string                 `json:"data"`
	Signature string                 `json:"signature"`
	Index     wire.Optional[float64] `json:"index"`
}

// details collects the elements over the frames of a reply.
type details struct{ list []detail }

// addAll adds the elements of one frame and returns their readable text.
func (d *details) addAll(list []detail) (text wire.Text) {
	for i := range list {
		if one := &list[i]; one.Kind != "" {
			text += one.Text + one.Summary
			d.add(one)
		}
	}
	return text
}

// add appends a piece to the element that it continues, or as a new element.
func (d *details) add(one *detail) {
	if n := len(d.list); n > 0 {
		last := &d.list[n-1]
		same := last.Kind == one.Kind && last.Index.Value == one.Index.Value &&
			(one.ID == "" || last.ID == "" || last.ID == one.ID)
		if same && one.Kind != "reasoning.encrypted" && last.Signature == "" {
			last.Text += one.Text
			last.Summary += one.Summary
			last.Signature = one.Signature
			last.ID, last.Format = cmp.Or(last.ID, one.ID), cmp.Or(last.Format, one.Format)
			return
		}
	}
	d.list = append(d.list, *one)
}

// take returns the list as JSON and clears it; "" if it is empty.
func (d *details) take() string {
	if len(d.list) == 0 {
		return ""
	}
	b := []byte{'['}
	for i := range d.list {
		if i > 0 {
			b = append(b, ',')
		}
		b = d.list[i].appendTo(b)
	}
	d.list = nil
	return string(append(b, ']'))
}

func (d *detail) appendTo(b []byte) []byte {
	b = append(b, `{"type":`...)
	b = wire.AppendString(b, d.Kind)
	member := func(name, value string, always bool) {
		if value != "" || always {
			b = append(append(append(b, `,"`...), name...), `":`...)
			b = wire.AppendString(b, value)
		}
	}
	member("text", string(d.Text), d.Kind == "reasoning.text")
	member("summary", string(d.Summary), d.Kind == "reasoning.summary")
	member("data", d.Data, d.Kind == "reasoning.encrypted")
	member("signature", d.Signature, false)
	member("id", d.ID, false)
	member("format", d.Format, false)
	if d.Index.Present {
		b = strconv.AppendInt(append(b, `,"index":`...), wire.Int(d.Index.Value), 10)
	}
	return append(b, '}')
}

// failedCall is the error of a server that validates calls itself (Groq,
// tool_use_failed): the server could not parse a call of the model, or its arguments were
// invalid.
type failedCall struct {
	Error struct {
		Code   string          `json:"code"`
		Failed json.RawMessage `json:"failed_generation"`
	} `json:"error"`
}

// repairing turns the error of a call that the server rejected into that call, if its name
// and arguments can be recovered. The gate judges it as any other call, and the
// model reads the problem and can fix it, whereas an error would end the run.
func (c *conversation) repairing(yield func(toolcrib.Delta, error) bool) func(toolcrib.Delta, error) bool {
	return func(delta toolcrib.Delta, err error) bool {
		if err == nil {
			return yield(delta, nil)
		}
		call, ok := callOf(err)
		if !ok {
			return yield(delta, withHint(err))
		}
		call.Index = len(c.decoder.calls)
		if !yield(toolcrib.Delta{ToolCall: &call}, nil) {
			return false
		}
		f := c.decoder.finish
		f.Reason = toolcrib.FinishToolCalls
		f.Notices = append(c.history.Notices, wire.Notice(toolcrib.NoticeToolCallRepaired,
			"the server refused a call of %s; it is judged here instead", call.Name))
		return yield(toolcrib.Delta{Finish: &f}, nil)
	}
}

// withHint adds advice to an error of a model that only the other API serves, or that requires
// or rejects the reasoning of earlier turns.
func withHint(err error) error {
	var e *toolcrib.ModelError
	if !errors.As(err, &e) || e.Class != toolcrib.ErrBadRequest {
		return err
	}
	hinted := *e
	switch {
	case strings.Contains(e.Message, "v1/responses"):
		hinted.Message += " (set api: " + APIResponses + " for this provider)"
	case strings.Contains(e.Message, "reasoning_content"):
		hinted.Message += " (set reasoning: " + wire.ReasoningReplay + " for this provider, or " + wire.ReasoningDrop +
			" if it refuses the field)"
	default:
		return err
	}
	return &hinted
}

func callOf(err error) (call toolcrib.ToolCallDelta, ok bool) {
	var e *toolcrib.ModelError
	var doc failedCall
	if !errors.As(err, &e) || e.Class != toolcrib.ErrBadRequest && e.Class != toolcrib.ErrOther {
		return call, false
	}
	if !strings.Contains(e.Detail, "failed_generation") || json.Unmarshal([]byte(e.Detail), &doc) != nil ||
		doc.Error.Code != "tool_use_failed" {
		return call, false
	}
	text := string(doc.Error.Failed)
	var inner string
	if json.Unmarshal(doc.Error.Failed, &inner) == nil {
		text = strings.TrimSpace(inner)
	}
	call.Name, call.Arguments, ok = readFailed(text)
	return call, ok && len(call.Name) <= 2*maxName
}

// readFailed parses {"name": …, "arguments": …}, a list of one such object, and
// <function=NAME>{…}</function>.
func readFailed(text string) (name, arguments string, ok bool) {
	if rest, tagged := strings.CutPrefix(text, "<function="); tagged {
		at := strings.IndexAny(rest, ">{")
		if at <= 0 {
			return "", "", false
		}
		name = strings.TrimSpace(rest[:at])
		arguments, _, _ = strings.Cut(strings.TrimPrefix(rest[at:], ">"), "</function>")
		return name, strings.TrimSpace(arguments), name != ""
	}
	type call struct {
		Name       string          `json:"name"`
		Arguments  json.RawMessage `json:"arguments"`
		Parameters json.RawMessage `json:"parameters"`
	}
	var one call
	if strings.HasPrefix(text, "[") {
		var list []call
		if json.Unmarshal([]byte(text), &list) != nil || len(list) != 1 {
			return "", "", false
		}
		one = list[0]
	} else if json.Unmarshal([]byte(text), &one) != nil {
		return "", "", false
	}
	if one.Arguments == nil {
		one.Arguments = one.Parameters
	}
	var quoted string
	if json.Unmarshal(one.Arguments, &quoted) == nil && quoted != "" {
		return one.Name, quoted, one.Name != ""
	}
	return one.Name, string(one.Arguments), one.Name != ""
}
