package access

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib"
	"golang.org/x/text/secure/precis"
)

// Bounds of a name. In UTF-8 it is a file name on every system, and a session ID by
// the rules of C13.
const (
	MaxNameBytes = 128
	MaxNameRunes = 64
)

// reserved are names that mean something else. Names with a colon (local:OSUSER) can
// not be given to a user at all.
var reserved = []string{"anonymous", "local", "nobody", "system", "toolcrib"}

// CheckName returns a name of a user or group in its normal form (RFC 8265, case
// preserved: full-width letters become plain, NFC), or says what is wrong with it. A
// name has letters of one script, digits 0 to 9, and . _ - @ + between them; it
// begins and ends with a letter or digit.
func CheckName(text string) (string, error) {
	if text == "" {
		return "", toolcrib.Errorf(toolcrib.CodeBadRequest, "a name must not be empty")
	}
	if len(text) > 4*MaxNameBytes { // before any work on it
		return "", tooLong()
	}
	for i, r := range text {
		if problem := badRune(r, text[i:]); problem != "" {
			return "", toolcrib.Errorf(toolcrib.CodeBadRequest, "the name %+q %s; use letters, digits and . _ - @ + between them", clip(text), problem)
		}
	}
	name, err := precis.UsernameCasePreserved.String(text)
	if err != nil {
		return "", toolcrib.Errorf(toolcrib.CodeBadRequest, "the name %+q has a character, or an order of characters, that names must not have (RFC 8265); use letters, digits and . _ - @ + between them", clip(text))
	}
	if len(name) > MaxNameBytes || utf8.RuneCountInString(name) > MaxNameRunes {
		return "", tooLong()
	}
	if problem := badForm(name); problem != "" {
		return "", toolcrib.Errorf(toolcrib.CodeBadRequest, "the name %+q %s", clip(name), problem)
	}
	return name, nil
}

func tooLong() error {
	return toolcrib.Errorf(toolcrib.CodeBadRequest, "a name has at most %d characters and %d bytes", MaxNameRunes, MaxNameBytes)
}

func clip(text string) string {
	for i := range text {
		if i > MaxNameBytes {
			return text[:i] + "…"
		}
	}
	return text
}

const punctuation = "._-@+"

// badRune says what is wrong with a character; rest begins with it.
func badRune(r rune, rest string) string {
	switch {
	case r == utf8.RuneError && !strings.HasPrefix(rest, string(utf8.RuneError)):
		return "is no valid UTF-8"
	case r < utf8.RuneSelf:
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(punctuation, r) {
			return ""
		}
	case unicode.Is(unicode.Lm, r):
		if r == 'ー' || r == '々' {
			return ""
		}
	case unicode.IsLetter(r), unicode.IsMark(r):
		return ""
	case r >= '!'+fullWidth && r <= '~'+fullWidth: // they become plain, and are looked at again then
		return badRune(r-fullWidth, string(r-fullWidth))
	}
	if r == ' ' {
		return "has a space, which names must not have"
	}
	return "has the character " + strings.Trim(quoted(r), "'") + ", which names must not have"
}

// fullWidth is how far the full-width forms stand from ASCII.
const fullWidth = 'ａ' - 'a'

// badForm says what is wrong with a name of permitted characters.
func badForm(name string) string {
	first, _ := utf8.DecodeRuneInString(name)
	last, _ := utf8.DecodeLastRuneInString(name)
	switch {
	case strings.Contains(name, ".."):
		return `must not have ".."`
	case strings.ContainsRune(punctuation, first), unicode.IsMark(first), strings.ContainsRune(punctuation, last):
		return "must begin and end with a letter or digit"
	case slices.ContainsFunc(reserved, func(word string) bool { return strings.EqualFold(word, name) }):
		return "is reserved; choose another one"
	}
	return badScript(name)
}

// TakenBy says that a name cannot be given because of one that exists: the same in
// another case or form, or one that looks alike. nil = it is free of that one.
func TakenBy(name, existing string) error {
	if name == existing {
		return toolcrib.Errorf(toolcrib.CodeConflict, "%s exists already", existing)
	}
	a, b := KeysOf(name), KeysOf(existing)
	switch {
	case strings.EqualFold(name, existing):
		return toolcrib.Errorf(toolcrib.CodeConflict, "%s exists already as %s: names that differ only in case are the same", name, existing)
	case a.Folded == b.Folded, a.Look == b.Look:
		return toolcrib.Errorf(toolcrib.CodeConflict, "%s (%+q) looks like %s (%+q), which exists already; choose a name that cannot be mistaken for it", name, name, existing, existing)
	}
	return nil
}
