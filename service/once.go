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

// Once returns the key of a request, by which a repeated request gets the same run. It depends on the caller, their
// Idempotency-Key (name) and the request. If name is empty, so is the key.
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

// maxAsked bounds the runs that [Service.Asked] looks at.
const maxAsked = 200

// Asked returns the newest run of who that an equal request with any Idempotency-Key started before start, that is not
// in taken, and whose answer was not sent before start: it had neither ended nor parked by then, or it has failed since
// the time since. It returns "" if there is no such run.
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

// maxRepeats bounds the failed runs of one request that are looked at.
const maxRepeats = 2000

// Repeat returns the run that answers a repeat of the request r, which has started run before: that run, which
// continues if it waits for its provider, or a run that replaces a failed one. again reports whether a run was started
// or resumed. Concurrent repeats get the same run.
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
		r.Once = hashed(string(run)) + ":" + same // the failed run keeps its own key
		next, err := p.s.Begun(ctx, r.Once)
		if err != nil {
			return run, false, err
		}
		if next == "" {
			return p.replace(ctx, who, rec.ID, r)
		}
		run = next
	}
	return run, false, nil
}

// replace starts the run that replaces a failed one: the request r again if no call of the failed run was started,
// otherwise a run that continues it, so that no call takes effect twice. If asking the model again cannot help, it
// returns the failed run.
func (p *Pool) replace(ctx context.Context, who toolcrib.Principal, failed toolcrib.RunID, r StartRequest) (
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
