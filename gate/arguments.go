package gate

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
)

// Bounds of a report about invalid arguments.
const (
	maxSchemaErrors = 8
	maxShownValue   = 60  // bytes of a value
	maxShownText    = 200 // bytes of an expectation or pointer
)

// schemaError is one fault of the arguments: the schema_error of a refusal.
type schemaError struct {
	Path     string `json:"path"` // JSON Pointer (RFC 6901); "" means the arguments as a whole
	Expected string `json:"expected"`
	Got      string `json:"got"`
	// More has further faults, at most seven. It is set only in the first.
	More []schemaError `json:"more,omitempty"`
}

func (e schemaError) String() string {
	path := e.Path
	if path == "" {
		path = "/"
	}
	return fmt.Sprintf("%s: expected %s, got %s", path, e.Expected, e.Got)
}

// checkArguments validates the value of canonical arguments against the schema (H4). It
// returns nil if they are valid.
func (s *schema) checkArguments(value any) *refusal {
	err := s.validate(value)
	if err == nil {
		return nil
	}
	var failed *jsonschema.ValidationError
	if !errors.As(err, &failed) {
		return refuse("invalid_arguments: the arguments could not be checked; send simpler ones").because("", err.Error())
	}
	found := faults{root: value}
	found.add(failed)
	return invalid(found.list...)
}

// invalid returns the refusal of invalid arguments. Its message has the path, the expectation and
// the actual value.
func invalid(list ...schemaError) *refusal {
	if len(list) == 0 {
		list = []schemaError{{Expected: "arguments as the schema says", Got: "others"}}
	}
	texts := make([]string, len(list))
	for i, e := range list {
		texts[i] = e.String()
	}
	r := refuse("invalid_arguments: %s", strings.Join(texts, "; "))
	first := list[0]
	first.More = list[1:]
	r.schemaError = encode(first)
	return r
}

// faults collects the faults of a validation, bounded.
type faults struct {
	root any
	list []schemaError
}

// put records the expectation at a place and the value there, unless the list is full or has it
// already.
func (f *faults) put(at []string, expected string) {
	e := schemaError{
		Path: pointer(at), Expected: guard.Cut(expected, maxShownText),
		Got: guard.Cut(describe(f.root, at), maxShownText),
	}
	known := slices.ContainsFunc(f.list, func(o schemaError) bool { return o.Path == e.Path && o.Expected == e.Expected })
	if len(f.list) < maxSchemaErrors && !known {
		f.list = append(f.list, e)
	}
}

// members calls put for members of an object, sorted by name.
func (f *faults) members(of, names []string, expected string) {
	for _, name := range slices.Sorted(slices.Values(names)) {
		f.put(append(slices.Clone(of), name), expected)
	}
}

// add records an error of the library and its causes.
func (f *faults) add(e *jsonschema.ValidationError) {
	if len(f.list) >= maxSchemaErrors {
		return
	}
	at := e.InstanceLocation
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		f.members(at, k.Missing, "a value (required)")
	case *kind.DependentRequired:
		f.members(at, k.Missing, "a value (required)")
	case *kind.Dependency:
		f.members(at, k.Missing, "a value (required)")
	case *kind.AdditionalProperties:
		f.members(at, k.Properties, "no such property")
	case *kind.PropertyNames, *kind.Contains, *kind.MinContains: // their causes are about single names or items
		f.put(at, expectation(k))
	case *kind.AnyOf, *kind.OneOf:
		f.alternatives(e)
	default:
		if len(e.Causes) == 0 {
			f.put(at, expectation(k))
		}
		for _, c := range slices.SortedStableFunc(slices.Values(e.Causes), byLocation) {
			f.add(c)
		}
	}
}

// byLocation orders faults by location, so that reports are deterministic.
func byLocation(a, b *jsonschema.ValidationError) int {
	return slices.Compare(a.InstanceLocation, b.InstanceLocation)
}

// alternatives records the types that anyOf or oneOf accepts if only the types differ, otherwise
// the faults of each alternative.
func (f *faults) alternatives(e *jsonschema.ValidationError) {
	var types []string
	for _, c := range e.Causes {
		t, ok := c.ErrorKind.(*kind.Type)
		if !ok || !slices.Equal(c.InstanceLocation, e.InstanceLocation) {
			types = nil
			break
		}
		types = append(types, t.Want...)
	}
	switch {
	case len(e.Causes) == 0:
		f.put(e.InstanceLocation, "exactly one of several shapes, not more")
	case len(types) > 0:
		f.put(e.InstanceLocation, strings.Join(types, " or "))
	default:
		for _, c := range e.Causes {
			f.add(c)
		}
	}
}

