package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/toolcrib/toolcrib/access"
)

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
	left, err := minuteLeft(ctx, a.s.readers, text(token), l, at)
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

// minuteLeft counts the calls of the last minute. Calls are numbered, and their times never
// go back, so the call that is as many before the next as the limit says when a place is free.
func minuteLeft(ctx context.Context, r reader, token any, l access.Limits, at time.Time) (access.Left, error) {
	left := access.Left{Limits: l, Minute: l.PerMinute}
	if l.PerMinute == 0 {
		return left, nil
	}
	var counted, then int64
	err := r.row(ctx, `SELECT count(*), ifnull(max(CASE n WHEN last - ?2 + 1 THEN at END), 0)
		FROM token_minute, (SELECT max(n) AS last, max(at) AS latest FROM token_minute WHERE token = ?1)
		WHERE token = ?1 AND at > max(?3, latest) - ?4 AND n > last - ?2`,
		[]any{token, l.PerMinute, at.UnixNano(), access.Minute.Nanoseconds()}, &counted, &then)
	if left.Minute = l.PerMinute - counted; left.Minute == 0 {
		left.RetryAfter = time.Duration(then + access.Minute.Nanoseconds() - at.UnixNano())
	}
	return left, err
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
		return reject(&access.QuotaError{
			Bucket: access.BucketMinute, Limit: limit,
			RetryAfter: time.Duration(then + access.Minute.Nanoseconds() - at.UnixNano()),
		})
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
