package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// maxRemembered is how many approvals hold for a user, with those of its sessions.
const maxRemembered = 1000

// rememberedCache holds what holds for users, as it was at one version.
type rememberedCache struct {
	mu      sync.Mutex
	version uint64
	users   map[string][]store.Remembered
}

// rememberedUsers bounds the cache.
const rememberedUsers = 1000

const (
	rememberedColumns = "id, scope, user, session_id, tool, arguments, path, folder, workspace, folder_id, effect, run_id, approval_id, by, at, revoked_at, revoked_by"
	selectRemembered  = "SELECT " + rememberedColumns + " FROM remembered"
)

func scanRemembered(scan scanFunc) (m store.Remembered, err error) {
	var at int64
	var revoked *int64
	err = scan(&m.ID, &m.Scope, &m.User, &m.Session, &m.Tool, &m.Arguments, &m.Path, &m.Folder, &m.Workspace, &m.FolderID, &m.Effect, &m.Run, &m.ApprovalID, &m.By, &at, &revoked, &m.RevokedBy)
	m.At = fromMicro(at)
	if revoked != nil {
		m.RevokedAt = fromMicro(*revoked)
	}
	return m, err
}

// Remember implements [store.Store].
func (s *Store) Remember(ctx context.Context, m store.Remembered) (id string, changed bool, err error) {
	if err := m.Check(); err != nil {
		return "", false, err
	}
	m.ID, m.At, m.RevokedAt, m.RevokedBy = m.MakeID(), wholeMicro(s.now()), time.Time{}, ""
	err = s.write(ctx, &job{barrier: true, do: func(t *tx) error {
		changed, err = t.remember(m)
		return err
	}})
	return m.ID, changed && err == nil, err
}

func (t *tx) remember(m store.Remembered) (bool, error) {
	var n, all int
	err := t.row("SELECT (SELECT count(*) FROM remembered WHERE id = ?), (SELECT count(*) FROM remembered WHERE user = ? AND revoked_at IS NULL)",
		[]any{m.ID, text(m.User)}, &n, &all)
	switch {
	case err != nil || n > 0:
		return false, err
	case all >= maxRemembered:
		return false, reject(fmt.Errorf("%d approvals are remembered for %s, and no more can be; revoke some: %w", all, m.User, store.ErrTooLarge))
	}
	var arguments any
	if m.Arguments != nil {
		arguments = string(m.Arguments)
	}
	_, err = t.exec("INSERT INTO remembered ("+rememberedColumns+") VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,NULL,'')",
		m.ID, m.Scope, text(m.User), text(string(m.Session)), m.Tool, arguments, m.Path, m.Folder, m.Workspace, m.FolderID, string(m.Effect), text(string(m.Run)), text(m.ApprovalID), text(m.By), m.At.UnixMicro())
	if err != nil {
		return false, err
	}
	return true, t.rememberedChanged(store.SystemRemembered, m)
}

func (t *tx) rememberedChanged(kind toolcrib.Kind, m store.Remembered) error {
	at := m.At
	if kind == store.SystemForgotten {
		at = m.RevokedAt
	}
	return t.changed(store.SealedRemembered, at, kind, m)
}

// Forget implements [store.Store].
func (s *Store) Forget(ctx context.Context, user, id, by string) (changed bool, err error) {
	if by == "" {
		return false, errors.New("forget: who revokes it must be given")
	}
	at := wholeMicro(s.now())
	err = s.write(ctx, &job{barrier: true, do: func(t *tx) error {
		changed = false
		var m store.Remembered
		err := one(t.ctx, t.w.conn, selectRemembered+" WHERE id = ?", []any{id}, func(scan scanFunc) (err error) {
			m, err = scanRemembered(scan)
			return err
		})
		switch {
		case errors.Is(err, sql.ErrNoRows), err == nil && user != "" && m.User != text(user):
			return reject(fmt.Errorf("remembered approval %s: %w", id, toolcrib.ErrNotFound))
		case err != nil || !m.RevokedAt.IsZero():
			return err
		}
		m.RevokedAt, m.RevokedBy, changed = at, text(by), true
		if _, err := t.exec("UPDATE remembered SET revoked_at = ?, revoked_by = ? WHERE id = ?", at.UnixMicro(), m.RevokedBy, id); err != nil {
			return err
		}
		return t.rememberedChanged(store.SystemForgotten, m)
	}})
	return changed && err == nil, err
}

// Remembered implements [store.Store].
func (s *Store) Remembered(ctx context.Context, user string, session toolcrib.SessionID) ([]store.Remembered, error) {
	version, err := s.version(ctx, store.SealedRemembered)
	if err != nil {
		return nil, err
	}
	user = text(user)
	c := &s.remembered
	c.mu.Lock()
	defer c.mu.Unlock()
	// What is read may be newer than version: then it is read once more than it need be.
	if c.users == nil || c.version != version || len(c.users) >= rememberedUsers {
		c.users, c.version = make(map[string][]store.Remembered), version
	}
	all, ok := c.users[user]
	if !ok {
		if version > 0 { // else nothing was ever remembered
			all, err = s.readRemembered(ctx, " WHERE user = ? AND revoked_at IS NULL ORDER BY at, id", user)
		}
		if err != nil {
			return nil, err
		}
		c.users[user] = all
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

func (s *Store) readRemembered(ctx context.Context, where string, args ...any) (list []store.Remembered, err error) {
	err = s.readers.each(ctx, selectRemembered+where, args, func(scan scanFunc) error {
		m, err := scanRemembered(scan)
		list = append(list, m)
		return err
	})
	if err != nil {
		return nil, s.failed(ctx, err)
	}
	return list, nil
}

// ListRemembered returns a page of the remembered approvals that fit, by their ID.
func (s *Store) ListRemembered(ctx context.Context, f store.RememberedFilter) ([]store.Remembered, error) {
	where, args := " WHERE id > ?", []any{f.After}
	if f.User != "" {
		where, args = where+" AND user = ?", append(args, text(f.User))
	}
	if f.Session != "" {
		where, args = where+" AND session_id = ?", append(args, text(string(f.Session)))
	}
	if !f.Revoked {
		where += " AND revoked_at IS NULL"
	}
	return s.readRemembered(ctx, where+" ORDER BY id LIMIT ?", append(args, f.Bound())...)
}
