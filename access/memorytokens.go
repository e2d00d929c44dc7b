package access

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/toolcrib/toolcrib"
)

// AddToken implements [Tokens].
func (m *Memory) AddToken(ctx context.Context, t Issued, by string) (Change, error) {
	if err := t.Check(); err != nil {
		return Change{}, err
	}
	at, unlock, err := m.begin(ctx, by)
	if err != nil {
		return Change{}, err
	}
	defer unlock()
	id := t.Claims.ID
	if _, ok := m.tokens[id]; ok {
		return Change{}, toolcrib.Errorf(toolcrib.CodeConflict, "there is a token %s already", id)
	}
	if len(m.tokens) >= maxMemory {
		return Change{}, toolcrib.Errorf(toolcrib.CodeCapacityExceeded, "there are %d tokens, and no room for more", maxMemory)
	}
	t.IssuedBy, t.Revoked, t.RevokedBy = by, time.Time{}, ""
	m.tokens[id] = t
	return m.kept(TokenIssued, id, by, at), nil
}

// Check says what is wrong with a token that is to be kept.
func (t Issued) Check() error {
	if problem := t.Claims.check(); problem != "" {
		return toolcrib.Errorf(toolcrib.CodeBadRequest, "the token cannot be kept: %s", problem)
	}
	if _, err := t.Claims.Scope.Check(); err != nil {
		return err
	}
	return checkText("the label of the token", t.Label)
}

// Token implements [Tokens].
func (m *Memory) Token(ctx context.Context, id string) (Issued, error) {
	if err := ctx.Err(); err != nil {
		return Issued{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	t, ok := m.tokens[id]
	if !ok {
		return Issued{}, noToken(id)
	}
	return t, nil
}

func noToken(id string) error {
	return toolcrib.Errorf(toolcrib.CodeNotFound, "there is no token %+q", clip(id))
}

// Tokens implements [Tokens].
func (m *Memory) Tokens(ctx context.Context, user, after string, limit int) ([]Issued, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Issued
	for _, id := range slices.Sorted(maps.Keys(m.tokens)) {
		t := m.tokens[id]
		if id > after && (user == "" || t.Claims.Subject == user) && len(out) < PageLimit(limit) {
			out = append(out, t)
		}
	}
	return out, nil
}

// RevokeToken implements [Tokens].
func (m *Memory) RevokeToken(ctx context.Context, id, by string) (Change, error) {
	at, unlock, err := m.begin(ctx, by)
	if err != nil {
		return Change{}, err
	}
	defer unlock()
	t, ok := m.tokens[id]
	switch {
	case !ok:
		return Change{}, noToken(id)
	case !t.Revoked.IsZero():
		return m.revoked[id], nil
	}
	return m.revoke(id, by, at), nil
}

func (m *Memory) revoke(id, by string, at time.Time) Change {
	t := m.tokens[id]
	t.Revoked, t.RevokedBy = at, by
	m.tokens[id] = t
	m.revoked[id] = m.kept(TokenRevoked, id, by, at)
	return m.revoked[id]
}

// count is what one token has used.
type count struct {
	total   int64
	minute  []time.Time // of the calls in the last 60 seconds, never going back
	expires time.Time
}

// Take implements [Quota].
func (m *Memory) Take(ctx context.Context, token string, l Limits, at time.Time) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := CheckTake(token, l, at); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	c, err := m.count(token, l, at)
	if err != nil {
		return err
	}
	if l.Total > 0 && c.total >= l.Total {
		return &QuotaError{Bucket: BucketTotal, Limit: l.Total}
	}
	if l.PerMinute > 0 {
		now := at
		if n := len(c.minute); n > 0 && c.minute[n-1].After(at) {
			now = c.minute[n-1]
		}
		c.minute = slices.DeleteFunc(c.minute, func(t time.Time) bool { return !t.After(now.Add(-Minute)) })
		if n := int64(len(c.minute)); n >= l.PerMinute {
			return &QuotaError{Bucket: BucketMinute, Limit: l.PerMinute, RetryAfter: c.minute[n-l.PerMinute].Add(Minute).Sub(at)}
		}
		c.minute = append(c.minute, now)
	}
	c.total++
	return nil
}

// Left implements [Quota].
func (m *Memory) Left(ctx context.Context, token string, l Limits, at time.Time) (Left, error) {
	if err := ctx.Err(); err != nil {
		return Left{}, err
	}
	if err := CheckTake(token, l, at); err != nil {
		return Left{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	left := Left{Limits: l, Total: l.Total, Minute: l.PerMinute}
	c, ok := m.counts[token]
	if !ok {
		return left, nil
	}
	left.Total = max(0, l.Total-c.total)
	now := at
	if n := len(c.minute); n > 0 && c.minute[n-1].After(at) {
		now = c.minute[n-1]
	}
	var within []time.Time
	for _, t := range c.minute {
		if t.After(now.Add(-Minute)) {
			within = append(within, t)
		}
	}
	left.Minute = max(0, l.PerMinute-int64(len(within)))
	if n := int64(len(within)); l.PerMinute > 0 && left.Minute == 0 {
		left.RetryAfter = within[n-l.PerMinute].Add(Minute).Sub(at)
	}
	return left, nil
}

// count returns the count of a token, and makes room for a new one by forgetting
// those that have expired.
func (m *Memory) count(token string, l Limits, at time.Time) (*count, error) {
	if c, ok := m.counts[token]; ok {
		return c, nil
	}
	if len(m.counts) >= maxMemory {
		maps.DeleteFunc(m.counts, func(_ string, c *count) bool { return !c.expires.IsZero() && c.expires.Before(at) })
		if len(m.counts) >= maxMemory {
			return nil, toolcrib.Errorf(toolcrib.CodeCapacityExceeded, "the calls of %d tokens are counted, and there is no room for more", maxMemory)
		}
	}
	c := &count{expires: l.Expires}
	m.counts[token] = c
	return c, nil
}
