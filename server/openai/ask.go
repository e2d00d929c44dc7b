// Package openai is how programs that speak OpenAI's APIs are understood: it reads the requests of
// Chat Completions and Responses, and tells the events of a run in the words of those APIs. It
// works on values alone; the server has the routes.
package openai

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
)

// Ask is what a request of either API asks for.
type Ask struct {
	Model    string
	System   string // of the request's own, in their order
	Messages []toolcrib.Message
	Files    map[int][]toolcrib.OutputFile // of the messages, by their index
	Tools    []toolcrib.Spec
	Spaces   map[string]string // the namespaces of tools that are in one
	Choice   *toolcrib.ToolChoice
	item     Lookup          // of items that are referred to
	Schema   json.RawMessage // of the answer; nil = any text

	Temperature     *float64
	MaxOutputTokens int      // 0 = it bounds nothing
	OneCall         bool     // no calls side by side
	Effort          string   // how much the model thinks, as models.X.reasoning says it; "" = it is not told
	Stop            []string // an answer ends before the first of them

	Stream   bool
	Usage    bool // a stream ends with what was used
	Metadata json.RawMessage

	// Results are those of the last turn's calls if no reply of the model follows them, and Said
	// is what the user has said after them.
	Results   []toolcrib.ToolResult
	Said      []string
	SaidFiles bool // there are files with it
}

// Digest is of what the request asks for besides its conversation: instructions, tools and the form of the answer.
func (a *Ask) Digest() string {
	about := struct {
		System string
		Schema json.RawMessage
		Tools  []tool
	}{System: a.System, Schema: canonical(a.Schema)}
	for _, t := range a.Tools {
		about.Tools = append(about.Tools, tool{t.Name, t.Description, canonical(t.Parameters)})
	}
	slices.SortFunc(about.Tools, func(a, b tool) int { return strings.Compare(a.Name, b.Name) })
	sum := sha256.Sum256([]byte(compact(about)))
	return hex.EncodeToString(sum[:])
}

// canonical is a JSON value however it is spelled; one that cannot be read stays as it is.
func canonical(raw json.RawMessage) json.RawMessage {
	if out, err := guard.Canonical(raw); err == nil {
		return out
	}
	return raw
}

// Answers returns the run whose calls the request has results of; "" = of none.
func (a *Ask) Answers() toolcrib.RunID {
	if len(a.Results) == 0 {
		return ""
	}
	run, _, _ := ReadCallID(a.Results[0].CallID)
	return run
}

// Error is an error in the words of these APIs.
type Error struct {
	Param string // what of the request it is about; "" = all of it
	Code  string // "" = that of Err
	Lasts bool   // the same request would fail again, whatever its status
	Err   *toolcrib.Error
}

func (e *Error) Error() string {
	if e.Param == "" {
		return e.Err.Message
	}
	return e.Param + ": " + e.Err.Message
}

func (e *Error) Unwrap() error { return e.Err }

// bad says what is wrong with a part of a request.
func bad(param, format string, args ...any) error {
	return &Error{Param: param, Err: toolcrib.Errorf(toolcrib.CodeBadRequest, format, args...)}
}

// Field is a field of a request: what becomes of it, and how it is read.
type Field struct {
	Name, About string
	read        reader
}

// read reads the fields of a request, in the order of the table. One that is null is absent.
func read(fields []Field, body map[string]json.RawMessage, item Lookup) (*Ask, error) {
	a := &Ask{item: item}
	for _, f := range fields {
		raw := body[f.Name]
		if isNull(raw) {
			continue
		}
		if err := f.read(a, f.Name, raw); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// into reads a value of one type.
func into[T any](param string, raw json.RawMessage, to *T) error {
	return unfit(param, json.Unmarshal(raw, to))
}

// unfit says of an error of encoding/json which part of the request it is about.
func unfit(param string, err error) error {
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong) && wrong.Field != "":
		return bad(param+"."+wrong.Field, "must not be of type %s", wrong.Value)
	case errors.As(err, &wrong):
		return bad(param, "must not be of type %s", wrong.Value)
	case err != nil:
		return bad(param, "is not valid JSON of this field")
	}
	return nil
}

