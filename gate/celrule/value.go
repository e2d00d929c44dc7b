package celrule

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// maxArguments bounds the arguments that rules look at, in bytes. The gate's are
// never longer than a quarter of it.
const maxArguments = 4 << 20

// arguments reads canonical arguments as a CEL map.
func arguments(raw json.RawMessage) (ref.Val, error) {
	switch {
	case len(raw) > maxArguments:
		return nil, fmt.Errorf("the arguments are longer than %d bytes", maxArguments)
	case !json.Valid(raw):
		return nil, errors.New("the arguments are not one JSON value")
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var members map[string]any
	if err := dec.Decode(&members); err != nil || members == nil {
		return nil, errors.New("the arguments are no JSON object")
	}
	return value(members), nil
}

// value makes a decoded JSON value one of CEL's.
func value(v any) ref.Val {
	switch v := v.(type) {
	case string:
		return types.String(v)
	case bool:
		return types.Bool(v)
	case json.Number:
		return number(v.String())
	case []any:
		list := make([]ref.Val, len(v))
		for i := range v {
			list[i] = value(v[i])
		}
		return types.NewRefValList(types.DefaultTypeAdapter, list)
	case map[string]any:
		members := make(map[string]ref.Val, len(v))
		for name, member := range v {
			members[name] = value(member)
		}
		return types.NewMap(types.DefaultTypeAdapter, members)
	}
	return types.NullValue
}

// number never makes another number of one: a whole one becomes an int, or a uint
// where only that holds it, any other a double. What rules have no number for (an
// integer beyond 64 bits, anything beyond all doubles) is an error only for the
// condition that touches it.
func number(text string) ref.Val {
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return types.Int(i)
	}
	if u, err := strconv.ParseUint(text, 10, 64); err == nil {
		return types.Uint(u)
	}
	f, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || !strings.ContainsAny(text, ".eE"):
		return types.NewErr("a number of the arguments is too large for rules")
	case f == math.Trunc(f) && math.Abs(f) < 1<<53:
		return types.Int(f) // 1.0 is an integer in JSON Schema
	}
	return types.Double(f)
}
