package access

import (
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
)

// MaxName is the most characters of a name: it is also a valid session ID, and a file
// name on every system.
const MaxName = 64

// reserved are names with a special meaning. Names with a colon (local:OSUSER) are
// invalid anyway.
var reserved = []string{"anonymous", "local", "nobody", "system", "toolcrib"}

func bad(format string, args ...any) error {
	return toolcrib.Errorf(toolcrib.CodeBadRequest, format, args...)
}

const punctuation = "._-@+"

// CheckName returns an error if a name of a user or group is invalid. A name has the letters A to Z and
// a to z, digits, and . _ - @ + between them; it begins and ends with a letter or digit. Other letters
// are not allowed, because too many look like one of these; the name that people see is
// [User.Display].
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

// clip bounds a text that an error repeats.
func clip(text string) string { return guard.Clip(text, 2*MaxName) }

func isLetterOrDigit(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// TakenBy returns an error if a name conflicts with an existing one: they are equal, differ
// only in case, or look alike.
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

// RemovedName returns the error for a name that conflicts with that of a removed user.
func RemovedName(name, removed string) error {
	return toolcrib.Errorf(toolcrib.CodeConflict, "the name %s is, or looks like, that of %s, a user who was removed; "+
		"choose another one, since runs and notes of theirs may still be kept", name, removed)
}

// Keys identify a name: two names with either key in common are the same or look
// alike, and only one of them may exist. A store keeps both under a unique index. Keys
// are not names, and are not shown.
type Keys struct {
	Folded string // compares names without letter case
	Look   string // compares names as written
}

var (
	foldedLooks = strings.NewReplacer("0", "o", "1", "l", "m", "rn", "w", "vv")
	looks       = strings.NewReplacer("0", "O", "1", "l", "I", "l", "m", "rn", "w", "vv")
)

// KeysOf returns the keys of a name.
func KeysOf(name string) Keys {
	return Keys{Folded: foldedLooks.Replace(strings.ToLower(name)), Look: looks.Replace(name)}
}
