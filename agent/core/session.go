package core

import (
	"github.com/toolcrib/toolcrib/journal"
)

// SessionUse returns the usage of the session up to the last event of this run, for the next run.
func (s *State) SessionUse() journal.SessionUse {
	u, used := s.Start.Before, s.Spent()
	return journal.SessionUse{
		CostUSD: u.CostUSD + used.CostUSD, Tokens: u.Tokens + used.TotalTokens, Worked: u.Worked + s.Driven,
	}
}
