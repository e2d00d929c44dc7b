package guard

import (
	"bytes"
	"math"
	"math/big"
	"strconv"
)

// maxInteger is less than the first integer that has more digits than fit an int64
// whatever they are.
var maxInteger = big.NewInt(1e18 - 1)

// appendNumber writes a number in its one spelling: one that is an integer of at most 18
// digits as its digits (JSON Schema 2020-12 calls 1.0 an integer, and so must whoever
// decodes it), any other, and a literal, as it came.
func appendNumber(dst, lexeme []byte) []byte {
	if !bytes.ContainsAny(lexeme, ".eE") && string(lexeme) != "-0" {
		return append(dst, lexeme...)
	}
	// What is surely no such integer is not computed: 1e-999 would take long.
	near, err := strconv.ParseFloat(string(lexeme), 64)
	switch {
	case err != nil, near != math.Trunc(near), math.Abs(near) > 1e18:
		return append(dst, lexeme...)
	case near == 0:
		if rest := bytes.TrimLeft(lexeme, "-0."); len(rest) == 0 || rest[0]|0x20 == 'e' {
			return append(dst, '0')
		}
		return append(dst, lexeme...)
	}
	if n, ok := new(big.Rat).SetString(string(lexeme)); ok && n.IsInt() && n.Num().CmpAbs(maxInteger) <= 0 {
		return n.Num().Append(dst, 10)
	}
	return append(dst, lexeme...)
}