// expectation describes the constraint of a keyword.
func expectation(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return strings.Join(k.Want, " or ")
	case *kind.Enum:
		return "one of " + values(k.Want)
	case *kind.Const:
		return values([]any{k.Want})
	case *kind.Format:
		return "a text in the format " + k.Want
	case *kind.Pattern:
		return "a text that matches " + k.Want
	case *kind.MinLength:
		return "at least " + guard.Count(k.Want, "character")
	case *kind.MaxLength:
		return "at most " + guard.Count(k.Want, "character")
	case *kind.MinItems:
		return "at least " + guard.Count(k.Want, "item")
	case *kind.MaxItems:
		return "at most " + guard.Count(k.Want, "item")
	case *kind.MinProperties:
		return "at least " + guard.Count(k.Want, "property")
	case *kind.MaxProperties:
		return "at most " + guard.Count(k.Want, "property")
	case *kind.UniqueItems:
		return "items that all differ"
	case *kind.PropertyNames:
		return "another name than " + strconv.Quote(guard.Cut(k.Property, maxShownValue))
	case *kind.Contains, *kind.MinContains:
		return "more items of the kind that must be in it"
	case *kind.FalseSchema, *kind.AdditionalItems:
		return "nothing here"
	case *kind.Not:
		return "another value"
	case *kind.Minimum:
		return "a number of at least " + k.Want.RatString()
	case *kind.Maximum:
		return "a number of at most " + k.Want.RatString()
	case *kind.ExclusiveMinimum:
		return "a number above " + k.Want.RatString()
	case *kind.ExclusiveMaximum:
		return "a number below " + k.Want.RatString()
	case *kind.MultipleOf:
		return "a multiple of " + k.Want.RatString()
	}
	return "a value that satisfies " + strings.Join(k.KeywordPath(), "/")
}

func values(want []any) string {
	texts := make([]string, 0, len(want))
	for _, w := range want {
		texts = append(texts, guard.Cut(string(encode(w)), maxShownValue))
	}
	return strings.Join(texts, ", ")
}

// describe names the type of the value at a place, and adds the value if it is short.
func describe(root any, at []string) string {
	for _, token := range at {
		var ok bool
		switch in := root.(type) {
		case map[string]any:
			root, ok = in[token]
		case []any:
			i, err := strconv.Atoi(token)
			if ok = err == nil && i >= 0 && i < len(in); ok {
				root = in[i]
			}
		}
		if !ok {
			return "nothing"
		}
	}
	switch v := root.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean " + strconv.FormatBool(v)
	case json.Number:
		return "number " + guard.Cut(v.String(), maxShownValue)
	case string:
		return "string " + guard.Cut(string(encode(v)), maxShownValue)
	case []any:
		return fmt.Sprintf("array of %d", len(v))
	case map[string]any:
		if len(v) > 0 && len(v) <= 4 {
			return "object with " + strings.Join(slices.Sorted(maps.Keys(v)), ", ")
		}
		return "object with " + guard.Count(len(v), "property")
	}
	return "something else"
}

// pointer formats tokens as a JSON Pointer (RFC 6901).
func pointer(tokens []string) string {
	var b strings.Builder
	for _, t := range tokens {
		b.WriteByte('/')
		b.WriteString(strings.NewReplacer("~", "~0", "/", "~1").Replace(t))
	}
	return guard.Cut(b.String(), maxShownText)
}

// A tool that a person answers ([toolcrib.ByPerson]) asks a question. The question is in the
// arguments, with an optional schema of the answer.

// questionStep refuses a schema that no answer could be checked against.
func (j *judgement) questionStep(arguments json.RawMessage) *refusal {
	if j.entry.spec.AnsweredBy != toolcrib.ByPerson {
		return nil
	}
	_, schema := Question(arguments)
	if len(schema) == 0 {
		return nil
	}
	if _, err := answerSchema(schema); err != nil {
		return broken("/schema: " + err.Error())
	}
	return nil
}

// Question returns the question of a call of such a tool and the JSON Schema of the answer. If
// schema is nil, any text is an answer.
func Question(arguments json.RawMessage) (question string, schema json.RawMessage) {
	var args struct {
		Question string          `json:"question"`
		Schema   json.RawMessage `json:"schema"`
	}
	if err := json.Unmarshal(arguments, &args); err != nil {
		return "", nil
	}
	if string(args.Schema) == "null" {
		args.Schema = nil
	}
	return args.Question, args.Schema
}

// CheckAnswer returns an error if answer is not valid against the schema of the question. Without a
// schema every answer is valid.
func CheckAnswer(raw, answer json.RawMessage) error {
	if len(raw) == 0 {
		return nil
	}
	compiled, err := answerSchema(raw)
	if err != nil {
		return err
	}
	_, value, err := guard.ReadArguments(fmt.Appendf(nil, `{"answer":%s}`, answer))
	if err != nil {
		return errors.New(broken(err.Error()).message)
	}
	if r := compiled.checkArguments(value); r != nil {
		return errors.New(r.message)
	}
	return nil
}

// CompileSchema returns a function that returns an error if a value of [guard.JSONLimits.Value] is not valid against a
// JSON Schema.
func CompileSchema(raw json.RawMessage) (check func(value any) error, err error) {
	compiled, err := answerSchema(raw)
	if err != nil {
		return nil, err
	}
	return func(value any) error {
		if r := compiled.checkArguments(map[string]any{"answer": value}); r != nil {
			return errors.New(r.message)
		}
		return nil
	}, nil
}

// CheckSchema returns an error if raw cannot be used as the JSON Schema of an answer.
func CheckSchema(raw json.RawMessage) error {
	_, err := answerSchema(raw)
	return err
}
