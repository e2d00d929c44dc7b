// Package memory has the tools that keep notes of a user from one run to the next:
// memory_read and memory_write (C9; contract §11).
//
// Notes belong to the user that a run acts for; no argument can name another one's.
// A note that a run has written after it had read untrusted data is marked, and
// what is read of it is untrusted data again: so untrusted words do not become
// trusted by being written down.
package memory

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/internal/wire"
)

const (
	// Group is the group of the tools of this package.
	Group = "memory"
	// Target is the kind of the targets of the tools of this package. Its names are
	// keys of notes, and [AllNotes].
	Target = "memory"
	// AllNotes is the name of the target that means all notes of a user. Every
	// write touches it, so that a look at all notes and a write keep their order.
	AllNotes = "*"
	// Source is the source of untrusted data that comes out of memory.
	Source = "memory"
	// DefaultKey is the note that is meant when a call names none.
	DefaultKey = "memory"
	// MaxKeyBytes is the length of a key (C13).
	MaxKeyBytes = 256
)

// Options for [New].
type Options struct {
	// Store keeps the notes; it must not be nil.
	Store Store
	// Now is the clock; nil = time.Now.
	Now func() time.Time
}

// New returns memory_read and memory_write.
func New(options Options) []toolcrib.Tool {
	if options.Now == nil {
		options.Now = time.Now
	}
	return []toolcrib.Tool{&readTool{options}, &writeTool{options: options}}
}

// CheckKey says what is wrong with the key of a note (C13): it has 1 to 256 bytes
// of UTF-8 and no "..", slash, backslash or control character.
func CheckKey(key string) error {
	switch {
	case key == "":
		return toolcrib.Failf(toolcrib.InvalidArguments, "the key is empty")
	case len(key) > MaxKeyBytes:
		return toolcrib.Failf(toolcrib.InvalidArguments, "the key has %d bytes, at most %d are allowed", len(key),
			MaxKeyBytes)
	case !utf8.ValidString(key):
		return toolcrib.Failf(toolcrib.InvalidArguments, "the key is not valid UTF-8")
	case strings.Contains(key, ".."), strings.ContainsAny(key, `/\`), strings.ContainsFunc(key, unicode.IsControl):
		return toolcrib.Failf(toolcrib.InvalidArguments, "the key must not contain \"..\", a slash, a backslash or a control character")
	}
	return nil
}

// owner is whose notes the call is about.
func owner(call toolcrib.Call) (string, error) {
	if call.Principal.User == "" {
		return "", toolcrib.Failf(toolcrib.PermissionDenied, "notes belong to a user, and this call has none")
	}
	return call.Principal.User, nil
}

// shown names a note to the model. It is not a path that a file tool could open.
func shown(key string) string {
	if key == DefaultKey {
		return "memory"
	}
	return "memory/" + key
}

// input is the arguments of a call, which are about one note.
type input interface{ key() string }

// decode reads arguments and checks whom and what they are about.
func decode(call toolcrib.Call, in input) (user string, err error) {
	if user, err = owner(call); err != nil {
		return "", err
	}
	if err := wire.Decode(call.Arguments, in); err != nil {
		return "", err
	}
	return user, CheckKey(in.key())
}
