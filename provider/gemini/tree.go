package gemini

import (
	"encoding/json"
	"strings"

	"github.com/toolcrib/toolcrib/provider/wire"
)

// object is a JSON object whose members keep their order: a model answers in the
// order of a schema's properties. A name may be in it twice. A value is an object, a list ([]any) or the
// JSON text of anything else (json.RawMessage).
type object []field

type field struct {
	name  string
	value any
}

func (o object) get(name string) any {
	for i := range o {
		if o[i].name == name {
			return o[i].value
		}
	}
	return nil
}

// text is a member that is a string, "" if it is not.
func (o object) text(name string) string {
	raw, _ := o.get(name).(json.RawMessage)
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// set replaces a member, or adds it.
func (o object) set(name string, value any) object {
	for i := range o {
		if o[i].name == name {
			o[i].value = value
			return o
		}
	}
	return append(o, field{name, value})
}

// parse reads valid JSON.
func parse(raw []byte) (any, error) {
	c := wire.NewCursor(raw)
	v := value(&c)
	return v, c.End()
}

func value(c *wire.Cursor) any {
	switch c.Peek() {
	case '{':
		o := object{}
		c.Enter('{')
		for {
			key, ok := c.Key()
			if !ok {
				return o
			}
			name := strings.ToValidUTF8(string(key), "\uFFFD")
			o = append(o, field{name, value(c)})
		}
	case '[':
		list := []any{}
		c.Enter('[')
		for c.Next() {
			list = append(list, value(c))
		}
		return list
	case '"':
		return json.RawMessage(wire.AppendString(nil, c.String()))
	}
	return json.RawMessage(c.Raw())
}

// find follows a JSON pointer of a reference, such as #/$defs/node.
func find(root any, ref string) (any, bool) {
	pointer, ok := strings.CutPrefix(ref, "#")
	if !ok || pointer != "" && pointer[0] != '/' {
		return nil, false
	}
	v := root
	for step := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if pointer == "" {
			break
		}
		o, isObject := v.(object)
		if !isObject {
			return nil, false
		}
		step = strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~")
		if v = o.get(step); v == nil {
			return nil, false
		}
	}
	return v, true
}
