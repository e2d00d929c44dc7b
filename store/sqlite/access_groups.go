package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/store"
)

// PutGroup implements [access.Groups].
func (a *Access) PutGroup(ctx context.Context, n access.NewGroup, by string) (access.Change, error) {
	g, err := n.Check()
	if err != nil {
		return access.Change{}, err
	}
	n.Group = g
	return a.change(ctx, by, func(t *tx, c *access.Change) error {
		if err := t.roomForGroup(g.Name); err != nil {
			return err
		}
		var err error
		if c.Carriers, err = t.carriers(g.Name); err != nil {
			return err
		}
		if err := t.mayPut(n, c.Carriers); err != nil {
			return err
		}
		g.Changed, g.ChangedBy = c.At, by
		raw, err := store.EncodeJSON(g)
		if err != nil {
			return err
		}
		keys := access.KeysOf(g.Name)
		_, err = t.exec(`INSERT INTO user_groups (name, folded, look, doc) VALUES (?,?,?,?)
			ON CONFLICT (name) DO UPDATE SET doc = excluded.doc`, g.Name, keys.Folded, keys.Look, string(raw))
		if err != nil {
			return err
		}
		c.Name, c.Group = g.Name, &g
		return t.accessChanged(access.GroupPut, c, nil)
	})
}

// roomForGroup refuses a new group whose name is taken, or that is one too many.
func (t *tx) roomForGroup(name string) error {
	var found string
	keys := access.KeysOf(name)
	err := t.row("SELECT name FROM user_groups WHERE folded = ? OR look = ? ORDER BY name <> ? LIMIT 1", []any{keys.Folded, keys.Look, name}, &found)
	switch {
	case err == nil && found == name:
		return nil
	case err == nil:
		return access.TakenBy(name, found)
	case !errors.Is(err, sql.ErrNoRows):
		return err
	}
	var n int
	if err := t.row("SELECT count(*) FROM user_groups", nil, &n); err != nil {
		return err
	}
	if n >= access.MaxGroups {
		return refused(toolcrib.CodeCapacityExceeded, "there are %d groups, and no room for more", access.MaxGroups)
	}
	return nil
}

const (
	selectGroup = "SELECT doc FROM user_groups WHERE name = ?"
	// carrying is a user who carries the name of a group.
	carrying = "removed = 0 AND EXISTS (SELECT 1 FROM json_each(users.doc, '$.groups') WHERE value = ?)"
)

// carriers counts the users who carry the name of a group.
func (t *tx) carriers(group string) (n int, err error) {
	err = t.row("SELECT count(*) FROM users WHERE "+carrying, []any{group}, &n)
	return n, err
}

// mayPut refuses a group that would take in or let free somebody unawares.
func (t *tx) mayPut(n access.NewGroup, carriers int) error {
	before, err := doc[access.Group](t.row, selectGroup, n.Name, "group")
	if err != nil && !errors.Is(err, toolcrib.ErrNotFound) {
		return err
	}
	if err := n.Conflict(before, carriers); err != nil || !n.FreesAgents(before) {
		return err
	}
	names, err := t.namingAgents()
	if err != nil {
		return err
	}
	members, err := docsOf[access.User](t.ctx, t.w.conn, "SELECT doc FROM users WHERE "+carrying, n.Name)
	if err != nil {
		return err
	}
	return n.CheckMembers(members, names)
}

// namingAgents tells which groups name agents.
func (t *tx) namingAgents() (func(group string) bool, error) {
	groups, err := docsOf[access.Group](t.ctx, t.w.conn, "SELECT doc FROM user_groups")
	naming := map[string]bool{}
	for _, g := range groups {
		naming[g.Name] = g.NamesAgents()
	}
	return func(group string) bool { return naming[group] }, err
}

// Groups implements [access.Groups].
func (a *Access) Groups(ctx context.Context) ([]access.Group, error) {
	return docs[access.Group](ctx, a.s, "SELECT doc FROM user_groups ORDER BY name LIMIT ?", access.MaxGroups)
}

// RemoveGroup implements [access.Groups].
func (a *Access) RemoveGroup(ctx context.Context, name, by string) (access.Change, error) {
	return a.change(ctx, by, func(t *tx, c *access.Change) error {
		g, err := doc[access.Group](t.row, selectGroup, name, "group")
		if err != nil {
			return err
		}
		if c.Carriers, err = t.carriers(name); err != nil {
			return err
		}
		if err := g.CheckRemove(c.Carriers); err != nil {
			return err
		}
		if _, err := t.exec("DELETE FROM user_groups WHERE name = ?", name); err != nil {
			return err
		}
		c.Name = name
		return t.accessChanged(access.GroupRemoved, c, nil)
	})
}

// PasswordHash implements [access.Passwords].
func (a *Access) PasswordHash(ctx context.Context, name string) (string, error) {
	if _, err := a.User(ctx, name); err != nil {
		return "", err
	}
	var hash string
	err := a.s.readers.row(ctx, "SELECT hash FROM passwords WHERE user = ?", []any{name}, &hash)
	if errors.Is(err, sql.ErrNoRows) {
		return "", refused(toolcrib.CodeNotFound, "%s has no password", name)
	}
	return hash, a.failed(ctx, err)
}

// maxHashBytes bounds the hash of a password.
const maxHashBytes = 256

// SetPasswordHash implements [access.Passwords].
func (a *Access) SetPasswordHash(ctx context.Context, name, hash, by string) (access.Change, error) {
	if hash != "" && (len(hash) > maxHashBytes || !strings.HasPrefix(hash, "$argon2id$v=") || strings.Count(hash, "$") != 5) {
		return access.Change{}, refused(toolcrib.CodeBadRequest, "this is no hash of a password")
	}
	return a.change(ctx, by, func(t *tx, c *access.Change) error {
		if _, err := doc[access.User](t.row, selectUser, name, "user"); err != nil {
			return err
		}
		var err error
		if hash == "" {
			_, err = t.exec("DELETE FROM passwords WHERE user = ?", name)
		} else {
			_, err = t.exec("INSERT OR REPLACE INTO passwords (user, hash) VALUES (?,?)", name, hash)
		}
		if err != nil {
			return err
		}
		c.Name, c.Kind = name, access.PasswordSet
		return t.accessChanged(access.PasswordSet, c, passwordChange{Change: *c, Digest: store.PasswordDigest(hash)})
	})
}
