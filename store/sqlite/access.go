package sqlite

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
)

// Access keeps users, groups, passwords and tokens, and counts the calls of tokens.
// Every change is a barrier and stands in the system journal, from which VerifySystem
// compares what is kept.
type Access struct{ s *Store }

var (
	_ access.Directory = (*Access)(nil)
	_ access.Tokens    = (*Access)(nil)
	_ access.Quota     = (*Access)(nil)
)

// Access returns the users, groups and tokens of the database.
func (s *Store) Access() *Access { return &Access{s: s} }

// Version returns a number that rises with every change of users, groups, passwords and
// tokens, whichever process makes it. It reads one row.
func (a *Access) Version(ctx context.Context) (uint64, error) {
	return a.s.counter(ctx, "access")
}

// counter returns the value of a counter.
func (s *Store) counter(ctx context.Context, name string) (uint64, error) {
	var v uint64
	if err := s.readers.QueryRowContext(ctx, "SELECT value FROM counters WHERE name = ?", name).Scan(&v); err != nil {
		return 0, s.failed(ctx, err)
	}
	return v, nil
}

func refused(code access.Code, format string, args ...any) *access.Error {
	return &access.Error{Code: code, Message: fmt.Sprintf(format, args...)}
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
		var no *access.Error
		if errors.As(err, &no) {
			return reject(err)
		}
		return err
	}})
	if err != nil {
		return access.Change{}, err
	}
	return c, nil
}

// passwordChange is the payload of access.PasswordSet: with the SHA-256 (hex) of the
// hash of the password, so that another one in its place is found; "" = it has none.
type passwordChange struct {
	access.Change
	Digest string `json:"digest"`
}

func digestOf(hash string) string {
	if hash == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(hash))
	return hex.EncodeToString(sum[:])
}

// accessChanged counts a change and puts it into the system journal.
func (t *tx) accessChanged(kind toolcrib.Kind, c *access.Change, payload any) error {
	c.Kind = kind
	if _, err := t.exec("UPDATE counters SET value = value + 1 WHERE name = 'access'"); err != nil {
		return err
	}
	if payload == nil {
		payload = c
	}
	return t.appendSystem(c.At, kind, payload)
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
	doc, err := encodeJSON(u)
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
			return refused(access.CodeNotFound, "there is no group %s; make it first", name)
		}
	}
	return nil
}

const selectUser = "SELECT doc FROM users WHERE name = ? AND removed = 0"

// rowFunc reads one row.
type rowFunc func(query string, args []any, dest ...any) error

// doc reads one document; not_found as what says.
func doc[T any](row rowFunc, query, key, what string) (v T, err error) {
	var raw []byte
	err = row(query, []any{key}, &raw)
	if errors.Is(err, sql.ErrNoRows) {
		return v, refused(access.CodeNotFound, "there is no %s %+q", what, clipped(key))
	}
	if err != nil {
		return v, err
	}
	return v, decodeJSON(raw, &v)
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
		return s.readers.QueryRowContext(ctx, query, args...).Scan(dest...)
	}
}

