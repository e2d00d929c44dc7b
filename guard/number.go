package guard

import (
	"bytes"
	"strconv"
)

// maxIntegerDigits is how many digits an integer has that fits an int64 whatever
// its digits are.
const maxIntegerDigits = 18

// plainNumber reports whether a number is canonical as it is written.
func plainNumber(lexeme []byte) bool {
	return !bytes.ContainsAny(lexeme, ".eE") && string(lexeme) != "-0"
}

// appendNumber writes a number in its one spelling: one that is an integer of at
// most [maxIntegerDigits] digits as its digits (JSON Schema 2020-12 calls 1.0 an
// integer, and so must whoever decodes it), any other as it came.
func appendNumber(dst, lexeme []byte) []byte {
	if plainNumber(lexeme) {
		return append(dst, lexeme...)
	}
	digits, negative, ok := integer(lexeme)
	if !ok {
		return append(dst, lexeme...)
	}
	if negative {
		dst = append(dst, '-')
	}
	return append(dst, digits...)
}

// integer returns the digits of a number without fraction; "0" is never negative.
func integer(lexeme []byte) (digits []byte, negative, ok bool) {
	rest := lexeme
	if rest, negative = bytes.CutPrefix(rest, []byte("-")); len(rest) == 0 {
		return nil, false, false
	}
	exponent := 0
	if i := bytes.IndexAny(rest, "eE"); i >= 0 {
		var err error
		if exponent, err = strconv.Atoi(string(bytes.TrimPrefix(rest[i+1:], []byte("+")))); err != nil {
			return nil, false, false
		}
		rest = rest[:i]
	}
	whole, fraction, _ := bytes.Cut(rest, []byte("."))
	digits = append(bytes.Clone(whole), fraction...)
	shift := exponent - len(fraction)
	for ; shift < 0 && len(digits) > 0 && digits[len(digits)-1] == '0'; shift++ {
		digits = digits[:len(digits)-1]
	}
	if digits = bytes.TrimLeft(digits, "0"); len(digits) == 0 {
		return []byte("0"), false, true
	}
	if shift < 0 || shift > maxIntegerDigits || len(digits)+shift > maxIntegerDigits {
		return nil, false, false
	}
	return append(digits, bytes.Repeat([]byte("0"), shift)...), negative, true
}
