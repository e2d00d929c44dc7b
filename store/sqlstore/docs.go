package sqlstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// putDoc stores a document that an event of the system journal has changed. If its table is sealed, the
// seal is renewed.
func (t *tx) putDoc(d *store.Doc) error {
	table, sealed := store.Sealed(d.Kind)
	if sealed {
		if err := t.checkTable(table); err != nil {
			return err
		}
	}
	var err error
	if d.Text == "" {
		err = t.later("DELETE FROM docs WHERE kind = ? AND id = ? AND user = ?", d.Kind, d.ID, d.User)
	} else {
		err = t.later(`INSERT INTO docs (kind, id, user, folded, look, at, gone, doc) VALUES (?,?,?,?,?,?,?,?)
			ON CONFLICT (kind, id, user) DO UPDATE SET at = excluded.at, gone = excluded.gone, doc = excluded.doc`,
			d.Kind, d.ID, d.User, d.Keys.Folded, d.Keys.Look, d.At, d.Gone, d.Text)
	}
	if err != nil || !sealed {
		return err
	}
	t.seal.stale[table] = true
	err = t.later("UPDATE counters SET value = value + 1 WHERE name = ?", store.SealedDocs[table].Name)
	return err
}

// docs reads documents. where must not contain user input.
func docs[T any](ctx context.Context, r Reader, where string, args ...any) (list []T, err error) {
	err = r.Each(ctx, "SELECT doc FROM docs WHERE "+where, args, func(scan Scan) error {
		var raw json.RawMessage
		if err := scan(&raw); err != nil {
			return err
		}
		// Numbers keep their spelling: the scope of a token contains values of parameters, and
		// 9007199254740993 is not the number that a float makes of it.
		var v T
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			return fmt.Errorf("decode: %w", err)
		}
		list = append(list, v)
		return nil
	})
	return list, err
}

func (sn snapshot) Docs(ctx context.Context, do func(store.Doc) error) error {
	const all = `SELECT kind, id, user, folded, look, at, gone, doc FROM docs
		UNION ALL SELECT 'counter', name, '', '', '', 0, 0, CAST(value AS TEXT) FROM counters`
	return sn.Each(ctx, all, nil, func(scan Scan) error {
		var d store.Doc
		if err := scan(&d.Kind, &d.ID, &d.User, &d.Keys.Folded, &d.Keys.Look, &d.At, &d.Gone, &d.Text); err != nil {
			return err
		}
		return do(d)
	})
}

// sealed reads documents of a sealed table, and compares the table with its seal in the same snapshot.
type sealed struct {
	s     *Store
	table int
}

func (r sealed) Each(ctx context.Context, query string, args []any, do func(scan Scan) error) error {
	return r.s.failed(ctx, r.s.frozen(ctx, func(sn snapshot) error {
		if err := r.s.checkTable(ctx, sn, r.table); err != nil {
			return err
		}
		return sn.Each(ctx, query, args, do)
	}))
}

// cache contains the documents of a sealed table at one version, by user; "" is for documents without a
// user.
type cache[T any] struct {
	mu      sync.Mutex
	version uint64
	of      map[string][]T
}

// cachedUsers bounds the users in a cache.
const cachedUsers = 1000

// cached returns the documents of a user that match a condition, at most age old. The caller must not
// modify the list.
func cached[T any](
	ctx context.Context, s *Store, c *cache[T], table int, age time.Duration, user, where string, args ...any,
) ([]T, error) {
	version, err := s.version(ctx, table, age)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// The documents may be newer than version: then they are read again unnecessarily.
	if c.of == nil || c.version != version || len(c.of) >= cachedUsers {
		c.of, c.version = make(map[string][]T), version
	}
	list, ok := c.of[user]
	if !ok {
		if list, err = docs[T](ctx, sealed{s, table}, where, args...); err != nil {
			return nil, err
		}
		c.of[user] = list
	}
	return list, nil
}

// OverridesVersion implements [store.Store].
func (s *Store) OverridesVersion(ctx context.Context) (uint64, error) {
	return s.version(ctx, store.SealedOverrides, 0)
}

