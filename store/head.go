package store

import (
	"time"

	"github.com/toolcrib/toolcrib"
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

// The kinds of system events that tell of the seal itself.
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
