package files

import (
	"bytes"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"

	"github.com/toolcrib/toolcrib"
)

// The encodings that are decoded in addition to UTF-8, as results name them.
const (
	encodingUTF16   = "UTF-16"   // with a byte order mark
	encodingLittle  = "UTF-16LE" // without one
	encodingBig     = "UTF-16BE"
	encodingLatin1  = "ISO-8859-1"   // Latin-1
	encodingWindows = "windows-1252" // Latin-1 with printable characters from 0x80 to 0x9F
)

// sniff reads the head of a file, and refuses it if it is not text. encoding is one of UTF-16 or "";
// other encodings are detected only when the text is read.
func sniff(r io.Reader, info fs.FileInfo, shown string) (head []byte, encoding string, err error) {
	head = make([]byte, sniffBytes)
	n, err := io.ReadFull(r, head)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return nil, "", err
	}
	head = head[:n]
	switch encoding = utf16Of(head); {
	case encoding != "":
		return head, encoding, nil
	case isText(head, n == sniffBytes), latinOf(head) != "":
		return head, "", nil
	}
	return nil, "", binary(head, info.Size(), shown)
}

// utf16Of returns the UTF-16 encoding of data, or "". It is detected by the byte order mark or,
// without one, if nearly every other byte of the beginning is zero and the beginning is text.
func utf16Of(data []byte) string {
	if bytes.HasPrefix(data, []byte{0xFF, 0xFE}) || bytes.HasPrefix(data, []byte{0xFE, 0xFF}) {
		return encodingUTF16
	}
	head := data[:min(len(data), sniffBytes)&^1]
	var zeros [2]int
	for i, c := range head {
		if c == 0 {
			zeros[i%2]++
		}
	}
	const least = 8 // bytes; fewer are not significant
	for i, encoding := range []string{encodingBig, encodingLittle} {
		if len(head) < least || zeros[1-i] > 0 || 10*zeros[i] < 7*len(head)/2 {
			continue
		}
		text, _, err := transform.Bytes(fromUTF16(encoding), head)
		control := func(r rune) bool { return r == utf8.RuneError || r < ' ' && !strings.ContainsRune("\t\n\f\r", r) }
		if err == nil && bytes.IndexFunc(text, control) < 0 {
			return encoding
		}
	}
	return ""
}

// fromUTF16 decodes one of the encodings that utf16Of returns.
func fromUTF16(encoding string) transform.Transformer {
	switch encoding {
	case encodingLittle:
		return unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM).NewDecoder()
	case encodingBig:
		return unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM).NewDecoder()
	}
	return unicode.UTF16(unicode.LittleEndian, unicode.ExpectBOM).NewDecoder()
}

// latinOf returns the encoding of data that is neither UTF-8 nor UTF-16, or "" if it is not text in
// Latin-1, which has no control characters and mostly ASCII letters. Text in other alphabets is
// treated as binary, because decoding it as Latin-1 would be wrong.
func latinOf(data []byte) string {
	encoding, high := encodingLatin1, 0
	for _, c := range data {
		switch {
		case c < ' ' && !bytes.ContainsRune([]byte("\t\n\v\f\r\x1b"), rune(c)), c == 0x7F:
			return ""
		case c >= 0x80 && c < 0xA0:
			if charmap.Windows1252.DecodeByte(c) == utf8.RuneError {
				return ""
			}
			encoding = encodingWindows
			high++
		case c >= 0xA0:
			high++
		}
	}
	const few = 32 // bytes, which may all be accented letters
	if 2*high > max(len(data), few) {
		return ""
	}
	return encoding
}

// decoded returns data as UTF-8, and its encoding, or "" if that is UTF-8. ok is false if data is not
// text.
func decoded(data []byte) (text, encoding string, ok bool) {
	if encoding = utf16Of(data); encoding != "" {
		var err error
		if data, _, err = transform.Bytes(fromUTF16(encoding), data); err != nil {
			return "", "", false
		}
		return string(data), encoding, isText(data, false)
	}
	if isText(data, false) {
		return string(data), "", true
	}
	if encoding = latinOf(data); encoding == "" {
		return "", "", false
	}
	latin, err := charmap.Windows1252.NewDecoder().Bytes(data) // the same as Latin-1 from 0xA0 on
	return string(latin), encoding, err == nil
}

// isText reports whether data is UTF-8 without NUL. If cut is true, the last character may be
// incomplete.
func isText(data []byte, cut bool) bool {
	if bytes.IndexByte(data, 0) >= 0 {
		return false
	}
	if cut {
		data = data[:completeRunes(data)]
	}
	return utf8.Valid(data)
}

// completeRunes returns the length of data without an incomplete last character.
func completeRunes(data []byte) int {
	for back := 1; back <= min(utf8.UTFMax, len(data)); back++ {
		if at := len(data) - back; utf8.RuneStart(data[at]) {
			if !utf8.FullRune(data[at:]) {
				return at
			}
			break
		}
	}
	return len(data)
}

func binary(head []byte, size int64, shown string) error {
	kind := http.DetectContentType(head[:min(len(head), 512)])
	if kind == "text/plain; charset=utf-8" {
		kind = "text that is not UTF-8" // DetectContentType detects only UTF-8 and UTF-16
	}
	return toolcrib.Failf(toolcrib.ExecutionFailed, "%s is a binary file (%s, %d bytes) and cannot be read as text", shown,
		kind, size)
}
