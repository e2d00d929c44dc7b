package wire

import "unicode/utf8"

// Piece is part of a text in the result of a tool. It begins and ends between characters.
type Piece struct {
	Content    string `json:"content"`
	Offset     int64  `json:"offset"`                // byte offset of content
	NextOffset int64  `json:"next_offset,omitempty"` // byte offset of the next piece; absent at the end
	TotalBytes int64  `json:"total_bytes"`           // length of the whole text
}

// PieceOf returns at most limit bytes, but at least one character, of a text of size bytes, starting at offset or at
// the beginning of the character there. data is the part of the text that begins at the byte from.
func PieceOf(data []byte, from, size, offset, limit int64) Piece {
	at := min(int(offset-from), len(data))
	start, end := backToRune(data, at), backToRune(data, min(at+int(limit), len(data)))
	if end <= start && start < len(data) {
		_, width := utf8.DecodeRune(data[start:])
		end = start + width
	}
	p := Piece{Content: string(data[start:end]), Offset: from + int64(start), TotalBytes: size}
	if next := from + int64(end); next < size {
		p.NextOffset = next
	}
	return p
}

// Fitting returns how many bytes of content fit into the bound of a call in addition to others bytes, if each needs at
// most two bytes in JSON, as a quote does. If bound is 0 or less, it returns most.
func Fitting(bound, others int, most int64) int64 {
	if bound <= 0 {
		return most
	}
	return max(16, int64(bound-others)/2)
}

// backToRune returns the start of the character that contains the byte at, or at if text is not UTF-8
// there.
func backToRune[T string | []byte](text T, at int) int {
	if at >= len(text) {
		return len(text)
	}
	for back := range min(utf8.UTFMax, at+1) {
		if utf8.RuneStart(text[at-back]) {
			return at - back
		}
	}
	return at
}
