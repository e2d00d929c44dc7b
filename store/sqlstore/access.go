package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/store"
)

// Access stores users, groups and tokens, and counts the calls of tokens. Every change is a barrier and
// an event of the system journal, from which the documents are derived.
type Access struct{ s *Store }

// Access returns the users, groups and tokens of the database.
func (s *Store) Access() store.People { return &Access{s: s} }

// Version implements [store.People].
func (a *Access) Version(ctx context.Context, age time.Duration) (uint64, error) {
	return a.s.version(ctx, store.SealedAccess, age)
}

func (a *Access) sealed() Reader { return sealed{a.s, store.SealedAccess} }

func refused(code toolcrib.Code, format string, args ...any) *toolcrib.Error {
	return &toolcrib.Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// change makes one change. do fills in the change and its kind; without a kind, nothing is stored.
func (a *Access) change(
	ctx context.Context, by string, do func(t *tx, c *access.Change) error,
) (c access.Change, err error) {
	if err := access.CheckBy(by); err != nil {
		return c, err
	}
	at := wholeMicro(a.s.now())
	err = a.s.change(ctx, store.SealedAccess, func(t *tx) error {
		c = access.Change{By: by, At: at}
		err := do(t, &c)
		var no *toolcrib.Error
		if errors.As(err, &no) {
			return reject(err)
		}
		return err
	})
	if err != nil {
		return access.Change{}, err
	}
	return c, nil
}

// keep stores a change.
func (t *tx) keep(c *access.Change, kind toolcrib.Kind, name string) error {
	c.Kind, c.Name = kind, name
	return t.appendSystem(c.At, kind, c)
}

// Conditions for the documents of users, groups and tokens; their argument is a name or an ID.
const (
	userNamed  = "kind = 'user' AND id = ? AND gone = 0"
	userAlike  = "kind = 'user' AND (folded = ? AND folded <> '' OR look = ? AND look <> '') ORDER BY id <> ? LIMIT 1"
	groupNamed = "kind = 'group' AND id = ?"
	groupAlike = "kind = 'group' AND (folded = ? AND folded <> '' OR look = ? AND look <> '') ORDER BY id <> ? LIMIT 1"
	allGroups  = "kind = 'group' ORDER BY id"
	tokenOfID  = "kind = 'token' AND id = ?"
)

// found reads one document. If it does not exist, the error is not_found and names what.
func found[T any](ctx context.Context, r Reader, where, key, what string) (v T, err error) {
	list, err := docs[T](ctx, r, where, key)
	if err == nil && len(list) == 0 {
		err = refused(toolcrib.CodeNotFound, "there is no %s %+q", what, guard.Clip(key, 128))
	}
	if err != nil {
		return v, err
	}
	return list[0], nil
}

// alike reads the document whose name looks the same to people; the list is empty if there is no such
// document.
func alike[T any](ctx context.Context, r Reader, where, name string) ([]T, error) {
	keys := access.KeysOf(name)
	return docs[T](ctx, r, where, keys.Folded, keys.Look, name)
}

// members reads the users in a group.
func (t *tx) members(group string) ([]access.User, error) {
	all, err := docs[access.User](t.ctx, t.w.db, "kind = 'user' AND gone = 0 AND doc LIKE ? ORDER BY id", `%"`+group+`"%`)
	return slices.DeleteFunc(all, func(u access.User) bool { return !slices.Contains(u.Groups, group) }), err
}

// AddUser implements [access.Users].
func (a *Access) AddUser(ctx context.Context, n access.NewUser, by string) (access.Change, error) {
	u, err := n.Check()
	if err != nil {
		return access.Change{}, err
	}
	return a.change(ctx, by, func(t *tx, c *access.Change) error {
		same, err := alike[access.User](t.ctx, t.w.db, userAlike, u.Name)
		switch {
		case err != nil:
			return err
		case len(same) == 0 || same[0].Removed && n.Reuse && same[0].Name == u.Name:
		case same[0].Removed:
			return access.RemovedName(u.Name, same[0].Name)
		default:
			return access.TakenBy(u.Name, same[0].Name)
		}
		if err := t.knownGroups(u.Groups); err != nil {
			return err
		}
		u.Removed = false
		u.Created, u.CreatedBy, u.Changed, u.ChangedBy = c.At, by, c.At, by
		c.User = &u
		return t.keep(c, access.UserAdded, u.Name)
	})
}

// knownGroups rejects groups that do not exist.
func (t *tx) knownGroups(groups []string) error {
	for _, name := range groups {
		_, err := found[access.Group](t.ctx, t.w.db, groupNamed, name, "group")
		if errors.Is(err, toolcrib.ErrNotFound) {
			return refused(toolcrib.CodeNotFound, "there is no group %s; make it first", name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// User implements [access.Users].
func (a *Access) User(ctx context.Context, name string) (access.User, error) {
	return found[access.User](ctx, a.sealed(), userNamed, name, "user")
}

// Alike implements [access.Users].
func (a *Access) Alike(ctx context.Context, name string) (access.User, error) {
	same, err := alike[access.User](ctx, a.sealed(), userAlike, name)
	if err != nil || len(same) > 0 {
		return append(same, access.User{})[0], err
	}
	return a.User(ctx, name) // not found: the same error
}

// Latest returns the time of the last entry of the system journal, or the zero time if it has none. A
// clock that shows an earlier time was set back (access.NewClock).
func (a *Access) Latest(ctx context.Context) (time.Time, error) {
	var at int64
	err := One(ctx, reading{a.s}, "SELECT time FROM system_events ORDER BY seq DESC LIMIT 1", nil, &at)
	if errors.Is(err, sql.ErrNoRows) {
		return time.Time{}, nil
	}
	return store.Micro(at), err
}

// Users implements [access.Users].
func (a *Access) Users(ctx context.Context, after string, limit int) ([]access.User, error) {
	const page = "kind = 'user' AND id > ? AND gone = 0 ORDER BY id LIMIT ?"
	return docs[access.User](ctx, a.sealed(), page, after, access.PageLimit(limit))
}

// EditUser implements [access.Users].
func (a *Access) EditUser(ctx context.Context, name string, e access.Edit, by string) (access.Change, error) {
	return a.change(ctx, by, func(t *tx, c *access.Change) error {
		before, err := found[access.User](t.ctx, t.w.db, userNamed, name, "user")
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
		if !e.AllAgents {
			groups, err := docs[access.Group](t.ctx, t.w.db, allGroups)
			if err == nil {
				err = access.CheckAgents(before, u, groups, groups)
			}
			if err != nil {
				return err
			}
		}
		u.Changed, u.ChangedBy = c.At, by
		c.User = &u
		return t.keep(c, access.UserChanged, name)
	})
}

// RemoveUser implements [access.Users].
func (a *Access) RemoveUser(ctx context.Context, name, by string) (access.Change, error) {
	return a.change(ctx, by, func(t *tx, c *access.Change) error {
		u, err := found[access.User](t.ctx, t.w.db, userNamed, name, "user")
		if err != nil {
			return err
		}
		open, err := docs[access.Issued](t.ctx, t.w.db, "kind = 'token' AND user = ? AND gone = 0 ORDER BY id", name)
		for i := 0; err == nil && i < len(open); i++ {
			err = t.revoke(open[i], &access.Change{By: by, At: c.At})
		}
		if err != nil {
			return err
		}
		u.Removed, u.Changed, u.ChangedBy = true, c.At, by
		c.User = &u
		return t.keep(c, access.UserRemoved, name)
	})
}

// PutGroup implements [access.Groups].
func (a *Access) PutGroup(ctx context.Context, name string, e access.GroupEdit, by string) (access.Change, error) {
	if _, err := e.Apply(access.Group{Name: name}); err != nil {
		return access.Change{}, err
	}
	return a.change(ctx, by, func(t *tx, c *access.Change) error {
		same, err := alike[access.Group](t.ctx, t.w.db, groupAlike, name)
		if err != nil {
			return err
		}
		if len(same) > 0 && same[0].Name != name {
			return access.TakenBy(name, same[0].Name)
		}
		groups, err := docs[access.Group](t.ctx, t.w.db, allGroups)
		if err != nil {
			return err
		}
		if c.New = len(same) == 0; c.New && len(groups) >= access.MaxGroups {
			return refused(toolcrib.CodeCapacityExceeded, "there are %d groups, and no room for more", access.MaxGroups)
		}
		g, err := e.Apply(append(same, access.Group{Name: name})[0])
		if err != nil {
			return err
		}
		members, err := t.members(name)
		if err != nil {
			return err
		}
		if c.Members = len(members); !e.AllAgents {
			for _, u := range members {
				if err := access.CheckAgents(u, u, groups, append([]access.Group{g}, groups...)); err != nil {
					return err
				}
			}
		}
		g.Changed, g.ChangedBy = c.At, by
		c.Group = &g
		return t.keep(c, access.GroupPut, name)
	})
}

// Groups implements [access.Groups].
func (a *Access) Groups(ctx context.Context) ([]access.Group, error) {
	return docs[access.Group](ctx, a.sealed(), allGroups+" LIMIT ?", access.MaxGroups)
}

// RemoveGroup implements [access.Groups].
func (a *Access) RemoveGroup(ctx context.Context, name, by string) (access.Change, error) {
	return a.change(ctx, by, func(t *tx, c *access.Change) error {
		g, err := found[access.Group](t.ctx, t.w.db, groupNamed, name, "group")
		if err != nil {
			return err
		}
		members, err := t.members(name)
		if err != nil {
			return err
		}
		if c.Members = len(members); c.Members > 0 {
			return refused(toolcrib.CodeConflict, "%s has %s, who could do more without it; take them out first, or disable the group",
				name, guard.Count(c.Members, "member"))
		}
		err = t.keep(c, access.GroupRemoved, name)
		c.Group = &g // only for the caller
		return err
	})
}

// AddToken implements [access.Tokens].
func (a *Access) AddToken(ctx context.Context, i access.Issued, by string) (access.Change, error) {
	if err := i.Check(); err != nil {
		return access.Change{}, err
	}
	return a.change(ctx, by, func(t *tx, c *access.Change) error {
		id := i.Claims.ID
		same, err := docs[access.Issued](t.ctx, t.w.db, tokenOfID, id)
		if err != nil {
			return err
		}
		if len(same) > 0 {
			return refused(toolcrib.CodeConflict, "there is a token %s already", id)
		}
		i.IssuedBy, i.Revoked, i.RevokedBy = by, time.Time{}, ""
		c.Token = &i
		return t.keep(c, access.TokenIssued, id)
	})
}

// Token implements [access.Tokens].
func (a *Access) Token(ctx context.Context, id string) (access.Issued, error) {
	return found[access.Issued](ctx, a.sealed(), tokenOfID, id, "token")
}

// Tokens implements [access.Tokens].
func (a *Access) Tokens(ctx context.Context, user, after string, limit int) ([]access.Issued, error) {
	if user == "" {
		return docs[access.Issued](ctx, a.sealed(), "kind = 'token' AND id > ? ORDER BY id LIMIT ?", after, access.PageLimit(limit))
	}
	const page = "kind = 'token' AND user = ? AND id > ? ORDER BY id LIMIT ?"
	return docs[access.Issued](ctx, a.sealed(), page, user, after, access.PageLimit(limit))
}

// RevokeToken implements [access.Tokens].
func (a *Access) RevokeToken(ctx context.Context, id, by string) (access.Change, error) {
	return a.change(ctx, by, func(t *tx, c *access.Change) error {
		i, err := found[access.Issued](t.ctx, t.w.db, tokenOfID, id, "token")
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

// RemoveToken implements [access.Tokens].
func (a *Access) RemoveToken(ctx context.Context, id, by string) (access.Change, error) {
	return a.change(ctx, by, func(t *tx, c *access.Change) error {
		i, err := found[access.Issued](t.ctx, t.w.db, tokenOfID, id, "token")
		if err != nil {
			return err
		}
		c.Token = &i
		return t.keep(c, access.TokenRemoved, id)
	})
}

func (t *tx) revoke(i access.Issued, c *access.Change) error {
	i.Revoked, i.RevokedBy = c.At, c.By
	c.Token = &i
	return t.keep(c, access.TokenRevoked, i.Claims.ID)
}

// countsKept is how long the times of the last calls of a token are kept after it has expired. They are
// needed again if a clock is set back. The total number of calls is kept forever, like the token: a
// clock that was ahead for a moment must not restore calls that were used.
const countsKept = 90 * 24 * time.Hour

// Take implements [access.Quota]. It is not a barrier: after a loss of power, the last calls may not be
// counted.
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
		err = t.later("UPDATE token_calls SET calls = calls + 1 WHERE token = ?", token)
		return err
	}
	expires := int64(0)
	if !l.Expires.IsZero() {
		expires = max(l.Expires.Unix(), 1)
	}
	for _, query := range []string{
		"DELETE FROM token_minute WHERE token IN (SELECT token FROM token_calls WHERE expires BETWEEN 1 AND ?)",
		"UPDATE token_calls SET expires = 0 WHERE expires BETWEEN 1 AND ?", // so that they are not visited again
	} {
		if err := t.later(query, at.Add(-countsKept).Unix()); err != nil {
			return err
		}
	}
	err = t.later("INSERT INTO token_calls (token, calls, expires) VALUES (?,1,?)", token, expires)
	return err
}

// Left implements [access.Quota].
func (a *Access) Left(ctx context.Context, token string, l access.Limits, at time.Time) (access.Left, error) {
	if err := access.CheckTake(token, l, at); err != nil {
		return access.Left{}, err
	}
	left, err := minuteLeft(ctx, reading{a.s}, text(token), l, at)
	if err != nil {
		return access.Left{}, err
	}
	var calls int64
	err = One(ctx, reading{a.s}, "SELECT calls FROM token_calls WHERE token = ?", []any{text(token)}, &calls)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return access.Left{}, err
	}
	left.Total = max(0, l.Total-calls)
	return left, nil
}

// minuteLeft counts the calls of the last minute. Calls are numbered and their times never decrease, so
// the call that is a whole limit before the next one determines when the next is permitted.
func minuteLeft(ctx context.Context, r Reader, token any, l access.Limits, at time.Time) (access.Left, error) {
	left := access.Left{Limits: l, Minute: l.PerMinute}
	if l.PerMinute == 0 {
		return left, nil
	}
	var counted, then int64
	err := One(ctx, r, `SELECT count(*), coalesce(max(CASE n WHEN last - ?2 + 1 THEN at END), 0)
		FROM token_minute, (SELECT max(n) AS last, max(at) AS latest FROM token_minute WHERE token = ?1) AS calls
		WHERE token = ?1 AND at > CASE WHEN ?3 > latest THEN ?3 ELSE latest END - ?4 AND n > last - ?2`,
		[]any{token, l.PerMinute, at.UnixNano(), access.Minute.Nanoseconds()}, &counted, &then)
	if left.Minute = l.PerMinute - counted; left.Minute == 0 {
		left.RetryAfter = time.Duration(then + access.Minute.Nanoseconds() - at.UnixNano())
	}
	return left, err
}

// takeMinute counts a call of the last minute. Calls are numbered and their times never decrease, so
// the call that is a whole limit before this one determines whether it is permitted.
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
	open := now - access.Minute.Nanoseconds() // calls up to this time have expired
	err = t.row("SELECT at FROM token_minute WHERE token = ? AND n = ?", []any{token, last - limit + 1}, &then)
	switch {
	case errors.Is(err, sql.ErrNoRows):
	case err != nil:
		return err
	case then > open:
		return reject(&access.QuotaError{
			Bucket: access.BucketMinute, Limit: limit,
			RetryAfter: time.Duration(then + access.Minute.Nanoseconds() - at.UnixNano()),
		})
	}
	// Each call deletes at most two others, so that no call takes long.
	err = t.later(`DELETE FROM token_minute WHERE token = ?1 AND at <= ?2
		AND n IN (SELECT n FROM token_minute WHERE token = ?1 ORDER BY n LIMIT 2)`, token, open)
	if err != nil {
		return err
	}
	err = t.later("INSERT INTO token_minute (token, n, at) VALUES (?,?,?)", token, last+1, now)
	return err
}
