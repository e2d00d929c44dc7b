// Package openai translates OpenAI's APIs: it reads requests of Chat Completions and Responses, and writes the
// events of a run as their answers. It works on values alone. The server has the routes.
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

// Ask is a request of either API.
type Ask struct {
	Model    string
	System   string // system messages of the request, in order
	Messages []toolcrib.Message
	Files    map[int][]toolcrib.OutputFile // files of the messages, by index
	Tools    []toolcrib.Spec
	Spaces   map[string]string // namespaces of tools, by name
	Choice   *toolcrib.ToolChoice
	item     Lookup          // finds referenced items
	Schema   json.RawMessage // schema of the answer; if nil, any text

	Temperature     *float64
	MaxOutputTokens int      // 0 means no limit
	OneCall         bool     // no parallel calls
	Effort          string   // a value of models.X.reasoning, or ""
	Stop            []string // the answer ends before the first of these texts

	Stream   bool
	Usage    bool // whether a stream ends with the usage
	Metadata json.RawMessage

	// Results of the last turn's calls if no reply follows them, and messages of the user after them.
	Results   []toolcrib.ToolResult
	Said      []string
	SaidFiles bool // whether Said has files
}

// Digest returns a digest of the request without its conversation: instructions, tools and form of the answer.
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

// canonical returns the canonical form of a JSON value. An invalid one is unchanged.
func canonical(raw json.RawMessage) json.RawMessage {
	if out, err := guard.Canonical(raw); err == nil {
		return out
	}
	return raw
}

// Answers returns the run of the calls that the request has results of, or "".
func (a *Ask) Answers() toolcrib.RunID {
	if len(a.Results) == 0 {
		return ""
	}
	run, _, _ := ReadCallID(a.Results[0].CallID)
	return run
}

// Error is an error of these APIs.
type Error struct {
	Param string // field of the request; "" for all of it
	Code  string // if "", that of Err
	Lasts bool   // the same request would fail again, whatever the status
	Err   *toolcrib.Error
}

func (e *Error) Error() string {
	if e.Param == "" {
		return e.Err.Message
	}
	return e.Param + ": " + e.Err.Message
}

func (e *Error) Unwrap() error { return e.Err }

// bad returns an error about a part of a request.
func bad(param, format string, args ...any) error {
	return &Error{Param: param, Err: toolcrib.Errorf(toolcrib.CodeBadRequest, format, args...)}
}

// Field is a field of a request, with its documentation and its reader.
type Field struct {
	Name, About string
	read        reader
}

// read reads the fields of a request, in the order of the table. null means absent.
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

// into decodes a value.
func into[T any](param string, raw json.RawMessage, to *T) error {
	return unfit(param, json.Unmarshal(raw, to))
}

// unfit returns an error of encoding/json with the part of the request.
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

// each decodes the elements of a list, one after another, and calls do for each.
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

// reader reads a field.
type reader = func(*Ask, string, json.RawMessage) error

// to returns a reader into a part of the request.
func to[T any](part func(*Ask) *T) reader {
	return func(a *Ask, param string, raw json.RawMessage) error { return into(param, raw, part(a)) }
}

// ignored checks the type of a value that is not used.
func ignored[T any](_ *Ask, param string, raw json.RawMessage) error {
	var v T
	return into(param, raw, &v)
}

// only returns a reader that accepts only values that change nothing.
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

// number returns a reader that accepts one number, in any spelling.
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

// efforts maps the values of the APIs to those of models.X.reasoning.
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

// The bounds of stop: number of texts, and bytes of each.
const (
	maxStops = 16
	maxStop  = 256
)

// stops reads one text, or a list.
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

// answerSchema sets the schema for a response format.
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

// tool is a function that the client runs.
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

// choice reads a tool_choice: a word, or an object with the name of a function.
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

// callID matches the ID of a call for clients: its run, and its number among the calls of the run, from 1.
var callID = lazyregexp.New(`^call_(run_[0-9A-Za-z]{26})_([1-9][0-9]{0,5})$`)

// CallID returns the ID for clients of the n-th call of a run.
func CallID(run toolcrib.RunID, n int) string { return "call_" + string(run) + "_" + strconv.Itoa(n) }

// itemID matches the ID of an item: its run, the event after which its answer begins, "j" if that is JSON of a
// schema, and its position in the answer.
var itemID = lazyregexp.New(`^(?:msg|fc)_([0-9A-Za-z]{26})_([0-9]{1,9})(j?)_[1-9][0-9]{0,5}$`)

// ReadItemID returns the answer of an item: its run, the event after which it begins, and whether it is JSON of a
// schema. ok is false if the ID is not from this server.
func ReadItemID(id string) (run toolcrib.RunID, after toolcrib.Seq, schema, ok bool) {
	found := itemID.FindStringSubmatch(id)
	if found == nil {
		return "", 0, false, false
	}
	n, err := strconv.ParseInt(found[2], 10, 64)
	return toolcrib.RunID("run_" + found[1]), toolcrib.Seq(n), found[3] != "", err == nil
}

// ReadCallID is the inverse of [CallID]. ok is false if the ID is not from this server.
func ReadCallID(id string) (run toolcrib.RunID, n int, ok bool) {
	found := callID.FindStringSubmatch(id)
	if found == nil {
		return "", 0, false
	}
	n, err := strconv.Atoi(found[2])
	return toolcrib.RunID(found[1]), n, err == nil
}
