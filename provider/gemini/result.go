package gemini

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// result appends the result of a call, under the name and the ID that the call
// has on the wire, and the files that came with it: inside the result where the
// model takes them there, else beside it.
func (s *script) result(dst []byte, r *toolcrib.ToolResult) []byte {
	sent := sentCall{name: sentName(r.Name)}
	if i := slices.IndexFunc(s.calls, func(c sentCall) bool { return c.id == r.CallID }); i >= 0 {
		sent = s.calls[i]
	}
	dst = append(s.part(dst, toolcrib.RoleUser), `{"functionResponse":{`...)
	if sent.wireID != "" {
		dst = append(dst, `"id":`...)
		dst = append(wire.AppendString(dst, sent.wireID), ',')
	}
	dst = append(dst, `"name":`...)
	dst = wire.AppendString(dst, sent.name)
	dst = append(dst, `,"response":`...)
	dst = appendResponse(dst, r)
	var beside []func(dst []byte) []byte
	inside := 0
	for i := range r.Files {
		f := &r.Files[i]
		a := s.open(f)
		switch {
		case a == nil:
			beside = append(beside, func(dst []byte) []byte { return s.text(dst, toolcrib.RoleUser, wire.FileText(f)) })
		case !s.traits.filesInResults() || !slices.Contains(resultTypes, a.MediaType):
			beside = append(beside, func(dst []byte) []byte { return appendInline(s.part(dst, toolcrib.RoleUser), a) })
		default:
			if inside == 0 {
				dst = append(dst, `,"parts":[`...)
			}
			dst = appendInline(separated(dst, inside), a)
			inside++
		}
	}
	if inside > 0 {
		dst = append(dst, ']')
	}
	dst = append(dst, `}}`...)
	for _, add := range beside {
		dst = add(dst)
	}
	return dst
}

// appendResponse appends the object that a result must be: an object as it is,
// anything else under "result"; a failure under "error", unless it is an object
// that has that member.
func appendResponse(dst []byte, r *toolcrib.ToolResult) []byte {
	content := strings.TrimSpace(r.Content)
	kind, hasError := byte(0), false
	if content != "" && (content[0] == '{' || content[0] == '[') {
		kind, hasError = readable([]byte(content))
	}
	name := "result"
	switch {
	case kind == '{' && (!r.IsError || hasError):
		return append(dst, content...)
	case r.IsError:
		name = "error"
	}
	dst = append(wire.AppendString(append(dst, '{'), name), ':')
	if kind != 0 {
		return append(append(dst, content...), '}')
	}
	return append(wire.AppendString(dst, r.Content), '}')
}

// maxResponseDepth bounds the nesting of a result: the API reads at most a
// hundred levels, its own included.
const maxResponseDepth = 50

// readable reports how a JSON text begins, '{' or '[', if the API can read it as a
// google.protobuf.Struct: valid UTF-8 and JSON, no name twice, no half of a
// surrogate pair, numbers that a float64 holds, and no member $ref, which the API
// takes for a reference of its own. 0 = it must be sent as a text. hasError tells
// whether the object has a member "error".
func readable(content []byte) (kind byte, hasError bool) {
	if !json.Valid(content) || !bytes.Equal(bytes.ToValidUTF8(content, nil), content) {
		return 0, false
	}
	c := wire.NewCursor(content)
	v := reader{cursor: &c}
	ok := v.value(0)
	if !ok || c.End() != nil {
		return 0, false
	}
	return content[0], v.hasError
}

type reader struct {
	cursor   *wire.Cursor
	hasError bool
}

func (v *reader) value(depth int) bool {
	c := v.cursor
	if depth > maxResponseDepth {
		return false
	}
	switch c.Peek() {
	case '{':
		return v.object(depth)
	case '[':
		c.Enter('[')
		for c.Next() {
			if !v.value(depth + 1) {
				return false
			}
		}
		return c.Err() == nil
	case '"':
		return wholeText(c.Raw())
	case 't', 'f', 'n':
		c.Skip()
		return true
	}
	f, err := strconv.ParseFloat(string(c.Raw()), 64)
	return err == nil && !math.IsInf(f, 0)
}

func (v *reader) object(depth int) bool {
	v.cursor.Enter('{')
	var names map[string]bool
	for {
		key, ok := v.cursor.Key()
		if !ok {
			return v.cursor.Err() == nil
		}
		name := string(key)
		if names == nil {
			names = make(map[string]bool)
		}
		if name == "$ref" || names[name] || strings.ContainsRune(name, '\uFFFD') {
			return false
		}
		names[name] = true
		v.hasError = v.hasError || depth == 0 && name == "error"
		if !v.value(depth + 1) {
			return false
		}
	}
}

// wholeText reports whether a JSON string holds no half of a surrogate pair: those
// are read as U+FFFD.
func wholeText(quoted []byte) bool {
	if !bytes.Contains(quoted, []byte(`\u`)) {
		return true
	}
	c := wire.NewCursor(quoted)
	return !bytes.ContainsRune(c.Bytes(), '\uFFFD')
}