// each reads the values of a list, one after another.
func each[T any](param string, raw json.RawMessage, do func(param string, one *T) error) error {
	if len(raw) == 0 || raw[0] != '[' { // null, or an error
		return into(param, raw, new([]T))
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	_, err := dec.Token()
	for i := 0; err == nil && dec.More(); i++ {
		at, one := param+"["+strconv.Itoa(i)+"]", new(T)
		if err := unfit(at, dec.Decode(one)); err != nil {
			return err
		}
		if err := do(at, one); err != nil {
			return err
		}
	}
	return nil
}

// The ways to read a field.
type reader = func(*Ask, string, json.RawMessage) error

// to reads a field into a part of the request.
func to[T any](part func(*Ask) *T) reader {
	return func(a *Ask, param string, raw json.RawMessage) error { return into(param, raw, part(a)) }
}

// ignored takes a value of one type, which changes nothing about the answer.
func ignored[T any](_ *Ask, param string, raw json.RawMessage) error {
	var v T
	return into(param, raw, &v)
}

// only takes the values that ask for what happens anyway.
func only(values ...string) reader {
	return func(_ *Ask, param string, raw json.RawMessage) error {
		for _, v := range values {
			if string(raw) == v {
				return nil
			}
		}
		if len(values) == 0 {
			return bad(param, "is not supported")
		}
		return bad(param, "must be %s; other values are not supported", values[0])
	}
}

// number takes one number, however it is written.
func number(is float64) reader {
	return func(_ *Ask, param string, raw json.RawMessage) error {
		var v float64
		if err := into(param, raw, &v); err != nil {
			return err
		}
		if v != is {
			return bad(param, "must be %v; other values are not supported", is)
		}
		return nil
	}
}

func temperature(a *Ask, param string, raw json.RawMessage) error {
	const most = 2
	if err := into(param, raw, &a.Temperature); err != nil {
		return err
	}
	if *a.Temperature < 0 || *a.Temperature > most {
		return bad(param, "must be 0 to %d", most)
	}
	return nil
}

// efforts are the words for how much a model thinks, and what a model is told here.
var efforts = map[string]string{
	"none": "off", "minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high",
}

func effort(a *Ask, param string, raw json.RawMessage) error {
	var word string
	if err := into(param, raw, &word); err != nil {
		return err
	}
	if a.Effort = efforts[word]; a.Effort == "" {
		return bad(param, "must be none, minimal, low, medium, high, xhigh or max")
	}
	return nil
}

// The most texts at which an answer ends, and how long each may be.
const (
	maxStops = 16
	maxStop  = 256
)

// stops takes one text, or a list of them.
func stops(a *Ask, param string, raw json.RawMessage) error {
	if raw[0] == '"' {
		raw = json.RawMessage("[" + string(raw) + "]")
	}
	if err := into(param, raw, &a.Stop); err != nil {
		return err
	}
	tooLong := func(text string) bool { return text == "" || len(text) > maxStop }
	if len(a.Stop) > maxStops || slices.ContainsFunc(a.Stop, tooLong) {
		return bad(param, "must be at most %d texts of 1 to %d bytes", maxStops, maxStop)
	}
	return nil
}

func maxTokens(a *Ask, param string, raw json.RawMessage) error {
	var n int
	if err := into(param, raw, &n); err != nil {
		return err
	}
	if n < 1 {
		return bad(param, "must be 1 or more")
	}
	if a.MaxOutputTokens == 0 || n < a.MaxOutputTokens {
		a.MaxOutputTokens = n
	}
	return nil
}

func parallel(a *Ask, param string, raw json.RawMessage) error {
	var many bool
	err := into(param, raw, &many)
	a.OneCall = !many
	return err
}

// answerSchema is the schema of a json_object or a json_schema.
func (a *Ask) answerSchema(param, kind string, schema json.RawMessage) error {
	switch kind {
	case "text":
		return nil
	case "json_object":
		a.Schema = json.RawMessage(`{"type":"object"}`)
		return nil
	case "json_schema":
		if len(schema) == 0 || schema[0] != '{' {
			return bad(param, "the schema is missing")
		}
		a.Schema = schema
		return nil
	}
	return bad(param, "the type must be text, json_object or json_schema, not %s", strconv.Quote(kind))
}

// tool is a function that the client carries out.
type tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
}

