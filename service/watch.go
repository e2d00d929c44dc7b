package service

import (
	"context"

	"github.com/toolcrib/toolcrib"
)

// Watches refuses who may not read how the whole of the data folder is used: administrators
// may, and access tokens of theirs, so that a program that collects metrics needs no right
// besides.
func (s *Service) Watches(ctx context.Context, who toolcrib.Principal) error {
	if who.Admin {
		return nil
	}
	if who.Token != "" {
		now, err := s.Standing().Standing(ctx, toolcrib.Principal{User: who.User})
		if err != nil || now.Refused == "" && now.Principal.Admin {
			return err
		}
	}
	return toolcrib.Errorf(toolcrib.CodeForbidden, "only administrators may read this")
}

// OpenRuns is how many runs have not ended, by status.
func (s *Service) OpenRuns(ctx context.Context) (map[toolcrib.Status]int64, error) {
	return s.store.OpenRuns(ctx)
}

// Active is how many runs the pool drives.
func (p *Pool) Active() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.drives)
}
