package access

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// coversParams tells whether every constrained parameter is there with allowed
// values.
func coversParams(constraints map[string][]any, args json.RawMessage) error {
	if len(constraints) == 0 {
		return nil
	}
	found, problem := constrained(constraints, args)
	if problem != "" {
		return refusef(CodeScopeInsufficient, "the token covers some arguments only, and %s", problem)
	}
	for name, allowed := range constraints {
		raw, ok := found[name]
		if !ok {
			return refusef(CodeScopeInsufficient, "the token covers calls with a given %+q only, and the call has none", name)
		}
		if !allValuesIn(raw, allowed) {
			return refusef(CodeScopeInsufficient, "the token does not cover this value of %+q", name)
		}
	}
	return nil
}

// constrained returns the constrained parameters of a JSON object. What another
// reader could see in another way is a problem: a key twice, or one that differs
// from a constrained one in case only.
func constrained(constraints map[string][]any, args json.RawMessage) (found map[string]json.RawMessage, problem string) {
	const unreadable = "the arguments are no JSON object"
	d := json.NewDecoder(bytes.NewReader(args))
	if first, err := d.Token(); err != nil || first != json.Delim('{') || !utf8.Valid(args) {
		return nil, unreadable
	}
	found = map[string]json.RawMessage{}
	for d.More() {
		token, err := d.Token()
		key, ok := token.(string)
		if err != nil || !ok {
			return nil, unreadable
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil, unreadable
		}
		for name := range constraints {
			if _, twice := found[name]; name == key && twice || name != key && strings.EqualFold(name, key) {
				return nil, fmt.Sprintf("%+q stands there in two ways", clip(key))
			}
		}
		if _, ok := constraints[key]; ok {
			found[key] = raw
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, unreadable
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, unreadable
	}
	return found, ""
}

// allValuesIn tells whether a value, or each entry of an array, is allowed.
func allValuesIn(raw json.RawMessage, allowed []any) bool {
	var value any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		return false
	}
	list, ok := value.([]any)
	if !ok {
		return valueIn(value, allowed)
	}
	for _, entry := range list {
		if !valueIn(entry, allowed) {
			return false
		}
	}
	return len(list) > 0
}

// valueIn compares scalars as they are written: 1 and 1.0 are two values.
func valueIn(value any, allowed []any) bool {
	for _, one := range allowed {
		one, ok := scalar(one)
		if !ok {
			continue
		}
		switch value := value.(type) {
		case string, bool, json.Number:
			if one == value {
				return true
			}
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
		return nil, refusef(CodeBadRequest, "params_constraints has more than %d parameters", MaxScopeParams)
	}
	var out map[string][]any
	for name, values := range params {
		if name == "" || len(name) > maxGrantBytes || !utf8.ValidString(name) {
			return nil, refusef(CodeBadRequest, "params_constraints: the name of a parameter has 1 to %d bytes", maxGrantBytes)
		}
		if len(values) > MaxScopeNames {
			return nil, refusef(CodeBadRequest, "params_constraints: %+q has more than %d values", name, MaxScopeNames)
		}
		checked := make([]any, 0, len(values))
		for _, value := range values {
			one, ok := scalar(value)
			if number, isNumber := one.(json.Number); isNumber {
				ok = ok && len(number) <= maxValueBytes && json.Valid([]byte(number))
			}
			if !ok {
				return nil, refusef(CodeBadRequest, "params_constraints: a value of %+q is no text (of at most %d bytes), number or boolean", name, maxValueBytes)
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