// failed is an error of reading as callers see it; one of access stays as it is.
func (a *Access) failed(ctx context.Context, err error) error {
	var no *access.Error
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

// docs reads a page of documents.
func docs[T any](ctx context.Context, s *Store, query string, args ...any) (list []T, err error) {
	err = each(ctx, s.readers.QueryContext, query, args, func(scan func(...any) error) error {
		var raw []byte
		var v T
		if err := scan(&raw); err != nil {
			return err
		}
		err := decodeJSON(raw, &v)
		list = append(list, v)
		return err
	})
	if err != nil {
		return nil, s.failed(ctx, err)
	}
	return list, nil
}

// Users implements [access.Users].
func (a *Access) Users(ctx context.Context, after string, limit int) ([]access.User, error) {
	return docs[access.User](ctx, a.s, "SELECT doc FROM users WHERE name > ? AND removed = 0 ORDER BY name LIMIT ?", after, access.PageLimit(limit))
}

// EditUser implements [access.Users].
func (a *Access) EditUser(ctx context.Context, name string, e access.Edit, by string) (access.Change, error) {
	return a.change(ctx, by, func(t *tx, c *access.Change) error {
		u, err := doc[access.User](t.row, selectUser, name, "user")
		if err != nil {
			return err
		}
		if u, err = e.Apply(u); err != nil {
			return err
		}
		if e.Groups != nil {
			if err := t.knownGroups(u.Groups); err != nil {
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
		var open []access.Issued
		err = each(t.ctx, t.query, "SELECT doc FROM tokens WHERE user = ? AND revoked = 0 ORDER BY id", []any{name}, func(scan func(...any) error) error {
			var raw []byte
			var i access.Issued
			if err := scan(&raw); err != nil {
				return err
			}
			err := decodeJSON(raw, &i)
			open = append(open, i)
			return err
		})
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

// PutGroup implements [access.Groups].
func (a *Access) PutGroup(ctx context.Context, g access.Group, by string) (access.Change, error) {
	g, err := g.Check()
	if err != nil {
		return access.Change{}, err
	}
	return a.change(ctx, by, func(t *tx, c *access.Change) error {
		if err := t.roomForGroup(g.Name); err != nil {
			return err
		}
		g.Changed, g.ChangedBy = c.At, by
		raw, err := encodeJSON(g)
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
		return refused(access.CodeCapacityExceeded, "there are %d groups, and no room for more", access.MaxGroups)
	}
	return nil
}

// Groups implements [access.Groups].
func (a *Access) Groups(ctx context.Context) ([]access.Group, error) {
	return docs[access.Group](ctx, a.s, "SELECT doc FROM user_groups ORDER BY name LIMIT ?", access.MaxGroups)
}

// RemoveGroup implements [access.Groups].
func (a *Access) RemoveGroup(ctx context.Context, name, by string) (access.Change, error) {
	return a.change(ctx, by, func(t *tx, c *access.Change) error {
		removed, err := movedOne(t.exec("DELETE FROM user_groups WHERE name = ?", name))
		if err != nil {
			return err
		}
		if !removed {
			return refused(access.CodeNotFound, "there is no group %+q", clipped(name))
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
	err := a.s.readers.QueryRowContext(ctx, "SELECT hash FROM passwords WHERE user = ?", name).Scan(&hash)
	if errors.Is(err, sql.ErrNoRows) {
		return "", refused(access.CodeNotFound, "%s has no password", name)
	}
	return hash, a.failed(ctx, err)
}

// maxHashBytes bounds the hash of a password.
const maxHashBytes = 256

// SetPasswordHash implements [access.Passwords].
func (a *Access) SetPasswordHash(ctx context.Context, name, hash, by string) (access.Change, error) {
	if hash != "" && (len(hash) > maxHashBytes || !strings.HasPrefix(hash, "$argon2id$v=") || strings.Count(hash, "$") != 5) {
		return access.Change{}, refused(access.CodeBadRequest, "this is no hash of a password")
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
		return t.accessChanged(access.PasswordSet, c, passwordChange{Change: *c, Digest: digestOf(hash)})
	})
}

// AddToken implements [access.Tokens].
func (a *Access) AddToken(ctx context.Context, i access.Issued, by string) (access.Change, error) {
	if err := i.Check(); err != nil {
		return access.Change{}, err
	}
	return a.change(ctx, by, func(t *tx, c *access.Change) error {
		id := i.Claims.ID
		var n int
		if err := t.row("SELECT count(*) FROM tokens WHERE id = ?", []any{id}, &n); err != nil {
			return err
		}
		if n > 0 {
			return refused(access.CodeConflict, "there is a token %s already", id)
		}
		i.IssuedBy, i.Revoked, i.RevokedBy = by, time.Time{}, ""
		return t.putToken(i, access.TokenIssued, c)
	})
}

func (t *tx) putToken(i access.Issued, kind toolcrib.Kind, c *access.Change) error {
	raw, err := encodeJSON(i)
	if err != nil {
		return err
	}
	_, err = t.exec(`INSERT INTO tokens (id, user, revoked, doc) VALUES (?,?,?,?)
		ON CONFLICT (id) DO UPDATE SET revoked = excluded.revoked, doc = excluded.doc`, i.Claims.ID, i.Claims.Subject, !i.Revoked.IsZero(), string(raw))
	if err != nil {
		return err
	}
	c.Name, c.Token = i.Claims.ID, &i
	return t.accessChanged(kind, c, nil)
}

const selectToken = "SELECT doc FROM tokens WHERE id = ?"

// Token implements [access.Tokens].
func (a *Access) Token(ctx context.Context, id string) (access.Issued, error) {
	i, err := doc[access.Issued](a.s.reader(ctx), selectToken, id, "token")
	return i, a.failed(ctx, err)
}

// Tokens implements [access.Tokens].
func (a *Access) Tokens(ctx context.Context, user, after string, limit int) ([]access.Issued, error) {
	if user == "" {
		return docs[access.Issued](ctx, a.s, "SELECT doc FROM tokens WHERE id > ? ORDER BY id LIMIT ?", after, access.PageLimit(limit))
	}
	return docs[access.Issued](ctx, a.s, "SELECT doc FROM tokens WHERE user = ? AND id > ? ORDER BY id LIMIT ?", user, after, access.PageLimit(limit))
}

// RevokeToken implements [access.Tokens].
func (a *Access) RevokeToken(ctx context.Context, id, by string) (access.Change, error) {
	return a.change(ctx, by, func(t *tx, c *access.Change) error {
		i, err := doc[access.Issued](t.row, selectToken, id, "token")
		if err != nil {
			return err
		}
		if !i.Revoked.IsZero() {
			*c = access.Change{Kind: access.TokenRevoked, Name: id, By: i.RevokedBy, At: i.Revoked, Token: &i}
			return nil
		}
		return t.revoke(i, c)
	})
}

func (t *tx) revoke(i access.Issued, c *access.Change) error {
	i.Revoked, i.RevokedBy = c.At, c.By
	return t.putToken(i, access.TokenRevoked, c)
}

// countsKept is how long the counts of a token are kept after it has expired, so that
// they are there again when a clock is set back.
const countsKept = 90 * 24 * time.Hour

// Take implements [access.Quota]. It is no barrier: after loss of power the last calls
// may not be counted.
func (a *Access) Take(ctx context.Context, token string, l access.Limits, at time.Time) error {
	if err := access.CheckTake(token, l, at); err != nil {
		return err
	}
	return a.s.write(ctx, &job{do: func(t *tx) error { return t.take(text(token), l, at) }})
}

func (t *tx) take(token string, l access.Limits, at time.Time) error {
	var calls int64
	err := t.row("SELECT calls FROM token_calls WHERE token = ?", []any{token}, &calls)
	first := errors.Is(err, sql.ErrNoRows)
	if err != nil && !first {
		return err
	}
	if l.Total > 0 && calls >= l.Total {
		return reject(&access.QuotaError{Bucket: access.BucketTotal, Limit: l.Total})
	}
	if l.PerMinute > 0 {
		if err := t.takeMinute(token, l.PerMinute, at); err != nil {
			return err
		}
	}
	if !first {
		_, err = t.exec("UPDATE token_calls SET calls = calls + 1 WHERE token = ?", token)
		return err
	}
	expires := int64(0)
	if !l.Expires.IsZero() {
		expires = max(l.Expires.Unix(), 1)
	}
	for _, query := range []string{
		"DELETE FROM token_minute WHERE token IN (SELECT token FROM token_calls WHERE expires BETWEEN 1 AND ?)",
		"DELETE FROM token_calls WHERE expires BETWEEN 1 AND ?",
	} {
		if _, err := t.exec(query, at.Add(-countsKept).Unix()); err != nil {
			return err
		}
	}
	_, err = t.exec("INSERT INTO token_calls (token, calls, expires) VALUES (?,1,?)", token, expires)
	return err
}

// takeMinute takes a place of the last minute. Calls are numbered, and their times never
// go back, so the call that is so many before this one tells whether there is one.
func (t *tx) takeMinute(token string, limit int64, at time.Time) error {
	var last, then int64
	err := t.row("SELECT n, at FROM token_minute WHERE token = ? ORDER BY n DESC LIMIT 1", []any{token}, &last, &then)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	now := max(at.UnixNano(), then)
	if last == 0 {
		now = at.UnixNano()
	}
	open := now - access.Minute.Nanoseconds() // what is not after this counts no more
	err = t.row("SELECT at FROM token_minute WHERE token = ? AND n = ?", []any{token, last - limit + 1}, &then)
	switch {
	case errors.Is(err, sql.ErrNoRows):
	case err != nil:
		return err
	case then > open:
		return reject(&access.QuotaError{Bucket: access.BucketMinute, Limit: limit, RetryAfter: time.Duration(then + access.Minute.Nanoseconds() - at.UnixNano())})
	}
	// Each call takes at most two others away, so that no call takes long.
	_, err = t.exec(`DELETE FROM token_minute WHERE token = ?1 AND at <= ?2
		AND n IN (SELECT n FROM token_minute WHERE token = ?1 ORDER BY n LIMIT 2)`, token, open)
	if err != nil {
		return err
	}
	_, err = t.exec("INSERT INTO token_minute (token, n, at) VALUES (?,?,?)", token, last+1, now)
	return err
}

// accessKind tells whether a kind of system event is a change of users, groups,
// passwords or tokens.
func accessKind(kind toolcrib.Kind) bool {
	switch kind {
	case access.UserAdded, access.UserChanged, access.UserRemoved, access.GroupPut, access.GroupRemoved,
		access.PasswordSet, access.TokenIssued, access.TokenRevoked:
		return true
	}
	return false
}
