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

// limit bounds the attempts of one kind: after free failures, each further attempt makes the next one wait twice as
// long, up to longest. An attempt that would wait for at most queue does so; a longer wait is an error.
type limit struct {
	free           int
	longest, queue time.Duration
	proven         bool // a sign-in that succeeds ends the waiting
}

// Who does not know the password must not be able to keep its owner out. So a session, and a browser in which the user
// has signed in before, are counted by themselves, and all others by their address, and by name and address together.
// The bound by name alone, for guesses from very many addresses, delays them, and also the owner in a new browser:
// after ofName.free failures one guess each 30 seconds is checked, which is 3,000 on the first day and 2,880 on each
// further one.
var (
	ofAddress = limit{free: 30, longest: 15 * time.Minute}
	ofPair    = limit{free: 5, longest: 15 * time.Minute, proven: true}
	ofKnown   = ofPair
	ofName    = limit{free: 100, longest: 30 * time.Second, queue: 30 * time.Second}
)

// SignInTimeout is longer than a sign-in takes.
const SignInTimeout = time.Minute

const (
	firstWait    = time.Second
	attemptsKept = 24 * time.Hour // since the last failure

	// attemptsOfFile bounds the keys in one of 256 files. The oldest are dropped first, where each failure makes a key a
	// minute newer, so that a flood of other names and addresses does not end the bound of a name.
	attemptsOfFile = 500

	// waitersAtOnce bounds the attempts that wait in this process.
	waitersAtOnce = 256
)

// attempts are the failures that are counted together. They are stored, so that they are the same on all servers.
type attempts struct {
	Failed int       `json:"n"`
	Last   time.Time `json:"at"`
	Until  time.Time `json:"until"` // earlier attempts wait
}

// next counts an attempt at a time as failed, and returns how long it waits. An attempt that is refused is not counted.
func (a attempts) next(l limit, now time.Time) (attempts, time.Duration, error) {
	wait := max(a.Until.Sub(now), 0)
	if wait > l.queue {
		return a, 0, errWait(wait - l.queue)
	}
	a.Failed++
	if over := a.Failed - l.free; over >= 0 {
		a.Until = now.Add(wait + min(firstWait<<min(over, 20), l.longest))
	}
	a.Last = now
	return a, wait, nil
}

// counter counts attempts under a key.
type counter struct {
	key string
	limit
	was, until time.Time // the end of the wait before and after the attempt
}

func newCounter(key string, l limit) counter { return counter{key: keyOf(key), limit: l} }

func byAddress(from string) counter { return newCounter("address "+from, ofAddress) }

// unknown returns the counters of a sign-in by a browser that is not known. Names that conflict are counted
// together.
func unknown(name, from string) []counter {
	name = access.KeysOf(clipName(name)).Folded
	return []counter{
		byAddress(from), newCounter("pair "+from+" "+name, ofPair), newCounter("user "+name, ofName),
	}
}

// known returns the counter of a session or a browser of a user, by its ID.
func known(id string) []counter { return []counter{newCounter("known "+id, ofKnown)} }

// browsersOf returns the counter of all known browsers of a user. It bounds somebody who has collected many of them.
func browsersOf(user string) counter { return newCounter("browsers of "+user, ofName) }

func clipName(name string) string { return name[:min(len(name), access.MaxName+1)] }

func attemptsFile(key string) string { return env.AttemptsFolder + "/" + key[:2] + "/failed" }

// tooMany returns the error for an attempt that is refused, which is nil if it is not.
func (s *People) tooMany(ctx context.Context, c counter) (refused, err error) {
	data, err := s.env.Store.File(ctx, attemptsFile(c.key))
	if errors.Is(err, toolcrib.ErrNotFound) {
		return nil, nil
	}
	all := map[string]attempts{}
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err == nil {
		_, _, refused = all[c.key].next(c.limit, s.Now())
	}
	return refused, err
}

func errWait(wait time.Duration) error {
	wait = max(wait.Round(time.Second), time.Second)
	err := toolcrib.Errorf(toolcrib.CodeRateLimited, "too many failed sign-ins; try again in %s", wait)
	err.RetryAfter = wait
	return err
}

// count counts an attempt as failed before its outcome is known, so that attempts at the same time cannot exceed the
// free ones together, and waits as long as it must. An attempt that one of the counters refuses is not counted.
func (s *People) count(ctx context.Context, counters []counter) error {
	for _, c := range counters { // reading is cheaper than counting and taking back
		if refused, err := s.tooMany(ctx, c); refused != nil || err != nil {
			return cmp.Or(err, refused)
		}
	}
	var wait time.Duration
	for i := range counters {
		c := &counters[i]
		var w time.Duration
		err := s.changeAttempts(ctx, c.key, func(a attempts, now time.Time) (_ attempts, err error) {
			c.was = a.Until
			a, w, err = a.next(c.limit, now)
			c.until = a.Until
			return a, err
		})
		if err != nil {
			return errors.Join(err, s.takeBack(ctx, counters[:i]))
		}
		wait = max(wait, w)
	}
	err := s.await(ctx, wait)
	if toolcrib.CodeOf(err) == toolcrib.CodeRateLimited {
		err = errors.Join(err, s.takeBack(ctx, counters))
	}
	return err
}

// await waits, with a bound on how many do.
func (s *People) await(ctx context.Context, wait time.Duration) error {
	if wait == 0 {
		return nil
	}
	select {
	case s.state.waiting <- struct{}{}:
		defer func() { <-s.state.waiting }()
	default:
		return errWait(wait)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// takeBack takes an attempt back that count has counted.
func (s *People) takeBack(ctx context.Context, counters []counter) (err error) {
	for _, c := range counters {
		err = errors.Join(err, s.changeAttempts(ctx, c.key, func(a attempts, _ time.Time) (attempts, error) {
			a.Failed = max(a.Failed-1, 0)
			if a.Until.Equal(c.until) { // no attempt since
				a.Until = c.was
			}
			return a, nil
		}))
	}
	return err
}

// succeeded takes back an attempt that was right. Failures of others, from this address or with this name, stay.
func (s *People) succeeded(ctx context.Context, counters []counter) (err error) {
	for _, c := range counters {
		if !c.proven {
			err = errors.Join(err, s.takeBack(ctx, []counter{c}))
			continue
		}
		err = errors.Join(err, s.changeAttempts(ctx, c.key, func(attempts, time.Time) (attempts, error) {
			return attempts{}, nil
		}))
	}
	return err
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
			age := func(a attempts) time.Time { return a.Last.Add(time.Duration(a.Failed) * time.Minute) }
			oldest := slices.MinFunc(slices.Collect(maps.Keys(all)), func(x, y string) int {
				return cmp.Or(age(all[x]).Compare(age(all[y])), cmp.Compare(x, y))
			})
			delete(all, oldest)
		}
		if len(all) == 0 {
			return nil, nil
		}
		return json.Marshal(all)
	})
}
