package memory

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/toolcrib/toolcrib"
)

// Store keeps the notes of users. It is safe for concurrent use, by several
// processes too.
type Store interface {
	// Get returns a note; without one, an error that is toolcrib.ErrNotFound.
	Get(ctx context.Context, user, key string) (Note, error)
	// List returns the notes of a user, sorted by key. There are never more than the
	// store's limits allow.
	List(ctx context.Context, user string) ([]Note, error)
	// Put writes a note in place of the one whose [Note.Hash] is before ("" = there is
	// none), as a whole or not at all; one without content is removed. If the note is
	// another one by now, the error is [ErrChanged]; if there is no room, that of
	// [Limits.Allow]. When Put returns, the note has reached the disk.
	Put(ctx context.Context, user string, note Note, before string) error
}

// Note is one note of a user.
type Note struct {
	Key     string `json:"key"`
	Content string `json:"content"`
	// Untrusted says that a run wrote some of it after it had read untrusted data.
	Untrusted bool      `json:"untrusted,omitempty"`
	Changed   time.Time `json:"changed"`
}

// Hash distinguishes versions of a note, but for when they were written; "" = there
// is no note.
func (n Note) Hash() string {
	if n.Content == "" {
		return ""
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %t %s\x00%s", len(n.Key), n.Untrusted, n.Key, n.Content))
	return hex.EncodeToString(sum[:])
}

// Limits bound the notes of one user. A field that is 0 has its default.
type Limits struct {
	NoteBytes  int // of one note's content; default 65 536
	Notes      int // default 256
	TotalBytes int // of all contents; default 4 MiB
}

// OrDefault fills in what is not set.
func (l Limits) OrDefault() Limits {
	if l.NoteBytes <= 0 {
		l.NoteBytes = 64 << 10
	}
	if l.Notes <= 0 {
		l.Notes = 256
	}
	if l.TotalBytes <= 0 {
		l.TotalBytes = 4 << 20
	}
	return l
}

// Allow returns nil if there is room for a note beside the others of its user, and else a
// [*toolcrib.ToolError] that says which limit leaves none. others are all notes but the
// one that is replaced.
func (l Limits) Allow(note Note, others []Note) error {
	l = l.OrDefault()
	total := len(note.Content)
	for _, other := range others {
		total += len(other.Content)
	}
	switch {
	case len(note.Content) > l.NoteBytes:
		return toolcrib.Failf(toolcrib.ExecutionFailed, "the note would have %d bytes, at most %d are allowed; "+
			"make it shorter, or use another key", len(note.Content), l.NoteBytes)
	case len(others) >= l.Notes:
		return toolcrib.Failf(toolcrib.ExecutionFailed, "there are %d notes already, and there can be no more; "+
			"remove one by overwriting it with an empty content", len(others))
	case total > l.TotalBytes:
		return toolcrib.Failf(toolcrib.ExecutionFailed, "all notes together would have %d bytes, "+
			"at most %d are allowed; shorten or remove some", total, l.TotalBytes)
	}
	return nil
}

// ErrChanged means that somebody else has written the note meanwhile.
var ErrChanged = errors.New("memory: the note was changed by somebody else")
