package wire

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// AppendString appends s as a JSON string (RFC 8259). Bytes that are no valid UTF-8 become
// U+FFFD, so that no history can make a request unreadable.
func AppendString[S ~string | ~[]byte](dst []byte, s S) []byte {
	dst, _ = jsontext.AppendQuote(dst, s) // the error says no more than that
	return dst
}

// AppendEscaped appends the inside of a JSON string.
func AppendEscaped(dst []byte, s string) []byte {
	from := len(dst)
	dst = AppendString(dst, s)
	return append(dst[:from], dst[from+1:len(dst)-1]...)
}

// AppendFloat appends f as a JSON number. f must be finite.
func AppendFloat(dst []byte, f float64) []byte {
	return strconv.AppendFloat(dst, f, 'g', -1, 64)
}
