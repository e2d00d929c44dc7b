package toolcrib

import (
	"context"
	"iter"
	"time"
)

// Seq numbers the events of one run from 1, without gaps.
type Seq uint64

// Kind is the kind of an event; package journal defines all of them.
type Kind string

// Event is one entry of a run's journal.
type Event struct {
	Seq  Seq       // given by the journal at Append
	Time time.Time // set by the journal at Append
	Body Body      // one of the types of package journal

	// PayloadHash is the SHA-256 hash of the stored JSON of Body, Hash that of the chain up to this
	// event. Both are set by the journal, and are nil if it does not keep hashes.
	PayloadHash []byte
	Hash        []byte
}

// Body is the content of an event. Bodies are plain structs, stored as plain JSON.
type Body interface {
	EventKind() Kind
}

// Journal is the durable record of runs. What is not in the journal did not happen.
//
// Append adds events after the event numbered after (0 for a new run), either all of them or none. If
// the run has other events after that one, it returns [ErrConflict], which protects against a second
// writer. When Append returns, an append with a barrier event (journal.Barrier) has reached the disk;
// others reach it with the next barrier at the latest.
//
// Read yields the current events after the one numbered after, in order. For a run that does not exist
// it yields [ErrNotFound] once.
type Journal interface {
	Append(ctx context.Context, run RunID, after Seq, events ...Event) error
	Read(ctx context.Context, run RunID, after Seq) iter.Seq2[Event, error]
}

// Contents stores data that is too large for an event: complete tool results, schemas, files. The caller chooses
// the keys. A key is written once; writing it again with other bytes is an error. Get returns [ErrNotFound] for a
// key that does not exist or was pruned. Range returns at most limit bytes from offset, and the total size.
type Contents interface {
	Put(ctx context.Context, run RunID, ref string, data []byte) error
	Range(ctx context.Context, run RunID, ref string, offset, limit int64) (data []byte, size int64, err error)
}

// Files stores small files that all processes share: secrets, notes of users, what was reviewed. A name is
// that of a file, or of a folder and a file in it: elements of letters, digits and other characters except
// slashes and backslashes, separated by slashes, which do not begin with a dot. It has at most 255 bytes.
type Files interface {
	// File returns the content of a file, or [ErrNotFound].
	File(ctx context.Context, name string) ([]byte, error)
	// FilesIn returns the contents of the files in a folder by their names without it. One that cannot be
	// read is nil.
	FilesIn(ctx context.Context, folder string) (map[string][]byte, error)
	// ChangeFile replaces the content of a file by the result of change, atomically and durably. before is
	// nil if there is no file; a nil result removes it. If change returns an error, nothing is written, and
	// ChangeFile returns it. Between the call of change and the write, no process changes the file or
	// another one in its folder; if one has, change is called again. If that does not end, the error is
	// [ErrConflict].
	ChangeFile(ctx context.Context, name string, change func(before []byte) (after []byte, err error)) error
}
