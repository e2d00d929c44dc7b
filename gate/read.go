package gate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
	"github.com/toolcrib/toolcrib/journal"
)

// Models sometimes send arguments that are not valid but can mean only one thing. They are
// converted before the call is judged, by this closed list, each value at most once:
//
//   - around the whole: a code fence, one closing brace too many, a JSON string of the object;
//
//   - a string that is a number, true or false where no string may be, and a number or boolean must;
//
//   - a JSON string of an object or array where no string may be, and an object or array must;
//
//   - null for a member that is not required and may not be null, which is left out.
//
// The result is read strictly again. If it is not valid, nothing is converted.

// Arguments are the arguments of one call, read once: strictly, and validated against the schema of
// the tool. A judgement uses them if they are those of the call and of the tool's present schema.
type Arguments struct {
	Canonical json.RawMessage // nil with Err
	Converted []string        // the conversions, for people
	Err       error           // a [*guard.ArgumentError] if they cannot be read

	schema  *schema // nil if they were not validated
	invalid *refusal
}

// Valid reports whether the arguments were validated and are valid.
func (a *Arguments) Valid() bool { return a.Err == nil && a.schema != nil && a.invalid == nil }

// of reports whether a has the arguments of a call of the tool, validated against its schema.
func (a *Arguments) of(e *entry, canonical json.RawMessage) bool {
	return a != nil && a.schema != nil && a.schema == e.schema && bytes.Equal(a.Canonical, canonical)
}

// Read reads the arguments that were sent for a tool of the run. With convert, arguments that are not
// valid are converted if that makes them valid.
func (g *Gate) Read(scope Scope, tool string, sent []byte, convert bool) *Arguments {
	return g.toolsOf(&scope).byName[tool].read(sent, convert)
}

// read reads arguments for a tool. If e is nil, there is no such tool.
func (e *entry) read(sent []byte, convert bool) *Arguments {
	a := &Arguments{}
	var value any
	a.Canonical, value, a.Err = guard.ReadArguments(sent)
	if e == nil || e.schema == nil {
		return a
	}
	if a.schema = e.schema; a.Err == nil {
		a.invalid = a.schema.checkArguments(value)
	}
	if !convert || a.Valid() {
		return a
	}
	_ = contain(func() error { // if it panics, nothing is converted
		if canonical, converted := a.schema.convert(sent, value, a.Err); canonical != nil {
			*a = Arguments{Canonical: canonical, Converted: converted, schema: a.schema}
		}
		return nil
	})
	return a
}

// convert converts arguments that are not valid, or that cannot be read because of err. It returns
// nil if the result would not be valid.
func (s *schema) convert(sent []byte, value any, err error) (json.RawMessage, []string) {
	var c conversion
	if err != nil {
		inner, what := onlyObject(bytes.TrimSpace(sent))
		if _, value, err = guard.ReadArguments(inner); what == "" || err != nil {
			return nil, nil
		}
		c.note("", what)
	}
	value = c.convert(value, s.compiled, "")
	if len(c.done) == 0 || c.steps > maxConvertWork {
		return nil, nil
	}
	raw, err := journal.EncodeJSON(value)
	if err != nil {
		return nil, nil
	}
	canonical, value, err := guard.ReadArguments(raw)
	if err != nil || s.checkArguments(value) != nil {
		return nil, nil
	}
	return canonical, c.done
}

var fence = lazyregexp.New("(?s)^```[a-zA-Z]*[ \t]*\r?\n(.*)\n[ \t]*```$")

// onlyObject removes one wrapping of an object. what describes it, or is "".
func onlyObject(text []byte) (inner []byte, what string) {
	var quoted string
	if m := fence.FindStringSubmatch(string(text)); m != nil {
		return []byte(m[1]), "a code fence was taken off"
	}
	if json.Unmarshal(text, &quoted) == nil && strings.HasPrefix(strings.TrimSpace(quoted), "{") {
		return []byte(quoted), "a JSON string was read as the object in it"
	}
	if rest, ok := bytes.CutSuffix(text, []byte("}")); ok && json.Valid(rest) {
		return rest, "one closing brace too many was taken off"
	}
	return nil, ""
}

// conversion collects the conversions of one call.
type conversion struct {
	done  []string
	steps int // number of schemas read
}

// tired counts one step, and reports whether the schema takes too much work. Its answers are then
// unknown.
func (c *conversion) tired() bool {
	c.steps++
	return c.steps > maxConvertWork
}

// maxConverted bounds the conversions of one call. Arguments that need more are not converted.
const maxConverted = 64

func (c *conversion) note(at, what string) {
	if at != "" {
		what = guard.Visible(guard.Cut(at, maxShownText)) + ": " + what
	}
	c.done = append(c.done, what)
}

// convert returns a value as its schema requires it. Objects and arrays are converted in place.
func (c *conversion) convert(value any, s *jsonschema.Schema, at string) any {
	if s == nil || len(c.done) >= maxConverted || c.steps > maxConvertWork {
		return value
	}
	switch v := value.(type) {
	case string:
		if other, what := fromText(v, c.typesOf(s, 0)); what != "" {
			c.note(at, "a string was read as the "+what+" in it")
			return c.inside(other, s, at)
		}
	default:
		return c.inside(value, s, at)
	}
	return value
}

