package store

import (
	"time"

	"github.com/toolcrib/toolcrib"
)

// Head is where the system journal stood at a moment, sealed with the data
// folder's key. Kept elsewhere, it shows later that the whole store was put back
// to an older copy, which nothing inside of the store can show.
type Head struct {
	Seq  toolcrib.Seq `json:"seq"`           // 0 = there was no event yet
	Hash string       `json:"hash"`          // hex, of the chain up to Seq
	MAC  string       `json:"mac"`           // hex, see [Keys.HeadMAC]
	Time time.Time    `json:"time,omitzero"` // of the event Seq
}

// The kinds of system events that tell of the head itself.
const (
	SystemHeadAdopted toolcrib.Kind = "head_adopted" // payload: HeadAdopted
	SystemHeadBroken  toolcrib.Kind = "head_broken"  // payload: HeadBroken
)

// HeadAdopted says that what stood in the system journal before this event was
// sealed as it was found: it was written before there was a key, or the key was
// lost. Nothing vouches for the end of what came before.
type HeadAdopted struct {
	Seq  toolcrib.Seq `json:"seq"`  // the last event that was found
	Hash string       `json:"hash"` // hex
	By   string       `json:"by"`
}

// AdoptedByMigration is HeadAdopted.By of a database that had no head yet.
const AdoptedByMigration = "migration"

// HeadBroken says that the journal was not as its seal says when an event was to
// be added. Adding goes on, so that no run is lost, but the break is kept.
type HeadBroken struct {
	Seq      toolcrib.Seq `json:"seq"`                 // the last event that was found
	Hash     string       `json:"hash"`                // hex
	HeadSeq  toolcrib.Seq `json:"head_seq"`            // of the head that was found
	HeadHash string       `json:"head_hash,omitempty"` // hex; "" = the head was gone
	What     string       `json:"what"`
}