// Overrides implements [store.Store].
func (s *Store) Overrides(ctx context.Context, age time.Duration) ([]store.Override, error) {
	return cached(ctx, s, &s.overrides, store.SealedOverrides, age, "", "kind = 'override' ORDER BY id")
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
	err = s.change(ctx, store.SealedOverrides, func(t *tx) error {
		changed = false
		before, err := docs[store.Override](t.ctx, t.w.db,
			"kind = 'override' AND doc ->> 'kind' = ? AND doc ->> 'name' = ?", string(o.Kind), o.Name)
		there, reset := len(before) > 0, kind == store.SystemOverrideReset
		if err != nil || reset && !there || !reset && there && before[0].Enabled == o.Enabled {
			return err
		}
		if reset {
			o.Enabled = before[0].Enabled
		}
		changed = true
		return t.appendSystem(o.At, kind, o)
	})
	return changed && err == nil, err
}

// maxRemembered bounds the remembered approvals of a user, including those of its sessions.
const maxRemembered = 1000

// Remember implements [store.Store].
func (s *Store) Remember(ctx context.Context, m store.Remembered) (id string, changed bool, err error) {
	if err := m.Check(); err != nil {
		return "", false, err
	}
	m.ID, m.At, m.RevokedAt, m.RevokedBy = m.MakeID(), wholeMicro(s.now()), time.Time{}, ""
	err = s.change(ctx, store.SealedRemembered, func(t *tx) error {
		changed, err = t.remember(m)
		return err
	})
	return m.ID, changed && err == nil, err
}

func (t *tx) remember(m store.Remembered) (bool, error) {
	var n, all int
	err := t.row(`SELECT (SELECT count(*) FROM docs WHERE kind = 'remembered' AND id = ?),
		(SELECT count(*) FROM docs WHERE kind = 'remembered' AND user = ? AND gone = 0)`,
		[]any{m.ID, text(m.User)}, &n, &all)
	switch {
	case err != nil || n > 0:
		return false, err
	case all >= maxRemembered:
		return false, reject(fmt.Errorf("%d approvals are remembered for %s, and no more can be; revoke some: %w", all,
			m.User, store.ErrTooLarge))
	}
	return true, t.appendSystem(m.At, store.SystemRemembered, m)
}

// Forget implements [store.Store].
func (s *Store) Forget(ctx context.Context, user, id, by string) (changed bool, err error) {
	if by == "" {
		return false, errors.New("forget: the actor is missing")
	}
	at := wholeMicro(s.now())
	err = s.change(ctx, store.SealedRemembered, func(t *tx) error {
		changed = false
		list, err := docs[store.Remembered](t.ctx, t.w.db, "kind = 'remembered' AND id = ?", id)
		switch {
		case err != nil:
			return err
		case len(list) == 0 || user != "" && list[0].User != text(user):
			return reject(fmt.Errorf("remembered approval %s: %w", id, toolcrib.ErrNotFound))
		case !list[0].RevokedAt.IsZero():
			return nil
		}
		changed = true
		return t.forget(list[0], at, by)
	})
	return changed && err == nil, err
}

func (t *tx) forget(m store.Remembered, at time.Time, by string) error {
	m.RevokedAt, m.RevokedBy = at, by
	return t.appendSystem(at, store.SystemForgotten, m)
}

// Remembered implements [store.Store].
func (s *Store) Remembered(ctx context.Context, user string, session toolcrib.SessionID) ([]store.Remembered, error) {
	all, err := cached(ctx, s, &s.remembered, store.SealedRemembered, 0, text(user),
		"kind = 'remembered' AND user = ? AND gone = 0 ORDER BY at, id", text(user))
	if err != nil {
		return nil, err
	}
	var list []store.Remembered
	for _, m := range all {
		if m.Scope == journal.RememberUser || session != "" && m.Session == session {
			m.Arguments = slices.Clone(m.Arguments)
			list = append(list, m)
		}
	}
	return list, nil
}

// ListRemembered returns a page of the remembered approvals that match, by ID.
func (s *Store) ListRemembered(ctx context.Context, f store.RememberedFilter) ([]store.Remembered, error) {
	where := clauses{text: "kind = 'remembered' AND id > ?", args: []any{f.After}}
	where.add(f.User != "", "user = ?", text(f.User))
	where.add(f.Session != "", "doc ->> 'session_id' = ?", text(string(f.Session)))
	where.add(f.Run != "", "doc ->> 'run_id' = ?", text(string(f.Run)))
	where.add(f.Token != "", "doc ->> 'run_id' IN (SELECT id FROM runs WHERE token = ? AND token <> '')", text(f.Token))
	where.add(!f.Revoked, "gone = 0")
	return docs[store.Remembered](ctx, sealed{s, store.SealedRemembered}, where.text+" ORDER BY id LIMIT ?",
		append(where.args, store.Bound(f.Limit))...)
}
