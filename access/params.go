package access

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib"
)

// coversParams tells whether every constrained parameter is there with allowed
// values.
func coversParams(constraints map[string][]any, args json.RawMessage) error {
	if len(constraints) == 0 {
		return nil
	}
	if !isObject(args) {
		return toolcrib.Errorf(toolcrib.CodeScopeInsufficient, "the token covers some arguments only, and these are no JSON object")
	}
	for name, allowed := range constraints {
		value, problem := member(args, name)
		switch {
		case problem != "":
			return toolcrib.Errorf(toolcrib.CodeScopeInsufficient, "the token covers calls with a given %+q only, and %s", name, problem)
		case !allValuesIn(value, allowed):
			return toolcrib.Errorf(toolcrib.CodeScopeInsufficient, "the token does not cover this value of %+q", name)
		}
	}
	return nil
}

// member returns the value of a member of an object. What another reader could see
// in another way is a problem: the name twice, or one that differs in case only.
func member(object []byte, name string) (value []byte, problem string) {
	for key, one := range members(object) {
		text, ok := unquote(key)
		switch {
		case !ok:
			return nil, "the call has a name that cannot be read"
		case text == name && value != nil, text != name && strings.EqualFold(text, name):
			return nil, "in the call it stands in two ways"
		case text == name:
			value = one
		}
	}
	if value == nil {
		return nil, "the call has none"
	}
	return value, ""
}

// allValuesIn tells whether a value, or each entry of an array, is allowed.
func allValuesIn(raw []byte, allowed []any) bool {
	if raw[0] != '[' {
		return rawIn(raw, allowed)
	}
	n := 0
	for entry := range entries(raw) {
		if !rawIn(entry, allowed) {
			return false
		}
		n++
	}
	return n > 0
}

// rawIn compares scalars as they are written: 1 and 1.0 are two values. Objects,
// arrays and null are never allowed.
func rawIn(raw []byte, allowed []any) bool {
	var value any
	switch raw[0] {
	case '"':
		text, ok := unquote(raw)
		if !ok {
			return false
		}
		value = text
	case 't', 'f':
		value = raw[0] == 't'
	case '{', '[', 'n':
		return false
	default:
		value = json.Number(raw)
	}
	return valueIn(value, allowed)
}

func valueIn(value any, allowed []any) bool {
	for _, one := range allowed {
		if one, ok := scalar(one); ok && one == value {
			return true
		}
	}
	return false
}

// scalar returns a value of a scope as JSON reads it.
func scalar(value any) (any, bool) {
	switch v := value.(type) {
	case string:
		return v, len(v) <= maxValueBytes && utf8.ValidString(v)
	case bool, json.Number:
		return v, true
	case int, int64, float64:
		text, err := json.Marshal(v)
		return json.Number(text), err == nil
	}
	return nil, false
}

func checkParams(params map[string][]any) (map[string][]any, error) {
	if len(params) > MaxScopeParams {
		return nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "params_constraints has more than %d parameters", MaxScopeParams)
	}
	var out map[string][]any
	for name, values := range params {
		if name == "" || len(name) > maxGrantBytes || !utf8.ValidString(name) {
			return nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "params_constraints: the name of a parameter has 1 to %d bytes", maxGrantBytes)
		}
		if len(values) > MaxScopeNames {
			return nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "params_constraints: %+q has more than %d values", name, MaxScopeNames)
		}
		checked := make([]any, 0, len(values))
		for _, value := range values {
			one, ok := scalar(value)
			if number, isNumber := one.(json.Number); isNumber {
				ok = ok && len(number) <= maxValueBytes && json.Valid([]byte(number))
			}
			if !ok {
				return nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "params_constraints: a value of %+q is no text (of at most %d bytes), number or boolean", name, maxValueBytes)
			}
			if !valueIn(one, checked) {
				checked = append(checked, one)
			}
		}
		if out == nil {
			out = map[string][]any{}
		}
		out[name] = checked
	}
	return out, nil
}
