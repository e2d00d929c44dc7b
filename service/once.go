package service

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/worker"
	"github.com/toolcrib/toolcrib/store"
)

// Once returns the key of a request, so that a repeated one gets the same run: it is made of the
// caller, their Idempotency-Key (name) and the request. If name is empty, the key is empty.
func Once(who toolcrib.Principal, name string, asked ...string) string {
	if name == "" {
		return ""
	}
	return hashed(who.User, who.Token, name) + ":" + hashed(asked...)
}

func hashed(texts ...string) string {
	all := sha256.New()
	for _, text := range texts {
		one := sha256.Sum256([]byte(text))
		_, _ = all.Write(one[:]) // a hash never fails to write
	}
	return hex.EncodeToString(all.Sum(nil)[:16])
}

// Begun returns the run that was started with a key, or "".
func (s *Service) Begun(ctx context.Context, once string) (toolcrib.RunID, error) {
	if once == "" {
		return "", nil
	}
	key := once[:hex.EncodedLen(16)]
	page, err := s.Env.Store.Runs(ctx, store.Filter{Once: key, Since: time.Now().Add(-store.OnceAge), Limit: 1})
	if err != nil || len(page.Runs) == 0 {
		return "", err
	}
	rec := &page.Runs[0]
	return sameOnce(&store.OnceError{Run: rec.ID, Same: rec.Once == once})
}

// resumedBefore reports whether the request with this key has resumed the run before, as its journal says. Another
// request with the key is a conflict.
func (s *Service) resumedBefore(ctx context.Context, named toolcrib.RunID, once string) (bool, error) {
	if once == "" {
		return false, nil
	}
	key, _, _ := strings.Cut(once, ":")
	for e, err := range s.Env.Store.Read(ctx, named, 0) {
		if err != nil {
			return false, err
		}
		b, ok := e.Body.(*journal.Resumed)
		if ok && strings.HasPrefix(b.Once, key+":") && time.Since(e.Time) < store.OnceAge {
			_, err := sameOnce(&store.OnceError{Run: named, Same: b.Once == once})
			return true, err
		}
	}
	return false, nil
}

// sameOnce returns the run of a key, or a conflict if the key belongs to another request.
func sameOnce(other *store.OnceError) (toolcrib.RunID, error) {
	if !other.Same {
		return "", toolcrib.Errorf(toolcrib.CodeConflict, "this Idempotency-Key was used with another request")
	}
	return other.Run, nil
}

// maxAsked bounds the runs among which one is looked for.
const maxAsked = 200

// Asked returns the newest run of who that began before start with a key for the same request,
// whatever its name, and is not among taken, whose answer was not sent by then: it neither had ended
// nor waited, or it has failed since another time; "" if none.
func (s *Service) Asked(ctx context.Context, who toolcrib.Principal, once string, start, since time.Time,
	taken []toolcrib.RunID,
) (toolcrib.RunID, error) {
	f, ok := env.Seen(who, store.Filter{User: who.User, TopLevel: true, Limit: maxAsked})
	if !ok {
		return "", nil
	}
	page, err := s.Env.Store.Runs(ctx, f)
	_, same, _ := strings.Cut(once, ":")
	for i := range page.Runs {
		rec := &page.Runs[i]
		last, after := rec.EndedAt, start
		if last.IsZero() {
			last = rec.WaitsSince
		}
		if rec.Status == toolcrib.StatusFailed || rec.Status == toolcrib.StatusWaitingForProvider {
			after = since
		}
		if open := rec.CreatedAt.Before(start) && (last.IsZero() || last.After(after)); open &&
			strings.HasSuffix(rec.Once, ":"+same) && !slices.Contains(taken, rec.ID) {
			return rec.ID, err
		}
	}
	return "", err
}

// maxRepeats bounds how many runs of one request are looked at that have all failed.
const maxRepeats = 2000

// Repeat returns the run that answers a repeat of the request r, whose run is known: that one, which
// continues if it waits for its provider, or what takes the place of one that has failed. again
// reports whether something has begun. Who repeats it at the same time gets the same run.
func (p *Pool) Repeat(ctx context.Context, who toolcrib.Principal, run toolcrib.RunID, r StartRequest) (
	_ toolcrib.RunID, again bool, err error,
) {
	_, same, _ := strings.Cut(r.Once, ":")
	for range maxRepeats {
		rec, err := p.s.Env.Find(ctx, who, string(run))
		switch {
		case err != nil:
			return run, false, err
		case rec.Status == toolcrib.StatusWaitingForProvider:
			q := ResumeRequest{Run: string(run), Approve: agent.ApproveNone, Subscription: r.Subscription}
			_, err := p.Resume(ctx, who, q)
			if toolcrib.CodeOf(err) == toolcrib.CodeConflict { // it continues already
				return run, false, nil
			}
			return run, err == nil, err
		case rec.Status != toolcrib.StatusFailed:
			return run, false, nil
		}
		r.Once = hashed(string(run)) + ":" + same // the failed run keeps its own
		next, err := p.s.Begun(ctx, r.Once)
		if err != nil {
			return run, false, err
		}
		if next == "" {
			return p.instead(ctx, who, rec.ID, r)
		}
		run = next
	}
	return run, false, nil
}

// instead begins what takes the place of a run that has failed: the request r again if no call of that
// run began, else a run that continues it, so that nothing happens twice. Where asking its model
// again is in vain, it is the failed run itself.
func (p *Pool) instead(ctx context.Context, who toolcrib.Principal, failed toolcrib.RunID, r StartRequest) (
	_ toolcrib.RunID, again bool, err error,
) {
	state, err := agent.Load(ctx, p.s.Env.Store, failed)
	if err != nil {
		return failed, false, err
	}
	recorder, err := p.s.Current().recorder()
	if err != nil {
		return failed, false, err
	}
	ran, err := recorder.Ran(ctx, state)
	if err != nil {
		return failed, false, err
	}
	var drive *worker.Drive
	began := func(c *core.Call) bool { return c.Started != nil && c.Child == nil }
	switch {
	case len(ran) == 0 && !slices.ContainsFunc(state.Trace, began):
		drive, err = p.Start(ctx, who, r)
	case state.Failed == nil || state.Failed.StopReason != toolcrib.StopProviderFailed || state.Start.Agent.Model == "":
		return failed, false, nil
	default:
		fork := p.s.continuing(state)
		fork.Once, fork.Subscription = r.Once, r.Subscription
		drive, err = p.Fork(ctx, who, *fork)
	}
	if err != nil {
		return failed, false, err
	}
	return drive.ID(), true, nil
}
