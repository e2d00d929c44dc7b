package store

import (
	"context"
	"time"

	"github.com/toolcrib/toolcrib"
)

// Bounds of what a run has not read yet.
const (
	MaxUnread       = 32       // messages of one run
	MaxMessageBytes = 64 << 10 // of one message
)

// ErrInboxFull is the error for a message to a run that has not read [MaxUnread] others.
var ErrInboxFull = coded(toolcrib.CodeCapacityExceeded, "the run has not read the messages before this one; try again later")

// Message is what somebody says to a run that has not read it yet.
type Message struct {
	ID   string // of its own
	Text string
	By   string
	At   time.Time
}

// Inbox are messages to runs. A run reads them before it asks its model: the append of a
// [journal.Said] with the ID of one takes it out of the inbox, in one transaction.
//
// An append that ends a run is journal.ErrUnread if there are more messages than its event knows
// of, and takes all of them out otherwise.
type Inbox interface {
	// PutMessage keeps a message durably. A run that has ended is toolcrib.ErrConflict, a
	// [MaxUnread] of messages ErrInboxFull, a text of more than [MaxMessageBytes] ErrTooLarge, and a run
	// that is not there toolcrib.ErrNotFound.
	PutMessage(ctx context.Context, run toolcrib.RunID, m Message) error
	// Messages returns those that a run has not read, oldest first.
	Messages(ctx context.Context, run toolcrib.RunID) ([]Message, error)
}

// SealMessage is the seal of a message to a run.
func (k *Keys) SealMessage(run toolcrib.RunID, m *Message) Seal {
	return newSealing(k.Derive("message to a run")).Text(string(run)).Text(m.ID).Text(m.Text).Text(m.By).
		Int(m.At.UnixMicro()).Sum()
}
