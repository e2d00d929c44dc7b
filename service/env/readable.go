package env

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// Shown returns a frame without the details that who may not read.
func (e *Env) Shown(who toolcrib.Principal, f journal.Frame) journal.Frame {
	if e.ReadsDetails(who) {
		return f
	}
	return f.Public()
}

// ReadRun yields the events of a run without the details that who may not read.
func (e *Env) ReadRun(ctx context.Context, who toolcrib.Principal, run toolcrib.RunID, after toolcrib.Seq,
) iter.Seq2[toolcrib.Event, error] {
	all := e.Store.Read(ctx, run, after)
	if e.ReadsDetails(who) {
		return all
	}
	return func(yield func(toolcrib.Event, error) bool) {
		for event, err := range all {
			if err == nil {
				event.Body = journal.Public(event.Body)
			}
			if !yield(event, err) {
				return
			}
		}
	}
}

// StateFor returns a state without the details that who may not read.
func (e *Env) StateFor(who toolcrib.Principal, state *agent.State) *agent.State {
	if e.ReadsDetails(who) {
		return state
	}
	return state.Public()
}

// EachRun yields all runs that match f and that who may see, newest first.
func (e *Env) EachRun(
	ctx context.Context, who toolcrib.Principal, f store.Filter,
) iter.Seq2[store.RunRecord, error] {
	f, ok := Seen(who, f)
	if !ok {
		return func(func(store.RunRecord, error) bool) {}
	}
	return e.Each(ctx, f)
}

// EachDecidable yields the runs that match f and that who may decide about, newest first. For approvers these
// include runs of other users.
func (e *Env) EachDecidable(
	ctx context.Context, who toolcrib.Principal, f store.Filter,
) iter.Seq2[store.RunRecord, error] {
	if who.Token == "" && agent.MayDecide(who, "") {
		return e.Each(ctx, f)
	}
	f.User = who.User
	return e.EachRun(ctx, who, f)
}

// Each yields all runs that match f, newest first.
func (e *Env) Each(ctx context.Context, f store.Filter) iter.Seq2[store.RunRecord, error] {
	return Paged(func(cursor string) ([]store.RunRecord, string, error) {
		if f.Cursor = cursor; cursor != "" { // of a second page all is wanted
			f.Limit = store.MaxLimit
		}
		page, err := e.Store.Runs(ctx, f)
		return page.Runs, page.Next, err
	})
}

// Paged yields the elements of all pages. read returns the page at a cursor and the cursor of the next page, which
// is empty after the last one.
func Paged[T any](read func(cursor string) (page []T, next string, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for cursor, more := "", true; more; more = cursor != "" {
			page, next, err := read(cursor)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, one := range page {
				if !yield(one, nil) {
					return
				}
			}
			cursor = next
		}
	}
}

// Find finds a run that who may see by its ID, by the beginning or end of its ID, or as "last": the newest run that
// no other run started.
func (e *Env) Find(ctx context.Context, who toolcrib.Principal, name string) (store.RunRecord, error) {
	if name == "last" {
		for rec, err := range e.EachRun(ctx, who, store.Filter{TopLevel: true}) {
			if err != nil || rec.Beside == "" {
				return rec, err
			}
		}
		return store.RunRecord{}, toolcrib.Errorf(toolcrib.CodeNotFound, "there is no run yet")
	}
	rec, err := e.Store.Run(ctx, toolcrib.RunID(name))
	if err == nil && !Owns(who, &rec) {
		err = toolcrib.ErrNotFound
	}
	if errors.Is(err, toolcrib.ErrNotFound) && len(name) >= minPart {
		rec, err = e.runByPart(ctx, who, name)
	}
	if errors.Is(err, toolcrib.ErrNotFound) {
		return store.RunRecord{}, toolcrib.Errorf(toolcrib.CodeNotFound, "there is no run %s", name)
	}
	return rec, err
}

// PartsLooked bounds how many of the newest runs or sessions are searched for a part of an ID.
const PartsLooked = 1 << 14

// runByPart finds the only run that who may see whose ID begins or ends with part, among the newest ones.
func (e *Env) runByPart(ctx context.Context, who toolcrib.Principal, part string) (store.RunRecord, error) {
	start := "run_" + strings.TrimPrefix(part, "run_")
	var fit []store.RunRecord
	looked := 0
	for rec, err := range e.EachRun(ctx, who, store.Filter{}) {
		if err != nil {
			return store.RunRecord{}, err
		}
		if id := string(rec.ID); strings.HasPrefix(id, start) || strings.HasSuffix(id, part) {
			fit = append(fit, rec)
		}
		if looked++; looked == PartsLooked {
			break
		}
	}
	switch len(fit) {
	case 0:
		return store.RunRecord{}, toolcrib.ErrNotFound
	case 1:
		return fit[0], nil
	}
	return store.RunRecord{}, ambiguous("run", part, fit, func(rec store.RunRecord) string { return string(rec.ID) })
}

const (
	minPart    = 2 // characters of an ID that may stand for it
	partsShown = 5 // IDs that an ambiguous part is said to fit
)

// ByPart returns the element of a list whose ID is part, or the only one whose ID begins with it. The prefix of the
// IDs may be omitted.
func ByPart[T any](what, prefix, part string, list []T, id func(T) string) (found T, err error) {
	begin := prefix + strings.TrimPrefix(part, prefix)
	var fit []T
	for _, one := range list {
		switch {
		case id(one) == begin:
			return one, nil
		case strings.HasPrefix(id(one), begin):
			fit = append(fit, one)
		}
	}
	switch {
	case len(fit) < 2 && len(begin) < len(prefix)+minPart:
		return found, BadRequestf("the %s ID %q is too short; give at least %d characters after %s",
			what, part, minPart, prefix)
	case len(fit) == 1:
		return fit[0], nil
	case len(fit) == 0:
		return found, toolcrib.Errorf(toolcrib.CodeNotFound, "there is no %s %s", what, part)
	}
	return found, ambiguous(what, part, fit, id)
}

// ambiguous returns the error for a part of an ID that matches several elements.
func ambiguous[T any](what, part string, fit []T, id func(T) string) error {
	text := fmt.Sprintf("%s ID %s is ambiguous, give more of it", what, part)
	if what == "run" {
		text += " (its end is enough)"
	}
	text += "; it fits"
	for _, one := range fit[:min(len(fit), partsShown)] {
		text += "\n  " + id(one)
	}
	if more := len(fit) - partsShown; more > 0 {
		text += fmt.Sprintf("\n  and %d more", more)
	}
	return BadRequestf("%s", text)
}

// maxAbove bounds how many ancestors of a run are followed, even if the store has a cycle.
const maxAbove = 32

// Top returns the first ancestor of a run, which is the run that is resumed.
func (e *Env) Top(ctx context.Context, rec store.RunRecord) (store.RunRecord, error) {
	for range maxAbove {
		if rec.Parent == "" {
			return rec, nil
		}
		above, err := e.Store.Run(ctx, rec.Parent)
		if err != nil {
			return rec, fmt.Errorf("run %s is part of run %s, which cannot be read: %v", rec.ID, rec.Parent, err)
		}
		rec = above
	}
	return rec, fmt.Errorf("run %s: more than %d runs are above it: `toolcrib runs verify --all` shows what was changed",
		rec.ID, maxAbove)
}
