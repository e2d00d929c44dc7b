package channel

import "strings"

// Split splits a text into parts of at most limit units, of which a character has size: at the end of a paragraph, a
// line or a word if one of them is in the second half of a part. A blank text has no part.
func Split(text string, limit int, size func(rune) int) (parts []string) {
	text = strings.TrimSpace(text)
	for text != "" {
		end := fitting(text, limit, size)
		if end < len(text) {
			end = breakAt(text[:end])
		}
		if part := strings.TrimRight(text[:end], " \n"); part != "" {
			parts = append(parts, part)
		}
		text = strings.TrimLeft(text[end:], " \n")
	}
	return parts
}

// fitting returns the length of the longest beginning of text that fits, at least one character.
func fitting(text string, limit int, size func(rune) int) int {
	used := 0
	for i, r := range text {
		if used += size(r); used > limit && i > 0 {
			return i
		}
	}
	return len(text)
}

// breakAt returns where to split a part.
func breakAt(part string) int {
	for _, mark := range []string{"\n\n", "\n", " "} {
		if i := strings.LastIndex(part, mark); i >= len(part)/2 {
			return i
		}
	}
	return len(part)
}
