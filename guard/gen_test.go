package guard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// Runes of each kind that this package treats differently.
var oddRunes = []rune{
	0, 1, 7, '\b', '\f', '\n', '\r', '\t', 0x1b, ' ', '"', '\\', '/', '<', '>', '&', 'a', 'k', 'K', 's', 'ſ', 'K', 0x7f, 0x80, 0x85, 0x9f,
	0xa0, 'é', 0x200b, 0x200b, 0x200c, 0x2063, 0xfe00, 0x200d, 0x200e, 0x2028, 0x2029, 0x202a, 0x202e, 0x2066, 0x2069, 0xfe0f, 0xfeff, 0xfffd, 0xffff, '日', 'ش',
	0x1f600, 0xe0001, 0xe0041, 0xe007f, 0xe0100, 0xe01ef, 0x10ffff,
}

func drawText(t *rapid.T, label string) string {
	r := rapid.OneOf(rapid.SampledFrom(oddRunes), rapid.Rune(), rapid.RuneFrom([]rune("abcdefgh \n\"")))
	return rapid.StringOfN(r, 0, 40, -1).Draw(t, label)
}

// drawBytes draws text with invalid bytes in it.
func drawBytes(t *rapid.T, label string) string {
	b := []byte(drawText(t, label))
	for _, at := range rapid.SliceOfN(rapid.IntRange(0, 60), 0, 3).Draw(t, label+" damage") {
		if at < len(b) {
			b[at] = rapid.Byte().Draw(t, "byte")
		}
	}
	return string(b)
}

// drawValue draws a JSON value of the types that a decoder with UseNumber makes.
func drawValue(t *rapid.T, depth int) any {
	top := 6
	if depth == 0 {
		top = 4
	}
	switch rapid.IntRange(0, top).Draw(t, "kind") {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2:
		return json.Number(rapid.SampledFrom([]string{"0", "-0", "1", "-1.50", "1e3", "1E+03", "9007199254740993", "0.1", "1e-7"}).Draw(t, "number"))
	case 3, 4:
		return drawText(t, "string")
	case 5:
		list := make([]any, rapid.IntRange(0, 5).Draw(t, "length"))
		for i := range list {
			list[i] = drawValue(t, depth-1)
		}
		return list
	}
	return drawObject(t, depth-1, rapid.IntRange(0, 24).Draw(t, "size"))
}

func drawObject(t *rapid.T, depth, size int) map[string]any {
	object := make(map[string]any, size)
	folded := map[string]bool{}
	for range size {
		key := drawText(t, "key")
		if f := fold([]byte(key)); !folded[f] {
			folded[f] = true
			object[key] = drawValue(t, min(depth, 1))
		}
	}
	return object
}

// spell encodes a value in another valid way: with space, other escapes, and
// keys in any order.
func spell(t *rapid.T, value any) string {
	var b strings.Builder
	space := func() {
		b.WriteString(rapid.SampledFrom([]string{"", "", "", " ", "\n\t", "\r\n "}).Draw(t, "space"))
	}
	var write func(v any)
	str := func(s string) {
		b.WriteByte('"')
		for _, r := range s {
			how := rapid.IntRange(0, 5).Draw(t, "spelling")
			switch {
			case how == 0 && r > 0xffff:
				fmt.Fprintf(&b, `\u%04X\u%04x`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
			case how == 0:
				fmt.Fprintf(&b, `\u%04X`, r)
			case how == 1 && r == '/':
				b.WriteString(`\/`)
			default:
				b.Write(appendEscaped(nil, r))
			}
		}
		b.WriteByte('"')
	}
	write = func(v any) {
		space()
		switch v := v.(type) {
		case string:
			str(v)
		case []any:
			b.WriteByte('[')
			for i, e := range v {
				if i > 0 {
					b.WriteByte(',')
				}
				write(e)
			}
			space()
			b.WriteByte(']')
		case map[string]any:
			keys := make([]string, 0, len(v))
			for k := range v {
				keys = append(keys, k)
			}
			b.WriteByte('{')
			for i, k := range rapid.Permutation(sorted(keys)).Draw(t, "order") {
				if i > 0 {
					b.WriteByte(',')
				}
				space()
				str(k)
				space()
				b.WriteByte(':')
				write(v[k])
			}
			space()
			b.WriteByte('}')
		default:
			b.WriteString(oracle(v))
		}
		space()
	}
	write(value)
	return b.String()
}

// oracle returns encoding/json's own output without HTML escaping.
func oracle(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// oneSpelling returns numbers in canonical form: -0 and 0 are one number, 1.0 and 1
// are.
func oneSpelling(v any) any {
	switch v := v.(type) {
	case float64:
		if v == 0 {
			return 0.0
		}
	case json.Number:
		return json.Number(appendNumber(nil, []byte(v))) // see TestAppendNumber
	case []any:
		for i := range v {
			v[i] = oneSpelling(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = oneSpelling(v[k])
		}
	}
	return v
}

// validJSON is stricter than json.Valid: it also requires valid UTF-8.
func validJSON(raw []byte) bool { return utf8.Valid(raw) && json.Valid(raw) }

var poolsKeep = true

// allocations returns the allocations of f, which may use a sync.Pool.
func allocations(f func()) float64 {
	if !poolsKeep {
		return 0
	}
	return testing.AllocsPerRun(100, f)
}
