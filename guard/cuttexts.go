package guard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"
)

type field struct {
	key   string
	value json.RawMessage
	text  string // if Long names the field: its decoded text, which is cut to room bytes as JSON
	room  int
}

// cutTexts makes an object fit by cutting the long texts that names lists (toolcrib.Output.Long) and nothing
// else. Each keeps its beginning and its end, or only its end if last is set. The note about the cut comes before
// the first of them. ok is false if raw is not an object, has none of these fields, or there is not enough room.
func cutTexts(raw []byte, limit int, ref string, names []string, last bool) (out []byte, ok bool) {
	all, ok := fieldsOf(raw)
	if !ok {
		return nil, false
	}
	note := strconv.AppendInt([]byte(`"_truncated":true,"original_bytes":`), int64(len(raw)), 10)
	if ref != "" {
		note = appendQuoted(append(note, `,"ref":`...), ref)
	}
	var long []*field
	room := limit - len(note) - len("{}")
	for i := range all {
		m := &all[i]
		room -= jsonStringLen(m.key) + len(`:,`)
		if slices.Contains(names, m.key) && m.value[0] == '"' {
			m.text = string(appendDecoded(nil, m.value))
			room -= len(`""`)
			long = append(long, m)
			continue
		}
		room -= len(m.value)
	}
	const least = 64 // bytes that each text needs, its note included
	if len(long) == 0 || room < least*len(long) {
		return nil, false
	}
	short := slices.Clone(long)
	slices.SortStableFunc(short, func(a, b *field) int { return len(a.value) - len(b.value) })
	for i, m := range short { // room that a short text does not need goes to the longer ones
		m.room = min(room/(len(short)-i), len(m.value))
		room -= m.room
	}
	out = append(out, '{')
	for i := range all {
		m := &all[i]
		if m == long[0] {
			out = append(append(out, note...), ',')
		}
		out = append(appendQuoted(out, m.key), ':')
		if slices.Contains(long, m) {
			out = appendQuoted(out, cutText(m.text, m.room, last))
		} else {
			out = append(out, m.value...)
		}
		out = append(out, ',')
	}
	out[len(out)-1] = '}'
	return out, true
}

// fieldsOf returns the fields of an object in their order; ok is false if raw is not an object.
func fieldsOf(raw []byte) (all []field, ok bool) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	for d.More() {
		t, err := d.Token()
		key, isText := t.(string)
		var value json.RawMessage
		if err != nil || !isText || d.Decode(&value) != nil {
			return nil, false
		}
		all = append(all, field{key: key, value: value})
	}
	return all, true
}

// cutText leaves out the middle of a text, or its beginning if last is set, so that it has at most room bytes as
// JSON without quotes.
func cutText(text string, room int, last bool) string {
	if jsonStringLen(text)-len(`""`) <= room {
		return text
	}
	note := func(left int) string { return fmt.Sprintf("\n... [%d bytes left out] ...\n", left) }
	room -= jsonStringLen(note(len(text))) - len(`""`)
	head := ""
	if !last {
		head = prefixFitting(text, room/3)
	}
	end := suffixFitting(text[len(head):], room-(jsonStringLen(head)-len(`""`)))
	return head + note(len(text)-len(head)-len(end)) + end
}

// suffixFitting returns the longest end of s, cut between characters, that has at most room bytes inside a JSON
// string.
func suffixFitting(s string, room int) string {
	var spelt [6]byte
	at := len(s)
	for at > 0 {
		r, width := utf8.DecodeLastRuneInString(s[:at])
		if room -= len(appendEscaped(spelt[:0], r)); room < 0 {
			break
		}
		at -= width
	}
	return s[at:]
}