// inside converts the values in an object or array.
func (c *conversion) inside(value any, s *jsonschema.Schema, at string) any {
	switch v := value.(type) {
	case map[string]any:
		required := c.namesOf(s, 0)
		for _, name := range sortedNames(v) {
			member, inner := c.propertyOf(s, name, 0), at+pointer([]string{name})
			types := c.typesOf(member, 0)
			if v[name] == nil && types != nil && !slices.Contains(types, "null") && !slices.Contains(required, name) {
				delete(v, name)
				c.note(inner, "null was left out")
				continue
			}
			v[name] = c.convert(v[name], member, inner)
		}
	case []any:
		for i := range v {
			v[i] = c.convert(v[i], c.itemOf(s, i, 0), fmt.Sprintf("%s/%d", at, i))
		}
	}
	return value
}

func sortedNames(v map[string]any) []string {
	names := make([]string, 0, len(v))
	for name := range v {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

var (
	integers = lazyregexp.New(`^-?(?:0|[1-9][0-9]{0,17})$`)
	numbers  = lazyregexp.New(`^-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,17})?$`)
)

// fromText reads a string where the schema accepts other types but not a string. what names the
// type that was read, and is "" if it is not one of types.
func fromText(text string, types []string) (value any, what string) {
	wants := func(name string) bool { return slices.Contains(types, name) }
	switch {
	case types == nil || wants("string"):
		return nil, ""
	case wants("integer") && integers.MatchString(text):
		return json.Number(text), "integer"
	case wants("number") && numbers.MatchString(text):
		return json.Number(text), "number"
	case wants("boolean") && (text == "true" || text == "false"):
		return text == "true", "boolean"
	case !wants("object") && !wants("array"):
		return nil, ""
	}
	var limits guard.JSONLimits
	value, err := limits.Value([]byte(text))
	if err != nil {
		return nil, ""
	}
	switch value.(type) {
	case map[string]any:
		what = "object"
	case []any:
		what = "array"
	}
	if !wants(what) {
		return nil, ""
	}
	return value, what
}

const (
	maxSchemaSteps = 8      // how far references and combinations are followed
	maxConvertWork = 20_000 // schemas that are read for one call; if there are more, nothing is converted
)

// branches returns the schemas that apply to the same value: all of them, or one of several.
func branches(s *jsonschema.Schema) []*jsonschema.Schema {
	all := slices.Concat(s.AllOf, s.AnyOf, s.OneOf)
	if s.Ref != nil {
		all = append(all, s.Ref)
	}
	return all
}

// typesOf returns the types that a value may have, or nil if they are not known.
func (c *conversion) typesOf(s *jsonschema.Schema, step int) (types []string) {
	switch {
	case s == nil || step == maxSchemaSteps || c.tired():
		return nil
	case s.Types != nil:
		return s.Types.ToStrings()
	case s.Enum != nil:
		for _, v := range s.Enum.Values {
			if _, text := v.(string); !text {
				return nil
			}
		}
		return []string{"string"}
	case s.Ref != nil:
		return c.typesOf(s.Ref, step+1)
	}
	for _, part := range s.AllOf {
		if types = c.typesOf(part, step+1); types != nil {
			return types
		}
	}
	for _, part := range slices.Concat(s.AnyOf, s.OneOf) {
		more := c.typesOf(part, step+1)
		if more == nil {
			return nil
		}
		types = append(types, more...)
	}
	return types
}

// namesOf returns the members that may be required of an object.
func (c *conversion) namesOf(s *jsonschema.Schema, step int) []string {
	names := slices.Clone(s.Required)
	for _, part := range branches(s) {
		if step < maxSchemaSteps && !c.tired() {
			names = append(names, c.namesOf(part, step+1)...)
		}
	}
	return names
}

// propertyOf returns the schema of a member, or nil if it has none or one of several.
func (c *conversion) propertyOf(s *jsonschema.Schema, name string, step int) (found *jsonschema.Schema) {
	if s == nil || step == maxSchemaSteps || c.tired() {
		return nil
	}
	if found = s.Properties[name]; found != nil {
		return found
	}
	for _, part := range branches(s) {
		if one := c.propertyOf(part, name, step+1); one != nil && found != nil {
			return nil
		} else if one != nil {
			found = one
		}
	}
	if other, ok := s.AdditionalProperties.(*jsonschema.Schema); found == nil && ok {
		return other
	}
	return found
}

// itemOf returns the schema of an item, or nil if it has none or one of several.
func (c *conversion) itemOf(s *jsonschema.Schema, i, step int) (found *jsonschema.Schema) {
	if s == nil || step == maxSchemaSteps || c.tired() {
		return nil
	}
	switch items := s.Items.(type) {
	case *jsonschema.Schema:
		return items
	case []*jsonschema.Schema:
		if i < len(items) {
			return items[i]
		}
	}
	switch {
	case i < len(s.PrefixItems):
		return s.PrefixItems[i]
	case s.Items2020 != nil:
		return s.Items2020
	}
	for _, part := range branches(s) {
		if one := c.itemOf(part, i, step+1); one != nil && found != nil {
			return nil
		} else if one != nil {
			found = one
		}
	}
	return found
}
