package people

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/service/env"
)

// After some free failures, each further one makes the next attempt wait twice as long. What is counted is stored, so
// that it is the same on all servers. A sign-in that succeeds ends the waiting of its user.
const (
	freeOfUser    = 5
	freeOfAddress = 30
	firstWait     = time.Second
	longestWait   = 15 * time.Minute
	attemptsKept  = 24 * time.Hour // since the last failure

	// attemptsOfFile bounds the keys in one of 256 files; the oldest are dropped first.
	attemptsOfFile = 500
)

// attempts are the failures of a user or of an address.
type attempts struct {
	Failed int       `json:"n"`
	Last   time.Time `json:"at"`
	Until  time.Time `json:"until"` // earlier attempts are refused
}

// userKey and addressKey return keys of attempts. Names that conflict are counted together.
func userKey(name string) string { return keyOf("user " + access.KeysOf(clipName(name)).Folded) }

func addressKey(from string) string { return keyOf("address " + from) }

func clipName(name string) string { return name[:min(len(name), access.MaxName+1)] }

func attemptsFile(key string) string { return env.AttemptsFolder + "/" + key[:2] + "/failed" }

// tooMany returns the error for an attempt that must wait, which is nil if it need not.
func (s *People) tooMany(ctx context.Context, key string) (refused, err error) {
	data, err := s.env.Store.File(ctx, attemptsFile(key))
	if errors.Is(err, toolcrib.ErrNotFound) {
		return nil, nil
	}
	all := map[string]attempts{}
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if wait := all[key].Until.Sub(s.Now()); err == nil && wait > 0 {
		return errWait(wait), nil
	}
	return nil, err
}

func errWait(wait time.Duration) error {
	wait = max(wait.Round(time.Second), time.Second)
	err := toolcrib.Errorf(toolcrib.CodeRateLimited, "too many failed sign-ins; try again in %s", wait)
	err.RetryAfter = wait
	return err
}

// count counts an attempt as failed before its outcome is known, so that attempts at the same time cannot exceed the
// free ones together. An attempt that must wait is refused and not counted.
func (s *People) count(ctx context.Context, key string, free int) error {
	return s.changeAttempts(ctx, key, func(a attempts, now time.Time) (attempts, error) {
		if wait := a.Until.Sub(now); wait > 0 {
			return a, errWait(wait)
		}
		a.Failed++
		if over := a.Failed - free; over >= 0 {
			a.Until = now.Add(min(firstWait<<min(over, 20), longestWait))
		}
		a.Last = now
		return a, nil
	})
}

// succeeded takes an attempt back that count has counted; all of them if everything is true.
func (s *People) succeeded(ctx context.Context, key string, everything bool) error {
	return s.changeAttempts(ctx, key, func(a attempts, _ time.Time) (attempts, error) {
		if a.Failed--; everything {
			a.Failed = 0
		}
		a.Failed, a.Until = max(a.Failed, 0), time.Time{}
		return a, nil
	})
}

// changeAttempts changes the attempts of a key, and removes those without failures.
func (s *People) changeAttempts(
	ctx context.Context, key string, change func(attempts, time.Time) (attempts, error),
) error {
	return s.env.Store.ChangeFile(ctx, attemptsFile(key), func(before []byte) ([]byte, error) {
		all, now := map[string]attempts{}, s.Now()
		if before != nil {
			if err := json.Unmarshal(before, &all); err != nil {
				return nil, err
			}
		}
		maps.DeleteFunc(all, func(_ string, a attempts) bool { return now.Sub(a.Last) > attemptsKept })
		a, err := change(all[key], now)
		if err != nil {
			return nil, err
		}
		if all[key] = a; a.Failed == 0 {
			delete(all, key)
		}
		if len(all) > attemptsOfFile {
			oldest := slices.MinFunc(slices.Collect(maps.Keys(all)), func(x, y string) int {
				return cmp.Or(all[x].Last.Compare(all[y].Last), cmp.Compare(x, y))
			})
			delete(all, oldest)
		}
		if len(all) == 0 {
			return nil, nil
		}
		return json.Marshal(all)
	})
}
