package guard

import (
	"encoding/json"
	"slices"
	"strconv"
)

// MinResultBytes is the least that a result can be cut to; smaller bounds count as
// this one (contract §2, max_result_bytes).
const MinResultBytes = 256

// maxRefBytes bounds a reference in a note, in bytes as JSON, so that every note
// fits well into [MinResultBytes]; a longer one is left out.
const maxRefBytes = 96

// Content is a text or a JSON value.
type Content struct {
	Text string
	JSON json.RawMessage // wins over Text if not empty
}

// IsJSON reports whether the content is a JSON value.
func (c Content) IsJSON() bool { return len(c.JSON) > 0 }

// String returns what a model reads: the text, or the value as JSON text.
func (c Content) String() string {
	if c.IsJSON() {
		return string(c.JSON)
	}
	return c.Text
}

// Bytes is String as bytes; for a JSON value they are not copied.
func (c Content) Bytes() []byte {
	if c.IsJSON() {
		return c.JSON
	}
	return []byte(c.Text)
}

// SerializedLen is the length in bytes of the content as JSON: of a text as a JSON
// string, quotes included, without HTML escaping; of a value as it is.
func (c Content) SerializedLen() int {
	if c.IsJSON() {
		return len(c.JSON)
	}
	return jsonStringLen(c.Text)
}

// Truncate cuts content that is longer than limit bytes as JSON, by its type
// (contract §7, C10), and reports whether it did:
//
//	text            PREFIX... [truncated, original size: N bytes]
//	array           leading elements and {"_truncated":true,"original_count":N}
//	object, other   {"_truncated_json":"PREFIX...","original_bytes":N}
//
// N counts bytes of [Content.SerializedLen], for arrays elements. With a ref the
// notes carry it: "…, ref: R]", "ref":"R". A JSON string counts as text and comes
// back as text. The result as JSON is valid, has at most limit bytes, and is cut
// between characters and between elements. A limit below [MinResultBytes] counts
// as that; a ref of more than 96 bytes as JSON is left out.
//
// The content must be clean ([Clean], [CleanJSON]); of what is not, invalid bytes
// become U+FFFD where they are cut.
func Truncate(c Content, limit int, ref string) (Content, bool) {
	return truncate(c, max(limit, MinResultBytes), ref)
}

// truncate is Truncate for a limit that need only leave room for the note.
func truncate(c Content, limit int, ref string) (Content, bool) {
	if jsonStringLen(ref) > maxRefBytes {
		ref = ""
	}
	if c = asText(c); !c.IsJSON() {
		return truncateText(c.Text, limit, ref)
	}
	if len(c.JSON) <= limit {
		return c, false
	}
	if c.JSON[0] == '[' {
		if out, ok := truncateArray(c.JSON, limit, ref); ok {
			return Content{JSON: out}, true
		}
	}
	return Content{JSON: truncateOther(c.JSON, limit, ref)}, true
}

// asText turns a JSON string into the text that it means.
func asText(c Content) Content {
	if n := len(c.JSON); n < 2 || c.JSON[0] != '"' || stringEnd(c.JSON, 0) != n {
		return c
	}
	return Content{Text: string(appendDecoded(nil, c.JSON))}
}

func truncateText(text string, limit int, ref string) (Content, bool) {
	size := jsonStringLen(text)
	if size <= limit {
		return Content{Text: text}, false
	}
	note := cutNote(size, ref)
	return Content{Text: prefixFitting(text, limit-jsonStringLen(note)) + note}, true
}

// cutNote ends a text of which size bytes, as JSON, were too many.
func cutNote(size int, ref string) string {
	note := "... [truncated, original size: " + strconv.Itoa(size) + " bytes"
	if ref != "" {
		note += ", ref: " + ref
	}
	return note + "]"
}

// truncateArray keeps the leading elements that fit beside the sentinel; ok is
// false if raw is no array.
func truncateArray(raw []byte, limit int, ref string) (out []byte, ok bool) {
	var ends []int // of the elements that could fit
	count := 0
	for pos := 1; pos < len(raw)-1; count++ {
		end := elementEnd(raw, pos)
		if end >= len(raw) {
			return nil, false
		}
		if end < limit {
			ends = append(ends, end)
		}
		pos = end + 1
	}
	sentinel := appendRef(strconv.AppendInt([]byte(`{"_truncated":true,"original_count":`), int64(count), 10), ref)
	for len(ends) > 0 && ends[len(ends)-1]+len(",")+len(sentinel)+len("]") > limit {
		ends = ends[:len(ends)-1]
	}
	if len(ends) == 0 {
		return slices.Concat([]byte("["), sentinel, []byte("]")), true
	}
	return slices.Concat(raw[:ends[len(ends)-1]], []byte(","), sentinel, []byte("]")), true
}

// elementEnd returns the position of the comma or bracket after the array element
// that begins at pos, or len(raw) if there is none.
func elementEnd(raw []byte, pos int) int {
	depth := 0
	for pos < len(raw) {
		switch c := raw[pos]; c {
		case '"':
			pos = stringEnd(raw, pos)
			continue
		case '{', '[':
			depth++
		case ',', '}', ']':
			if depth == 0 {
				return pos
			}
			if c != ',' {
				depth--
			}
		}
		pos++
	}
	return len(raw)
}

func truncateOther(raw []byte, limit int, ref string) []byte {
	tail := appendRef(strconv.AppendInt([]byte(`...","original_bytes":`), int64(len(raw)), 10), ref)
	const head = `{"_truncated_json":"`
	room := limit - len(head) - len(tail)
	prefix := prefixFitting(string(raw[:min(len(raw), max(room, 0)+3)]), room)
	out := make([]byte, 0, limit)
	out = append(out, head...)
	out = appendInside(out, prefix)
	return append(out, tail...)
}

// appendRef ends a note's object, with the reference if there is one.
func appendRef(note []byte, ref string) []byte {
	if ref != "" {
		note = append(note, `,"ref":`...)
		note = appendQuoted(note, ref)
	}
	return append(note, '}')
}
