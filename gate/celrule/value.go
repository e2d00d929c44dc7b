package celrule

import (
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
	r := reader{text: string(raw)}
	if r.next() != '{' {
		return nil, errors.New("the arguments are no JSON object")
	}
	return r.object(), nil
}

// reader reads JSON that is known to be valid, straight into CEL values: going by
// way of any costs more than the conditions do. json.Valid bounds its depth.
type reader struct {
	text string
	at   int
}

// next goes to the next byte that is no space, and returns it.
func (r *reader) next() byte {
	for r.at < len(r.text) {
		switch c := r.text[r.at]; c {
		case ' ', '\t', '\r', '\n':
			r.at++
		default:
			return c
		}
	}
	return 0
}

func (r *reader) value() ref.Val {
	switch r.next() {
	case '{':
		return r.object()
	case '[':
		return r.list()
	case '"':
		return types.String(r.string())
	case 't':
		r.at += len("true")
		return types.True
	case 'f':
		r.at += len("false")
		return types.False
	case 'n':
		r.at += len("null")
		return types.NullValue
	}
	from := r.at
	for r.at < len(r.text) && strings.IndexByte("+-.0123456789eE", r.text[r.at]) >= 0 {
		r.at++
	}
	return number(r.text[from:r.at])
}

func (r *reader) object() ref.Val {
	members := map[string]ref.Val{}
	for r.at++; r.next() != '}'; {
		if r.text[r.at] == ',' {
			r.at++
			continue
		}
		key := r.string()
		r.next()
		r.at++ // the colon
		members[key] = r.value()
	}
	r.at++
	return types.NewMap(types.DefaultTypeAdapter, members)
}

func (r *reader) list() ref.Val {
	var elements []ref.Val
	for r.at++; r.next() != ']'; {
		if r.text[r.at] == ',' {
			r.at++
			continue
		}
		elements = append(elements, r.value())
	}
	r.at++
	return types.NewRefValList(types.DefaultTypeAdapter, elements)
}

func (r *reader) string() string {
	from := r.at
	r.at++
	plain := true
	for r.text[r.at] != '"' {
		if r.text[r.at] == '\\' {
			plain = false
			r.at++
		}
		r.at++
	}
	r.at++
	if plain {
		return strings.ToValidUTF8(r.text[from+1:r.at-1], "\ufffd")
	}
	var s string
	if err := json.Unmarshal([]byte(r.text[from:r.at]), &s); err != nil {
		return "" // it is valid, so there is no error
	}
	return s
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
