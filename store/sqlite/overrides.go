package sqlite

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store"
)

// overrideCache holds the overrides as they were at one version of theirs.
type overrideCache struct {
	mu      sync.Mutex
	list    *store.OverrideList // nil = none read yet
	version uint64              // of list
	// at is when it was last found that list holds; the zero time = it is not known
	// to hold any more.
	at time.Time
	// changes counts what this store has changed: what was being read meanwhile may
	// be from before.
	changes uint64
}

// OverridesVersion implements [store.Store].
func (s *Store) OverridesVersion(ctx context.Context) (uint64, error) {
	return s.version(ctx, store.SealedOverrides)
}

// Overrides implements [store.Store].
func (s *Store) Overrides(ctx context.Context) ([]store.Override, error) {
	now, err := s.currentOverrides(ctx, time.Time{})
	if err != nil {
		return nil, err
	}
	return slices.Clone(now.Overrides), nil
}

// OverridesWithin implements [store.Store].
func (s *Store) OverridesWithin(ctx context.Context, age time.Duration) (*store.OverrideList, error) {
	c := &s.overrides
	now := s.now()
	c.mu.Lock()
	if since := now.Sub(c.at); c.list != nil && !c.at.IsZero() && since >= 0 && since < age {
		defer c.mu.Unlock()
		return c.list, nil
	}
	c.mu.Unlock()
	return s.currentOverrides(ctx, now)
}

// currentOverrides returns what holds at now or later, and notes that it does; the
// zero time notes nothing.
func (s *Store) currentOverrides(ctx context.Context, now time.Time) (*store.OverrideList, error) {
	c := &s.overrides
	c.mu.Lock()
	changes := c.changes
	c.mu.Unlock()
	version, err := s.OverridesVersion(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.list == nil || c.version < version {
		// What is read may be newer than version: then it is read once more than it
		// need be, never once less.
		list, err := s.readOverrides(ctx)
		if err != nil {
			return nil, err
		}
		c.list, c.version = &store.OverrideList{Overrides: list}, version
	}
	if c.changes == changes && now.After(c.at) {
		c.at = now
	}
	return c.list, nil
}

// overridesChanged is called after every write of an override, whether or not it is
// known to have been stored.
func (s *Store) overridesChanged() {
	c := &s.overrides
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	c.at = time.Time{}
}

func (s *Store) readOverrides(ctx context.Context) ([]store.Override, error) {
	list, err := docs[store.Override](ctx, s.readers, "kind = 'override' ORDER BY id")
	if err != nil {
		return nil, s.failed(ctx, err)
	}
	return append([]store.Override{}, list...), nil
}

// SetOverride implements [store.Store].
func (s *Store) SetOverride(ctx context.Context, o store.Override) (changed bool, err error) {
	return s.override(ctx, o, store.SystemOverrideSet)
}

// ResetOverride implements [store.Store].
func (s *Store) ResetOverride(ctx context.Context, kind store.OverrideKind, name, by string) (changed bool, err error) {
	return s.override(ctx, store.Override{Kind: kind, Name: name, By: by}, store.SystemOverrideReset)
}

func (s *Store) override(ctx context.Context, o store.Override, kind toolcrib.Kind) (changed bool, err error) {
	if err := o.Check(); err != nil {
		return false, err
	}
	o.At = wholeMicro(s.now())
	err = s.write(ctx, &job{barrier: true, do: func(t *tx) error {
		changed = false
		before, err := docs[store.Override](t.ctx, t.w.conn, "kind = 'override' AND doc ->> 'kind' = ? AND doc ->> 'name' = ?", string(o.Kind), o.Name)
		there, reset := len(before) > 0, kind == store.SystemOverrideReset
		if err != nil || reset && !there || !reset && there && before[0].Enabled == o.Enabled {
			return err
		}
		if reset {
			o.Enabled = before[0].Enabled
		}
		changed = true
		return t.appendSystem(o.At, kind, o)
	}})
	s.overridesChanged()
	return changed && err == nil, err
}
