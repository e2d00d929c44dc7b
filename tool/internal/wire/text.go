package wire

import "unicode/utf8"

// Piece is what a tool returns of a text. It begins and ends at a character.
type Piece struct {
	Content    string `json:"content"`
	Offset     int64  `json:"offset"`                // of content, moved back to the start of a character
	NextOffset int64  `json:"next_offset,omitempty"` // to continue with; absent at the end
	TotalBytes int64  `json:"total_bytes"`
}

// PieceOf takes at most limit bytes from offset on, and at least one character, of a text of size bytes.
// data is what the text has from some place on.
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

// Fitting is how many bytes of content surely fit the bound of a call, beside so many others: as JSON a byte can
// become two (a quote), rarely six. Without a bound it is most.
func Fitting(bound, others int, most int64) int64 {
	if bound <= 0 {
		return most
	}
	return max(16, int64(bound-others)/2)
}

// backToRune moves at back to the start of the character that it is in. In what is
// no UTF-8 it stays.
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