const maxTools = 128

func (a *Ask) tool(param string, t *tool) error {
	switch {
	case !toolcrib.ValidToolName(t.Name):
		return bad(param+".name", "must be 1 to 64 letters, digits, _ and -")
	case len(a.Tools) == maxTools:
		return bad(param, "must have at most %d tools", maxTools)
	}
	for i := range a.Tools {
		if a.Tools[i].Name == t.Name {
			return bad(param+".name", "duplicate tool name %s", t.Name)
		}
	}
	spec := toolcrib.Spec{Name: t.Name, Description: t.Description}
	if !isNull(t.Parameters) {
		if t.Parameters[0] != '{' {
			return bad(param+".parameters", "must be a JSON Schema of an object")
		}
		spec.Parameters = t.Parameters
	}
	a.Tools = append(a.Tools, spec)
	return nil
}

// choice is a tool_choice: a word, or an object that names a function.
func (a *Ask) choice(param string, raw json.RawMessage, named func() (kind, name string, err error)) error {
	var word string
	if raw[0] == '"' {
		if err := into(param, raw, &word); err != nil {
			return err
		}
		switch word {
		case toolcrib.ChoiceAuto, toolcrib.ChoiceNone, toolcrib.ChoiceRequired:
			a.Choice = &toolcrib.ToolChoice{Mode: word}
			return nil
		}
		return bad(param, "must be auto, none, required or a function")
	}
	kind, name, err := named()
	if err != nil {
		return err
	}
	if kind != "function" || name == "" {
		return bad(param, "must be auto, none, required or a function")
	}
	a.Choice = &toolcrib.ToolChoice{Mode: toolcrib.ChoiceName, Name: name}
	return nil
}

// callID is the ID under which a client knows a call of a run: the number counts the calls of the
// run from 1.
var callID = lazyregexp.New(`^call_(run_[0-9A-Za-z]{26})_([1-9][0-9]{0,5})$`)

// CallID is what a client knows the n-th call of a run by.
func CallID(run toolcrib.RunID, n int) string { return "call_" + string(run) + "_" + strconv.Itoa(n) }

// itemID is the ID of an item of an answer: its run, the event after which it begins, "j" if it is JSON of a
// schema, and its place in the answer.
var itemID = lazyregexp.New(`^(?:msg|fc)_([0-9A-Za-z]{26})_([0-9]{1,9})(j?)_[1-9][0-9]{0,5}$`)

// ReadItemID returns the answer that has the item: its run, the event after which it begins, and whether it is JSON of
// a schema. ok is false if the ID was made by somebody else.
func ReadItemID(id string) (run toolcrib.RunID, after toolcrib.Seq, schema, ok bool) {
	found := itemID.FindStringSubmatch(id)
	if found == nil {
		return "", 0, false, false
	}
	n, err := strconv.ParseInt(found[2], 10, 64)
	return toolcrib.RunID("run_" + found[1]), toolcrib.Seq(n), found[3] != "", err == nil
}

// ReadCallID is the call that [CallID] names; ok is false if the ID was made by somebody else.
func ReadCallID(id string) (run toolcrib.RunID, n int, ok bool) {
	found := callID.FindStringSubmatch(id)
	if found == nil {
		return "", 0, false
	}
	n, err := strconv.Atoi(found[2])
	return toolcrib.RunID(found[1]), n, err == nil
}
