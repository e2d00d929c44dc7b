package shell

import (
	"strconv"
	"strings"

	"github.com/toolcrib/toolcrib"
)

// refuse makes a refusal: its text is what the model reads (C15), and says what is
// allowed instead.
func refuse(format string, args ...any) error {
	return toolcrib.Failf(toolcrib.PermissionDenied, format, args...)
}

const maxQuoted = 80 // bytes of a word that are repeated in a text

// quote repeats a word of the model's in a text, cut and on one line.
func quote(word string) string {
	if len(word) > maxQuoted {
		word = strings.ToValidUTF8(word[:maxQuoted], "") + "…"
	}
	quoted := strconv.Quote(word)
	if quoted == `"`+word+`"` && !strings.ContainsAny(word, " \"'") && word != "" {
		return word
	}
	return quoted
}
