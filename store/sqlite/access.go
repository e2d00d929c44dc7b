package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/store"
)

// Access keeps users, groups, passwords and tokens, and counts the calls of tokens.
// Every change is a barrier and stands in the system journal, from which VerifySystem
// compares what is kept.
type Access struct{ s *Store }

// Access returns the users, groups and tokens of the database.
func (s *Store) Access() store.People { return &Access{s: s} }

// Version returns a number that rises with every change of users, groups, passwords and
// tokens, whichever process makes it. It reads one row.
func (a *Access) Version(ctx context.Context) (uint64, error) {
	return a.s.version(ctx, store.SealedAccess)
}

func refused(code toolcrib.Code, format string, args ...any) *toolcrib.Error {
	return &toolcrib.Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// change makes one change; do fills it in and stores it.
func (a *Access) change(ctx context.Context, by string, do func(t *tx, c *access.Change) error) (c access.Change, err error) {
	if err := access.CheckBy(by); err != nil {
		return c, err
	}
	at := wholeMicro(a.s.now())
	err = a.s.write(ctx, &job{barrier: true, do: func(t *tx) error {
		c = access.Change{By: by, At: at}
		err := do(t, &c)
		var no *toolcrib.Error
		if errors.As(err, &no) {
			return reject(err)
		}
		return err
	}})
	a.s.accessChanges.Add(1) // whatever is told: an error does not prove that nothing was stored
	if err != nil {
		return access.Change{}, err
	}
	return c, nil
}

// OwnChanges counts the changes of users, groups, passwords and tokens that were made
// with this store, and those that were tried. It reads nothing.
func (a *Access) OwnChanges() uint64 { return a.s.accessChanges.Load() }

// passwordChange is the payload of access.PasswordSet: with the SHA-256 (hex) of the
// hash of the password, so that another one in its place is found; "" = it has none.
type passwordChange struct {
	access.Change
	Digest string `json:"digest"`
}

// accessChanged counts a change and puts it into the system journal.
func (t *tx) accessChanged(kind toolcrib.Kind, c *access.Change, payload any) error {
	c.Kind = kind
	if payload == nil {
		payload = c
	}
	return t.changed(store.SealedAccess, c.At, kind, payload)
}

// AddUser implements [access.Users].
func (a *Access) AddUser(ctx context.Context, n access.NewUser, by string) (access.Change, error) {
	u, err := n.Check()
	if err != nil {
		return access.Change{}, err
	}
	return a.change(ctx, by, func(t *tx, c *access.Change) error {
		var name string
		var removed bool
		keys := access.KeysOf(u.Name)
		err := t.row("SELECT name, removed FROM users WHERE folded = ? OR look = ? ORDER BY name <> ? LIMIT 1", []any{keys.Folded, keys.Look, u.Name}, &name, &removed)
		switch {
		case errors.Is(err, sql.ErrNoRows):
		case err != nil:
			return err
		case removed && n.Reuse && name == u.Name:
		case removed:
			return access.RemovedName(u.Name, name)
		default:
			return access.TakenBy(u.Name, name)
		}
		if err := t.knownGroups(u.Groups); err != nil {
			return err
		}
		u.Removed = false
		u.Created, u.CreatedBy, u.Changed, u.ChangedBy = c.At, by, c.At, by
		return t.putUser(u, access.UserAdded, c)
	})
}

// putUser keeps a user as it is now.
func (t *tx) putUser(u access.User, kind toolcrib.Kind, c *access.Change) error {
	doc, err := store.EncodeJSON(u)
	if err != nil {
		return err
	}
	keys := access.KeysOf(u.Name)
	_, err = t.exec(`INSERT INTO users (name, folded, look, removed, doc) VALUES (?,?,?,?,?)
		ON CONFLICT (name) DO UPDATE SET removed = excluded.removed, doc = excluded.doc`, u.Name, keys.Folded, keys.Look, u.Removed, string(doc))
	if err != nil {
		return err
	}
	c.Name, c.User = u.Name, &u
	return t.accessChanged(kind, c, nil)
}

// knownGroups refuses groups that there are not.
func (t *tx) knownGroups(groups []string) error {
	for _, name := range groups {
		var n int
		if err := t.row("SELECT count(*) FROM user_groups WHERE name = ?", []any{name}, &n); err != nil {
			return err
		}
		if n == 0 {
			return refused(toolcrib.CodeNotFound, "there is no group %s; make it first", name)
		}
	}
	return nil
}

const selectUser = "SELECT doc FROM users WHERE name = ? AND removed = 0"

// rowFunc reads one row.
type rowFunc func(query string, args []any, dest ...any) error

// doc reads one document; not_found as what says.
func doc[T any](row rowFunc, query, key, what string) (v T, err error) {
	var raw json.RawMessage
	err = row(query, []any{key}, &raw)
	if errors.Is(err, sql.ErrNoRows) {
		return v, refused(toolcrib.CodeNotFound, "there is no %s %+q", what, clipped(key))
	}
	if err != nil {
		return v, err
	}
	return v, decodeDoc(raw, &v)
}

// decodeDoc reads a document of users, groups and tokens. Numbers stay as they are
// written: the scope of a token names values of parameters, and 9007199254740993 is
// another one than what a float makes of it.
func decodeDoc(raw json.RawMessage, v any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	return nil
}

func clipped(s string) string {
	const most = 128
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// reader reads outside of a transaction.
func (s *Store) reader(ctx context.Context) rowFunc {
	return func(query string, args []any, dest ...any) error {
		return s.readers.row(ctx, query, args, dest...)
	}
}

// failed is an error of reading as callers see it; one of access stays as it is.
func (a *Access) failed(ctx context.Context, err error) error {
	var no *toolcrib.Error
	if err == nil || errors.As(err, &no) {
		return err
	}
	return a.s.failed(ctx, err)
}

// User implements [access.Users].
func (a *Access) User(ctx context.Context, name string) (access.User, error) {
	u, err := doc[access.User](a.s.reader(ctx), selectUser, name, "user")
	return u, a.failed(ctx, err)
}

// Alike implements [access.Users].
func (a *Access) Alike(ctx context.Context, name string) (u access.User, err error) {
	keys := access.KeysOf(name)
	var raw json.RawMessage
	err = a.s.readers.row(ctx, "SELECT doc FROM users WHERE folded = ? OR look = ? ORDER BY name <> ? LIMIT 1", []any{keys.Folded, keys.Look, name}, &raw)
	if errors.Is(err, sql.ErrNoRows) {
		return u, refused(toolcrib.CodeNotFound, "there is no user %+q", clipped(name))
	}
	if err == nil {
		err = decodeDoc(raw, &u)
	}
	return u, a.failed(ctx, err)
}

// Latest returns the time of the last entry of the system journal; zero without one. A
// clock that stands before it was set back (access.NewClock).
func (a *Access) Latest(ctx context.Context) (time.Time, error) {
	var at int64
	err := a.s.readers.row(ctx, "SELECT time FROM system_events ORDER BY seq DESC LIMIT 1", nil, &at)
	if errors.Is(err, sql.ErrNoRows) {
		return time.Time{}, nil
	}
	return fromMicro(at), a.failed(ctx, err)
}

// docs reads a page of documents.
func docs[T any](ctx context.Context, s *Store, query string, args ...any) ([]T, error) {
	list, err := docsOf[T](ctx, s.readers, query, args...)
	if err != nil {
		return nil, s.failed(ctx, err)
	}
	return list, nil
}

func docsOf[T any](ctx context.Context, r reader, query string, args ...any) (list []T, err error) {
	err = r.each(ctx, query, args, func(scan scanFunc) error {
		var raw json.RawMessage
		var v T
		if err := scan(&raw); err != nil {
			return err
		}
		err := decodeDoc(raw, &v)
		list = append(list, v)
		return err
	})
	return list, err
}

// Users implements [access.Users].
func (a *Access) Users(ctx context.Context, after string, limit int) ([]access.User, error) {
	return docs[access.User](ctx, a.s, "SELECT doc FROM users WHERE name > ? AND removed = 0 ORDER BY name LIMIT ?", after, access.PageLimit(limit))
}

// EditUser implements [access.Users].
func (a *Access) EditUser(ctx context.Context, name string, e access.Edit, by string) (access.Change, error) {
	return a.change(ctx, by, func(t *tx, c *access.Change) error {
		before, err := doc[access.User](t.row, selectUser, name, "user")
		if err != nil {
			return err
		}
		u, err := e.Apply(before)
		if err != nil {
			return err
		}
		if e.Groups != nil {
			if err := t.knownGroups(u.Groups); err != nil {
				return err
			}
		}
		if e.Grants != nil || e.Groups != nil {
			names, err := t.namingAgents()
			if err != nil {
				return err
			}
			if err := e.Conflict(before, u, names); err != nil {
				return err
			}
		}
		u.Changed, u.ChangedBy = c.At, by
		return t.putUser(u, access.UserChanged, c)
	})
}

// RemoveUser implements [access.Users].
func (a *Access) RemoveUser(ctx context.Context, name, by string) (access.Change, error) {
	return a.change(ctx, by, func(t *tx, c *access.Change) error {
		u, err := doc[access.User](t.row, selectUser, name, "user")
		if err != nil {
			return err
		}
		if _, err := t.exec("DELETE FROM passwords WHERE user = ?", name); err != nil {
			return err
		}
		open, err := docsOf[access.Issued](t.ctx, t.w.conn, "SELECT doc FROM tokens WHERE user = ? AND revoked = 0 ORDER BY id", name)
		for i := 0; err == nil && i < len(open); i++ {
			err = t.revoke(open[i], &access.Change{By: by, At: c.At})
		}
		if err != nil {
			return err
		}
		u.Removed, u.Changed, u.ChangedBy = true, c.At, by
		return t.putUser(u, access.UserRemoved, c)
	})
}
