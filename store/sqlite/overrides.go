package sqlite

import (
	"context"
	"database/sql"
	"errors"
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

const selectOverrides = "SELECT kind, name, enabled, by, at FROM overrides ORDER BY kind, name"

func scanOverride(scan scanFunc) (o store.Override, err error) {
	var at int64
	err = scan(&o.Kind, &o.Name, &o.Enabled, &o.By, &at)
	o.At = fromMicro(at)
	return o, err
}

func (s *Store) readOverrides(ctx context.Context) ([]store.Override, error) {
	list := []store.Override{}
	err := s.readers.each(ctx, selectOverrides, nil, func(scan scanFunc) error {
		o, err := scanOverride(scan)
		list = append(list, o)
		return err
	})
	if err != nil {
		return nil, s.failed(ctx, err)
	}
	return list, nil
}

// SetOverride implements [store.Store].
func (s *Store) SetOverride(ctx context.Context, o store.Override) (changed bool, err error) {
	if err := o.Check(); err != nil {
		return false, err
	}
	o.At = wholeMicro(s.now())
	err = s.write(ctx, &job{barrier: true, do: func(t *tx) error {
		changed, err = t.setOverride(o)
		return err
	}})
	s.overridesChanged()
	return changed && err == nil, err
}

func (t *tx) setOverride(o store.Override) (bool, error) {
	var enabled bool
	err := t.row("SELECT enabled FROM overrides WHERE kind = ? AND name = ?", []any{string(o.Kind), o.Name}, &enabled)
	if err == nil && enabled == o.Enabled {
		return false, nil
	}
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return false, err
	}
	_, err = t.exec(`INSERT INTO overrides (kind, name, enabled, by, at) VALUES (?,?,?,?,?)
		ON CONFLICT (kind, name) DO UPDATE SET enabled = excluded.enabled, by = excluded.by, at = excluded.at`,
		string(o.Kind), o.Name, o.Enabled, o.By, o.At.UnixMicro())
	if err != nil {
		return false, err
	}
	return true, t.overrideChanged(store.SystemOverrideSet, o)
}

// ResetOverride implements [store.Store].
func (s *Store) ResetOverride(ctx context.Context, kind store.OverrideKind, name, by string) (changed bool, err error) {
	o := store.Override{Kind: kind, Name: name, By: by, At: wholeMicro(s.now())}
	if err := o.Check(); err != nil {
		return false, err
	}
	err = s.write(ctx, &job{barrier: true, do: func(t *tx) error {
		changed, err = t.resetOverride(o)
		return err
	}})
	s.overridesChanged()
	return changed && err == nil, err
}

func (t *tx) resetOverride(o store.Override) (bool, error) {
	err := t.row("DELETE FROM overrides WHERE kind = ? AND name = ? RETURNING enabled", []any{string(o.Kind), o.Name}, &o.Enabled)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, t.overrideChanged(store.SystemOverrideReset, o)
}

func (t *tx) overrideChanged(kind toolcrib.Kind, o store.Override) error {
	return t.changed(store.SealedOverrides, o.At, kind, o)
}
