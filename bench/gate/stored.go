package main

import (
	"context"
	"time"

	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/store"
)

func micro(n int) time.Duration { return time.Duration(n) * time.Microsecond }

// fromStore is an availability over the store, as the command line has one: what
// was read holds half a second at most.
type fromStore struct {
	store store.Store
}

func (f *fromStore) Overrides(ctx context.Context) (gate.Overrides, error) {
	read, err := f.store.Overrides(ctx, 500*time.Millisecond)
	if err != nil {
		return gate.Overrides{}, err
	}
	over := gate.Overrides{Tools: map[string]bool{}, Groups: map[string]bool{}}
	for _, o := range read {
		if o.Kind == store.OverrideGroup {
			over.Groups[o.Name] = o.Enabled
		} else {
			over.Tools[o.Name] = o.Enabled
		}
	}
	return over, nil
}
