package store

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/toolcrib/toolcrib"
)

// OverrideKind says what an override is about.
type OverrideKind string

const (
	OverrideTool  OverrideKind = "tool"
	OverrideGroup OverrideKind = "group"
)

// Override is an administrator's word on a tool or a group of tools (A1). No
// override means the tool's own default.
type Override struct {
	Kind    OverrideKind `json:"kind"`
	Name    string       `json:"name"`
	Enabled bool         `json:"enabled"`
	By      string       `json:"by"` // who set it
	At      time.Time    `json:"at"` // when; set by the store
}

// Check tells what is wrong with the key of an override; nil = nothing.
func (o Override) Check() error {
	if o.Kind != OverrideTool && o.Kind != OverrideGroup {
		return fmt.Errorf("override: unknown kind %q: must be %s or %s", o.Kind, OverrideTool, OverrideGroup)
	}
	if o.Name == "" || len(o.Name) > maxNameBytes {
		return fmt.Errorf("override: the name of a %s must have 1 to %d bytes", o.Kind, maxNameBytes)
	}
	return nil
}

// maxNameBytes bounds the names of overrides; a tool's has at most 64.
const maxNameBytes = 256

// SystemEvent is an entry of the system journal: what belongs to no run. Its
// chain is that of journal.ChainHash under the name [SystemChain].
type SystemEvent struct {
	Seq     toolcrib.Seq    `json:"seq"`  // set by the store
	Time    time.Time       `json:"time"` // set by the store if zero
	Kind    toolcrib.Kind   `json:"kind"`
	Payload json.RawMessage `json:"payload"` // a JSON value; must hold no secret

	PayloadHash []byte `json:"payload_hash"` // set by the store
	Hash        []byte `json:"hash"`         // set by the store
}

// SystemChain stands for the run in the chain of the system journal.
const SystemChain toolcrib.RunID = "system"

// The kinds of system events that a store writes itself.
const (
	SystemOverrideSet   toolcrib.Kind = "override_set"   // payload: Override
	SystemOverrideReset toolcrib.Kind = "override_reset" // payload: Override, as it was, with who reset it
	SystemAnchor        toolcrib.Kind = "anchor"         // payload: Anchor
)

// Anchor ties a run's chain to the system journal, at each park and end, so that
// a removed or rewritten run shows (design.md §2, Chains).
type Anchor struct {
	Run    toolcrib.RunID  `json:"run_id"`
	Seq    toolcrib.Seq    `json:"seq"`
	Hash   string          `json:"hash"` // hex, of the run's chain up to Seq
	Status toolcrib.Status `json:"status"`

	// Num is the number of the run in the database, Contents the hash of its kept
	// results (hex; "" = none); both are missing in databases of schema 1.
	Num      int64  `json:"num,omitempty"`
	Contents string `json:"contents,omitempty"`
}
