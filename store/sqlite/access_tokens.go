package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/store"
)

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
			return refused(toolcrib.CodeConflict, "there is a token %s already", id)
		}
		i.IssuedBy, i.Revoked, i.RevokedBy = by, time.Time{}, ""
		return t.putToken(i, access.TokenIssued, c)
	})
}

func (t *tx) putToken(i access.Issued, kind toolcrib.Kind, c *access.Change) error {
	raw, err := store.EncodeJSON(i)
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

// countsKept is how long the times of the last calls of a token are kept after it has
// expired, so that they are there again when a clock is set back. How many calls there
// were in all stays for good, as the token does: a clock that was ahead for a moment
// must not give back what was used. (Earlier versions forgot that, too.)
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
		"UPDATE token_calls SET expires = 0 WHERE expires BETWEEN 1 AND ?", // so that nobody looks there again
	} {
		if _, err := t.exec(query, at.Add(-countsKept).Unix()); err != nil {
			return err
		}
	}
	_, err = t.exec("INSERT INTO token_calls (token, calls, expires) VALUES (?,1,?)", token, expires)
	return err
}

// Left implements [access.Quota].
func (a *Access) Left(ctx context.Context, token string, l access.Limits, at time.Time) (access.Left, error) {
	if err := access.CheckTake(token, l, at); err != nil {
		return access.Left{}, err
	}
	left, err := minuteLeft(a.s.reader(ctx), text(token), l, at)
	if err != nil {
		return access.Left{}, a.failed(ctx, err)
	}
	var calls int64
	err = a.s.readers.row(ctx, "SELECT calls FROM token_calls WHERE token = ?", []any{text(token)}, &calls)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return access.Left{}, a.failed(ctx, err)
	}
	left.Total = max(0, l.Total-calls)
	return left, nil
}

// minuteLeft looks for the first of the last calls that is within the minute: their
// numbers have no gaps, and their times never go back.
func minuteLeft(row rowFunc, token any, l access.Limits, at time.Time) (access.Left, error) {
	left := access.Left{Limits: l, Minute: l.PerMinute}
	if l.PerMinute == 0 {
		return left, nil
	}
	var last, then int64
	err := row("SELECT n, at FROM token_minute WHERE token = ? ORDER BY n DESC LIMIT 1", []any{token}, &last, &then)
	if errors.Is(err, sql.ErrNoRows) {
		return left, nil
	}
	if err != nil {
		return left, err
	}
	open := max(at.UnixNano(), then) - access.Minute.Nanoseconds()
	first, counted := last-l.PerMinute+1, int64(0) // counted: when the first of them was made
	for low, high := first, last+1; low < high; {
		middle := low + (high-low)/2
		err := row("SELECT at FROM token_minute WHERE token = ? AND n = ?", []any{token, middle}, &then)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return left, err
		}
		if err == nil && then > open {
			high, counted = middle, then
		} else {
			low = middle + 1
		}
		first = low
	}
	if left.Minute = first - 1 - (last - l.PerMinute); left.Minute == 0 {
		left.RetryAfter = time.Duration(counted + access.Minute.Nanoseconds() - at.UnixNano())
	}
	return left, nil
}

// takeMinute takes a place of the last minute. Calls are numbered, and their times never
// go back, so the call that is so many before this one reports whether there is one.
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
