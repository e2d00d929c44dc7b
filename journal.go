package toolcrib

import (
	"context"
	"iter"
	"time"
)

// Seq numbers the events of one run, from 1, strictly rising without gaps.
type Seq uint64

// Kind is the kind of an event; package journal defines all of them.
type Kind string

// Event is one entry of a run's journal.
type Event struct {
	Seq  Seq       // given by the journal at Append
	Time time.Time // UTC, whole microseconds
	Body Body      // one of the types of package journal

	// PayloadHash is SHA-256 over the stored JSON of Body, Hash over the chain up
	// to this event; both are given by the journal, and may be nil where a journal
	// does not keep them.
	PayloadHash []byte
	Hash        []byte
}

// Body is the content of an event. Bodies are plain structs, stored as plain JSON.
type Body interface {
	EventKind() Kind
}

// Journal is the durable record of runs (design.md §1). What is not in the
// journal did not happen.
//
// Append adds events after the event numbered after (0 = the run is new), all or
// none of them. If the run has moved on, or exists already with after 0, it
// returns [ErrConflict]: that is the fence against a second writer. An append
// that holds a barrier event (journal.Barrier) has reached the disk when Append
// returns; the others reach it with the next barrier at the latest.
//
// Read yields the events after the one numbered after, in order, as far as they
// are now; a run that does not exist yields [ErrNotFound] once.
type Journal interface {
	Append(ctx context.Context, run RunID, after Seq, events ...Event) error
	Read(ctx context.Context, run RunID, after Seq) iter.Seq2[Event, error]
}

// Contents keeps what is too large for an event: whole tool results, schemas,
// files. Keys are made by the caller; a key is written once, and writing it again
// with other bytes is an error. Get returns [ErrNotFound] for what is not there
// (or was pruned). Range returns at most limit bytes from offset, and the size of the whole.
type Contents interface {
	Put(ctx context.Context, run RunID, ref string, data []byte) error
	Range(ctx context.Context, run RunID, ref string, offset, limit int64) (data []byte, size int64, err error)
}
