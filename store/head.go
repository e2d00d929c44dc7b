package store

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// Head is where the system journal stood at a moment, sealed with the data
// folder's key. Kept elsewhere, it shows later that the whole store was put back
// to an older copy, which nothing inside of the store can show.
type Head struct {
	Seq  toolcrib.Seq `json:"seq"`  // 0 = there was no event yet
	Hash string       `json:"hash"` // hex, of the chain up to Seq
	MAC  string       `json:"mac"`  // hex, see [Keys.HeadMAC]
	// Moves is [Record.Moves]: with it an older copy shows also where only runs changed since.
	Moves uint64    `json:"moves"`
	Time  time.Time `json:"time,omitzero"` // of the event Seq
}

// The kinds of system events about the seal itself.
const (
	SystemHeadAdopted    toolcrib.Kind = "head_adopted"    // payload: HeadAdopted
	SystemDamageAccepted toolcrib.Kind = "damage_accepted" // payload: DamageAccepted
)

// HeadAdopted says that what was stored before this event was sealed as it was found,
// because its seal did not hold or its key was lost. Nothing vouches for what came before.
type HeadAdopted struct {
	Seq  toolcrib.Seq `json:"seq"`  // the last event that was found
	Hash string       `json:"hash"` // hex
	By   string       `json:"by"`
	What string       `json:"what"` // how the seal did not hold
}

// DamageAccepted says that new runs may start although these problems were found. They are
// still reported, and the runs that they are about stay as unusable as they are.
type DamageAccepted struct {
	By       string        `json:"by"`
	Problems []*ChainError `json:"problems"`
}

// SystemHead is where the system journal stands.
type SystemHead struct {
	Seq  toolcrib.Seq // 0 = there is no event
	Hash []byte
	Time int64 // of its last event, in Unix microseconds
}

// SealedHead is the head as it is stored, and where the system journal ends beside it.
type SealedHead struct {
	Found  bool // the row of the head is there
	Head   SystemHead
	KeyID  []byte
	Record []byte // sealed; see [Keys.OpenRecord]
	Last   SystemHead
}

// Open returns the sealed record. A journal or record that is not as it was sealed is a
// [*ChainError].
func (s *SealedHead) Open(keys *Keys) (Record, error) {
	r, ok := keys.OpenRecord(s.Record, s.Head.Seq, s.Head.Hash)
	what := ""
	switch {
	case !s.Found:
		what = "its head is gone"
	case !bytes.Equal(s.KeyID, keys.ID()):
		what = "its head was not sealed with this key but with another one; is the key file the right one?"
	case !ok:
		what = "its head was not sealed with this key"
	case s.Head.Seq > s.Last.Seq:
		what = fmt.Sprintf("it ends at event %d, and its head says %d", s.Last.Seq, s.Head.Seq)
	case s.Head.Seq < s.Last.Seq:
		what = fmt.Sprintf("its head says that it ends at event %d", s.Head.Seq)
	case !bytes.Equal(s.Head.Hash, s.Last.Hash):
		what = "its head has another hash"
	default:
		return r, nil
	}
	return Record{}, &ChainError{Run: SystemChain, Seq: s.Last.Seq, What: what}
}

// Export is the head as it is kept elsewhere, if it is as it was sealed.
func (s *SealedHead) Export(keys *Keys) (Head, error) {
	r, err := s.Open(keys)
	if err != nil {
		return Head{}, err
	}
	h := Head{
		Seq: s.Head.Seq, Hash: hex.EncodeToString(s.Head.Hash), Moves: r.Moves,
		MAC: hex.EncodeToString(keys.HeadMAC(s.Head.Seq, r.Moves, s.Head.Hash)),
	}
	if h.Seq > 0 {
		h.Time = Micro(s.Last.Time)
	}
	return h, nil
}

// Next puts an event behind h: it gets its number and hashes.
func (h SystemHead) Next(e *SystemEvent) SystemHead {
	e.Seq = h.Seq + 1
	e.PayloadHash = journal.PayloadHash(e.Payload)
	e.Hash = journal.ChainHash(h.Hash, SystemChain, e.Seq, e.Kind, e.Time, e.PayloadHash)
	return SystemHead{Seq: e.Seq, Hash: bytes.Clone(e.Hash), Time: e.Time.UnixMicro()}
}
