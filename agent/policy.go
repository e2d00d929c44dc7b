package agent

import (
	"github.com/toolcrib/toolcrib/gate"
)

// Scope is what narrows the tools of the run: the snapshot of its start.
func (s *State) Scope() gate.Scope { return scopeOf(s.Start) }

// Facts is what the journal tells the gate about the next call of the run, for
// looking at it: nothing is counted. Offered is what an offer of now would have,
// and is the caller's to set.
func (s *State) Facts() gate.Facts {
	f := s.facts()
	f.Offered, f.DryRun = nil, true
	f.Remembered = append([]gate.Remembered(nil), s.Remembered...)
	return f
}
