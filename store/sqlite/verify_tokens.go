package sqlite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// tokenCalls is what the events of a run prove about the calls of the access token by
// which it acts.
type tokenCalls struct {
	token string
	calls map[tokenCall]struct{}
}

// tokenCall is one call; it is counted once, however often it is judged.
type tokenCall struct {
	iteration int
	id        string
}

// tokenProofs is how many calls of each access token are proved.
type tokenProofs map[string]int64

func (p tokenProofs) add(c *tokenCalls) {
	if p != nil && len(c.calls) > 0 {
		p[c.token] += int64(len(c.calls))
	}
}

// learn takes what an event tells.
func (c *tokenCalls) learn(body toolcrib.Body) {
	switch b := body.(type) {
	case *journal.RunStarted:
		c.token = b.Principal.Token
	case *journal.Verdicts:
		for i := range b.Verdicts {
			if c.token == "" || !b.Verdicts[i].Counted {
				continue
			}
			if c.calls == nil {
				c.calls = make(map[tokenCall]struct{})
			}
			c.calls[tokenCall{b.Iteration, b.Verdicts[i].CallID}] = struct{}{}
		}
	}
}

// verifyTokenCalls compares how many calls of access tokens are counted with how many
// the verdicts prove. A call is counted before its verdict is written down, in the same
// file: fewer cannot be. More can: a process may have died in between, and a run that
// was pruned proves nothing any more. now is the time.
func (sn snapshot) verifyTokenCalls(ctx context.Context, proved tokenProofs, now time.Time, p problems) error {
	if len(p.all.Problems) > 0 || len(proved) == 0 {
		return nil
	}
	counted := make(map[string]int64)
	err := sn.each(ctx, "SELECT token, calls FROM token_calls", nil, func(scan scanFunc) error {
		var token string
		var calls int64
		err := scan(&token, &calls)
		counted[token] = calls
		return err
	})
	if err != nil {
		return err
	}
	for _, token := range slices.Sorted(maps.Keys(proved)) {
		have, there := counted[token]
		if have >= proved[token] {
			continue
		}
		if !there {
			forgotten, err := sn.countForgotten(ctx, token, now)
			if err != nil {
				return err
			}
			if forgotten {
				continue
			}
		}
		if err := p.add(&store.ChainError{What: fmt.Sprintf("the access token %s has %d calls counted, and the verdicts prove %d", token, have, proved[token])}); err != nil {
			return err
		}
	}
	return nil
}

// countForgotten reports whether the count of a token may be gone: earlier versions
// forgot it so long after the token had expired.
func (sn snapshot) countForgotten(ctx context.Context, token string, now time.Time) (bool, error) {
	row := func(query string, args []any, dest ...any) error { return sn.row(ctx, query, args, dest...) }
	issued, err := doc[access.Issued](row, selectToken, token, "token")
	if errors.Is(err, toolcrib.ErrNotFound) {
		return false, nil
	}
	return issued.Claims.Expires.Time().Add(countsKept).Before(now), err
}
