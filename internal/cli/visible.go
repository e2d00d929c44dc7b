package cli

import (
	"context"
	"errors"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// tokenKey is under what a context holds the ID of the access token by which the
// command acts.
type tokenKey struct{}

// byTokenOnly returns a context in which runs are seen only if this access token
// started them. It stands in the context so that no way through the runs can forget it.
func byTokenOnly(ctx context.Context, token string) context.Context {
	if token == "" {
		return ctx
	}
	return context.WithValue(ctx, tokenKey{}, token)
}

// tokenOf is the ID of the access token by which the command acts; "" = none.
func tokenOf(ctx context.Context) string {
	token, _ := ctx.Value(tokenKey{}).(string)
	return token
}

// visibleTo tells whether who may know of a user's runs (contract §9: another
// user's run is not found). By an access token they must be its own, too: see [own].
func visibleTo(who toolcrib.Principal, user string) bool { return who.Admin || who.User == user }

// own tells whether a run was started by the access token by which the command acts;
// without one every run is. All carriers of tokens may act for one user (anonymous),
// so the user alone does not tell whose a run is. The store keeps no column for it: the
// first event of the run says it. A run whose content was pruned says no more, and is
// nobody's.
func own(ctx context.Context, s *sqlite.Store, rec *store.RunRecord) (bool, error) {
	token := tokenOf(ctx)
	if token == "" {
		return true, nil
	}
	for e, err := range s.Read(ctx, rec.ID, 0) {
		if errors.Is(err, store.ErrPruned) || errors.Is(err, toolcrib.ErrNotFound) {
			break
		}
		if err != nil {
			return false, err
		}
		start, ok := e.Body.(*journal.RunStarted)
		return ok && start.Principal.Token == token, nil
	}
	return false, nil
}

// newestRun is the newest run that no other run started, of those that who may see.
func newestRun(ctx context.Context, s *sqlite.Store, who toolcrib.Principal) (rec store.RunRecord, err error) {
	f := store.Filter{TopLevel: true, Limit: 1}
	if !who.Admin {
		f.User = who.User
	}
	for {
		page, err := s.Runs(ctx, f)
		if err != nil {
			return rec, err
		}
		for i := range page.Runs {
			if mine, err := own(ctx, s, &page.Runs[i]); err != nil || mine {
				return page.Runs[i], err
			}
		}
		if page.Next == "" {
			return rec, toolcrib.ErrNotFound
		}
		f.Cursor, f.Limit = page.Next, store.MaxLimit
	}
}

// ownSession tells whether all runs of a session that still say so were started by the
// access token by which the command acts. A session in which there are others' runs is
// theirs: whoever joins it goes on from what they said.
func ownSession(ctx context.Context, s *sqlite.Store, info *store.SessionInfo) (bool, error) {
	if tokenOf(ctx) == "" {
		return true, nil
	}
	f := store.Filter{User: info.User, Session: info.ID, TopLevel: true, Limit: store.MaxLimit}
	for some := false; ; {
		page, err := s.Runs(ctx, f)
		if err != nil {
			return false, err
		}
		for i := range page.Runs {
			rec := &page.Runs[i]
			if !rec.PrunedAt.IsZero() {
				continue
			}
			if ok, err := own(ctx, s, rec); err != nil || !ok {
				return false, err
			}
			some = true
		}
		if page.Next == "" {
			return some, nil
		}
		f.Cursor = page.Next
	}
}

// sessionsOf is a page of sessions, only of those that are the token's own where the
// command acts by one.
func sessionsOf(ctx context.Context, s *sqlite.Store, f store.SessionFilter) (store.SessionPage, error) {
	if tokenOf(ctx) == "" {
		return s.Sessions(ctx, f)
	}
	var seen store.SessionPage
	most := f.Bound()
	for f.Limit = store.MaxLimit; ; {
		page, err := s.Sessions(ctx, f)
		if err != nil {
			return store.SessionPage{}, err
		}
		for i := range page.Sessions {
			ok, err := ownSession(ctx, s, &page.Sessions[i])
			switch {
			case err != nil:
				return store.SessionPage{}, err
			case ok && len(seen.Sessions) == most:
				seen.Next = page.Next
				return seen, nil
			case ok:
				seen.Sessions = append(seen.Sessions, page.Sessions[i])
			}
		}
		if page.Next == "" {
			return seen, nil
		}
		f.Cursor = page.Next
	}
}

// joinable refuses to go on by an access token in a session that is not its own. A
// session without a run has nothing that anybody said.
func joinable(ctx context.Context, s *sqlite.Store, name string, info *store.SessionInfo) error {
	if tokenOf(ctx) == "" || info.LastRun == "" {
		return nil
	}
	ok, err := ownSession(ctx, s, info)
	if err == nil && !ok {
		err = failedf("conflict: there is a session %s that this access token did not begin; choose another name", name)
	}
	return err
}
