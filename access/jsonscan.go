package access

import (
	"bytes"
	"encoding/json"
	"iter"
	"unicode/utf8"
)

// What follows walks over JSON that [json.Valid] has passed, without building values:
// it is asked at every call of a token whose arguments are constrained.

// isObject tells whether a text is one JSON object in valid UTF-8.
func isObject(text []byte) bool {
	i := space(text, 0)
	return i < len(text) && text[i] == '{' && utf8.Valid(text) && json.Valid(text)
}

// members yields the quoted names and the values of a valid object, in order.
func members(object []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		for i := space(object, 0) + 1; ; {
			if i = space(object, i); object[i] == ',' {
				i = space(object, i+1)
			}
			if object[i] == '}' {
				return
			}
			key := object[i:end(object, i)]
			i = space(object, i+len(key))
			i = space(object, i+1) // the colon
			value := object[i:end(object, i)]
			if !yield(key, value) {
				return
			}
			i += len(value)
		}
	}
}

// entries yields the values of a valid array, in order.
func entries(array []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for i := 1; ; {
			if i = space(array, i); array[i] == ',' {
				i = space(array, i+1)
			}
			if array[i] == ']' {
				return
			}
			value := array[i:end(array, i)]
			if !yield(value) {
				return
			}
			i += len(value)
		}
	}
}

// space returns where the space that begins at i ends.
func space(text []byte, i int) int {
	for i < len(text) && (text[i] == ' ' || text[i] == '\t' || text[i] == '\n' || text[i] == '\r') {
		i++
	}
	return i
}

// end returns where the value that begins at i ends.
func end(text []byte, i int) int {
	depth := 0
	for i < len(text) {
		switch text[i] {
		case '"':
			i = endOfString(text, i)
			if depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth <= 0 {
				return i + 1 + depth // of a scalar, the end was that of what it stands in
			}
		case ',', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	return i
}

func endOfString(text []byte, i int) int {
	for i++; i < len(text) && text[i] != '"'; i++ {
		if text[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// unquote returns the text of a JSON string.
func unquote(quoted []byte) (string, bool) {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1]), true
	}
	var text string
	err := json.Unmarshal(quoted, &text)
	return text, err == nil
}
