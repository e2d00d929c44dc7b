package guard

import "unicode/utf8"

// EscapeJSON returns a JSON text in which every character that a terminal would act on is
// written as a \u escape: DEL, the C1 controls, and what changes the direction of
// text (contract §3). It means the same. The text itself is returned if it has none.
func EscapeJSON(raw []byte) []byte {
	i := nextActing(raw, 0)
	if i == len(raw) {
		return raw
	}
	out := make([]byte, 0, len(raw)+64)
	done := 0
	for ; i < len(raw); i = nextActing(raw, done) {
		r, size := utf8.DecodeRune(raw[i:])
		out = append(out, raw[done:i]...)
		out = appendUnicodeEscape(out, r)
		done = i + size
	}
	return append(out, raw[done:]...)
}

// nextActing returns where the next character that a terminal acts on begins, from i on;
// len(raw) = nowhere.
func nextActing(raw []byte, i int) int {
	for i < len(raw) {
		if i = skipPrintable(raw, i); i == len(raw) {
			break
		}
		if raw[i] < 0x7F {
			i++
			continue
		}
		r, size := utf8.DecodeRune(raw[i:])
		switch {
		case r >= 0x7F && r <= 0x9F, r == 0x061C, r == 0x200E, r == 0x200F, r >= 0x202A && r <= 0x202E, r >= 0x2066 && r <= 0x2069:
			return i
		}
		i += size
	}
	return len(raw)
}
