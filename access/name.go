package access

import (
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
)

// MaxName is the most characters of a name: a session ID by the rules of C13, and a file
// name on every system.
const MaxName = 64

// reserved are names with a meaning of their own. Names with a colon (local:OSUSER)
// cannot be given to a user at all.
var reserved = []string{"anonymous", "local", "nobody", "system", "toolcrib"}

func bad(format string, args ...any) error {
	return toolcrib.Errorf(toolcrib.CodeBadRequest, format, args...)
}

const punctuation = "._-@+"

// CheckName says what is wrong with a name of a user or group. A name has the letters A to Z and
// a to z, digits, and . _ - @ + between them; it begins and ends with a letter or digit. There are
// no other letters: too many look like one of these, and how people call a user has a field of its
// own ([User.Display]).
func CheckName(name string) error {
	strange := strings.ContainsFunc(name, func(r rune) bool {
		return r > 'z' || !isLetterOrDigit(byte(r)) && !strings.ContainsRune(punctuation, r)
	})
	switch {
	case name == "":
		return bad("a name must not be empty")
	case len(name) > MaxName:
		return bad("a name has at most %d characters", MaxName)
	case strings.Contains(name, " "):
		return bad("the name %+q has a space, which names must not have", name)
	case strange:
		return bad("the name %+q has a character that names must not have; "+
			"use the letters a to z, digits and . _ - @ + between them", name)
	case strings.Contains(name, ".."):
		return bad(`the name %q must not have ".."`, name)
	case strings.Trim(name, punctuation) != name:
		return bad("the name %q must begin and end with a letter or digit", name)
	case slices.ContainsFunc(reserved, func(word string) bool { return strings.EqualFold(word, name) }):
		return bad("the name %q is reserved; choose another one", name)
	}
	return nil
}

// clip is as much of a text as an error repeats.
func clip(text string) string { return guard.Clip(text, 2*MaxName) }

func isLetterOrDigit(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// TakenBy returns why a name cannot be given beside an existing one: they are the same
// in another case, or look alike. It returns nil if there is no such reason.
func TakenBy(name, existing string) error {
	a, b := KeysOf(name), KeysOf(existing)
	switch {
	case name == existing:
		return toolcrib.Errorf(toolcrib.CodeConflict, "%s exists already", existing)
	case strings.EqualFold(name, existing):
		return toolcrib.Errorf(toolcrib.CodeConflict,
			"%s exists already as %s: names that differ only in case are the same", name, existing)
	case a.Folded == b.Folded, a.Look == b.Look:
		return toolcrib.Errorf(toolcrib.CodeConflict,
			"%s looks like %s, which exists already; choose a name that cannot be mistaken for it", name, existing)
	}
	return nil
}

// RemovedName is the conflict of a name with that of a user who was removed.
func RemovedName(name, removed string) error {
	return toolcrib.Errorf(toolcrib.CodeConflict, "the name %s is, or looks like, that of %s, a user who was removed; "+
		"choose another one, since runs and notes of theirs may still be kept", name, removed)
}

// Keys tell names apart: two names with either key in common are the same or look
// alike, and only one of them may exist. A store keeps both under a unique index. They
// are not names, and are not shown.
type Keys struct {
	Folded string // what is left when case does not count
	Look   string // as it is written
}

var (
	foldedLooks = strings.NewReplacer("0", "o", "1", "l", "m", "rn", "w", "vv")
	looks       = strings.NewReplacer("0", "O", "1", "l", "I", "l", "m", "rn", "w", "vv")
)

// KeysOf returns the keys of a name.
func KeysOf(name string) Keys {
	return Keys{Folded: foldedLooks.Replace(strings.ToLower(name)), Look: looks.Replace(name)}
}
