package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/access/standing"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// admin reports whether who may see and change what belongs to others. By an access token
// nobody may, whoever it acts for.
func admin(who toolcrib.Principal) bool { return who.Admin && who.Token == "" }

// readsConfig reports whether who reads what the configuration says and where: an administrator, or
// whoever acts for a user at the keyboard of the data folder.
func readsConfig(who toolcrib.Principal) bool {
	return admin(who) || who.Token == "" && who.Actor != ""
}

// ReadsDetails reports whether who may read what providers said and where the server is configured (contract §9):
// administrators may and, without a server, whoever has the data folder.
func (s *Service) ReadsDetails(who toolcrib.Principal) bool {
	return s.Driver != DriverServer || admin(who)
}

// shown is a frame as who may read it.
func (s *Service) shown(who toolcrib.Principal, f journal.Frame) journal.Frame {
	if s.ReadsDetails(who) {
		return f
	}
	return f.Public()
}

// read reads the events of a run as who may read them.
func (s *Service) read(ctx context.Context, who toolcrib.Principal, run toolcrib.RunID, after toolcrib.Seq,
) iter.Seq2[toolcrib.Event, error] {
	all := s.store.Read(ctx, run, after)
	if s.ReadsDetails(who) {
		return all
	}
	return func(yield func(toolcrib.Event, error) bool) {
		for e, err := range all {
			if err == nil {
				e.Body = journal.Public(e.Body)
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// stateFor is a run as who may read it.
func (s *Service) stateFor(who toolcrib.Principal, state *agent.State) *agent.State {
	if s.ReadsDetails(who) {
		return state
	}
	return state.Public()
}

// somebody refuses those who have not said who they are.
func somebody(who toolcrib.Principal) error {
	if who.User == "" {
		return toolcrib.Errorf(toolcrib.CodeUnauthorized, "no user is named")
	}
	return nil
}

// Visible reports whether who may know of a user's runs (contract §9: another user's run
// is not found); someone without a name may know of none.
func Visible(who toolcrib.Principal, user string) bool {
	return admin(who) || who.User != "" && who.User == user
}

// owns reports whether who may know of a run. All carriers of tokens may act for one user
// (anonymous), so the user alone does not say whose a run is.
func owns(who toolcrib.Principal, rec *store.RunRecord) bool {
	return Visible(who, rec.User) && (who.Token == "" || who.Token == rec.Token)
}

// seen narrows a filter to the runs that who may know of; false = it names none of them.
func seen(who toolcrib.Principal, f store.Filter) (store.Filter, bool) {
	f.Token = who.Token
	if f.User == "" && !admin(who) {
		f.User = who.User
	}
	return f, Visible(who, f.User)
}

// eachRun yields all runs that fit and that who may see, newest first.
func (s *Service) eachRun(
	ctx context.Context, who toolcrib.Principal, f store.Filter,
) iter.Seq2[store.RunRecord, error] {
	f, ok := seen(who, f)
	if !ok {
		return func(func(store.RunRecord, error) bool) {}
	}
	return s.each(ctx, f)
}

// eachDecidable yields the runs about which who may decide, newest first: approvers see
// those of others, too.
func (s *Service) eachDecidable(
	ctx context.Context, who toolcrib.Principal, f store.Filter,
) iter.Seq2[store.RunRecord, error] {
	if who.Token == "" && agent.MayDecide(who, "") {
		return s.each(ctx, f)
	}
	f.User = who.User
	return s.eachRun(ctx, who, f)
}

// decides reports whether who may know of what a run waits for.
func decides(who toolcrib.Principal, rec *store.RunRecord) bool {
	return owns(who, rec) || who.Token == "" && agent.MayDecide(who, "")
}

// each yields all runs that fit, newest first.
func (s *Service) each(ctx context.Context, f store.Filter) iter.Seq2[store.RunRecord, error] {
	return paged(func(cursor string) ([]store.RunRecord, string, error) {
		if f.Cursor = cursor; cursor != "" { // of a second page all is wanted
			f.Limit = store.MaxLimit
		}
		page, err := s.store.Runs(ctx, f)
		return page.Runs, page.Next, err
	})
}

// Sessions returns a page of the sessions that fit and that who may see; by an access
// token those that are all its own.
func (s *Service) Sessions(
	ctx context.Context, who toolcrib.Principal, f store.SessionFilter,
) (store.SessionPage, error) {
	runs, ok := seen(who, store.Filter{User: f.User})
	if !ok {
		return store.SessionPage{}, nil
	}
	f.User, f.Token = runs.User, runs.Token
	return s.store.Sessions(ctx, f)
}

// Session finds a session by its ID, the name that its user gave it, or as last: the one
// of who with the newest run. Another user's is found by administrators, by its ID.
func (s *Service) Session(ctx context.Context, who toolcrib.Principal, name string) (store.SessionInfo, error) {
	if name == "last" {
		page, err := s.Sessions(ctx, who, store.SessionFilter{User: who.User, Limit: 1})
		if err == nil && len(page.Sessions) == 0 {
			err = toolcrib.Errorf(toolcrib.CodeNotFound, "there is no session yet")
		}
		if err != nil {
			return store.SessionInfo{}, err
		}
		return page.Sessions[0], nil
	}
	info, err := store.SessionInfo{}, toolcrib.ErrNotFound
	if who.User != "" {
		info, err = s.store.Session(ctx, who.User, name)
	}
	if errors.Is(err, toolcrib.ErrNotFound) && admin(who) {
		if info, err = s.store.Session(ctx, "", name); err == nil && string(info.ID) != name {
			err = toolcrib.ErrNotFound // what others call their sessions
		}
	}
	if err == nil {
		var mine bool
		if mine, err = s.ownSession(ctx, who, &info); err == nil && !mine {
			err = toolcrib.ErrNotFound
		}
	}
	if errors.Is(err, toolcrib.ErrNotFound) {
		return s.sessionByPart(ctx, who, name)
	}
	return info, err
}

// sessionByPart finds the session that who may see by the beginning of its ID.
func (s *Service) sessionByPart(ctx context.Context, who toolcrib.Principal, part string) (store.SessionInfo, error) {
	begin := store.SessionPrefix + strings.TrimPrefix(part, store.SessionPrefix)
	var fit []store.SessionInfo
	f := store.SessionFilter{Limit: store.MaxLimit}
	for range partsLooked / store.MaxLimit {
		page, err := s.Sessions(ctx, who, f)
		if err != nil {
			return store.SessionInfo{}, err
		}
		for _, info := range page.Sessions {
			if strings.HasPrefix(string(info.ID), begin) {
				fit = append(fit, info)
			}
		}
		if f.Cursor = page.Next; f.Cursor == "" {
			break
		}
	}
	id := func(i store.SessionInfo) string { return string(i.ID) }
	info, err := byPart("session", store.SessionPrefix, part, fit, id)
	if err != nil && len(fit) == 0 {
		err = toolcrib.Errorf(toolcrib.CodeNotFound, "there is no session %s", part)
	}
	return info, err
}

// ownSession reports whether all runs of a session, at least one, were started by the
// access token by which who acts: whoever joins it continues what others said. Without a
// token it is.
func (s *Service) ownSession(ctx context.Context, who toolcrib.Principal, info *store.SessionInfo) (bool, error) {
	if who.Token == "" {
		return true, nil
	}
	for rec, err := range s.each(ctx, store.Filter{User: info.User, Session: info.ID, TopLevel: true}) {
		if err != nil || rec.Token != who.Token {
			return false, err
		}
	}
	return info.LastRun != "", nil
}

// joinable refuses to continue a session by an access token that did not begin it. A
// session without a run has nothing that anybody said.
func (s *Service) joinable(ctx context.Context, who toolcrib.Principal, name string, info *store.SessionInfo) error {
	own, err := s.ownSession(ctx, who, info)
	if err == nil && !own && info.LastRun != "" {
		err = toolcrib.Errorf(toolcrib.CodeConflict, "session %s was not started with this access token; choose another name", name)
	}
	return err
}

// people is who may do what today, made at its first use.
type people struct {
	sync.Mutex
	standing *standing.People
	signer   *access.Signer   // once it was needed; the store keeps its keys as long
	verifier *access.Verifier // with it
	clock    *access.Clock
}

// Standing is who may do what today, for the gate and for commands.
func (s *Service) Standing() *standing.People {
	s.people.Lock()
	defer s.people.Unlock()
	if s.people.standing == nil {
		// It fails without a source or a time only.
		s.people.standing, _ = standing.New(standing.Options{Source: s.store.Access(), Now: s.Now, Age: standing.Fresh})
	}
	return s.people.standing
}

// never is later than any token lives: without the time none is good.
var never = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// Now is the time by which tokens live. It never goes back, and starts no earlier than
// what was written down last; that is read when it is first needed.
func (s *Service) Now() time.Time {
	s.people.Lock()
	defer s.people.Unlock()
	if s.people.clock == nil {
		latest, err := s.store.Access().Latest(context.Background())
		if err != nil {
			latest = never
		}
		s.people.clock = access.NewClock(nil, latest)
	}
	return s.people.clock.Now()
}

// ActFor is the user for whom an administrator, self, acts (contract §1).
func (s *Service) ActFor(ctx context.Context, self, name string) (toolcrib.Principal, error) {
	if err := s.OpenToRead(ctx); err != nil {
		return toolcrib.Principal{}, err
	}
	now, err := s.Standing().Standing(ctx, toolcrib.Principal{User: name, Actor: self})
	switch {
	case err != nil:
	case now.Refused != "":
		err = toolcrib.Errorf(toolcrib.CodeForbidden, "%s", now.Refused)
	default:
		err = s.tellUnadded(ctx, name)
	}
	return now.Principal, err
}

// maxNear bounds among how many names the nearest one is looked for.
const maxNear = 1000

// tellUnadded reports a name that nobody has, where others were added: it may be a slip
// of the finger, and nothing that restricts the one who was meant holds for it.
func (s *Service) tellUnadded(ctx context.Context, name string) error {
	if _, err := s.store.Access().User(ctx, name); !errors.Is(err, toolcrib.ErrNotFound) {
		return err
	}
	var names []string
	for u, err := range s.eachUser(ctx) {
		if err != nil {
			return err
		}
		if names = append(names, u.Name); len(names) == maxNear {
			break
		}
	}
	if len(names) == 0 {
		return nil
	}
	s.Notice(fmt.Sprintf("there is no user %s; a name without a user is not restricted; see users list%s", name,
		guard.DidYouMean(name, names)))
	return nil
}

// ActBy is whom an access token acts for, within its scope; self presents it, if that is
// known. A token that signs in is as good as its user. By any other nobody is an
// administrator, or has a role such as approver, outside of the gate: neither does it
// change anything, nor does it see what belongs to others.
func (s *Service) ActBy(ctx context.Context, self, token string) (who toolcrib.Principal, err error) {
	if err := s.OpenToRead(ctx); err != nil {
		return who, err
	}
	c, err := s.verified(ctx, token)
	if err != nil {
		return who, err
	}
	caller := "" // the token is all there is
	if c.Subject == access.Bearer {
		caller = standing.Anonymous
	}
	user, err := c.ActsFor(caller)
	if err != nil {
		return who, err
	}
	who = toolcrib.Principal{User: user, Actor: self, Token: c.ID}
	if c.Scope.SignIn {
		who.Token, who.SignIn = "", c.ID
	}
	now, err := s.Standing().Standing(ctx, who)
	if err == nil && now.Refused != "" {
		err = toolcrib.Errorf(toolcrib.CodeForbidden, "%s", now.Refused)
	}
	if who = now.Principal; !c.Scope.SignIn {
		who.Admin, who.Roles = false, nil
	}
	return who, err
}

// verified returns the claims of a token that is good now.
func (s *Service) verified(ctx context.Context, text string) (access.Claims, error) {
	if _, err := s.signer(); err != nil {
		return access.Claims{}, err
	}
	return s.people.verifier.Verify(ctx, text)
}

// signer signs tokens with a key that comes from those of the data folder, which are
// made with the database.
func (s *Service) signer() (*access.Signer, error) {
	s.people.Lock()
	defer s.people.Unlock()
	if s.people.signer != nil {
		return s.people.signer, nil
	}
	keys, err := s.Keys()
	if err != nil {
		return nil, err
	}
	signer, err := access.NewSigner(keys.Derive(access.KeyPurpose))
	if err == nil {
		s.people.signer, s.people.verifier = signer, &access.Verifier{
			Keys: []access.PublicKey{signer.Public()}, Audience: access.DefaultAudience, Now: s.Now,
			Revoked: func(ctx context.Context, c access.Claims) (string, error) { return s.Standing().WhyRevoked(ctx, c) },
		}
	}
	return signer, err
}

// Watches refuses who may not read how the whole of the data folder is used: administrators
// may, and access tokens of theirs, so that a program that collects metrics needs no right
// besides.
func (s *Service) Watches(ctx context.Context, who toolcrib.Principal) error {
	if who.Admin {
		return nil
	}
	if who.Token != "" {
		now, err := s.Standing().Standing(ctx, toolcrib.Principal{User: who.User})
		if err != nil || now.Refused == "" && now.Principal.Admin {
			return err
		}
	}
	return toolcrib.Errorf(toolcrib.CodeForbidden, "only administrators may read this")
}

// InScope returns an error with token_scope_insufficient if the access token by which a principal acts does
// not cover a call.
func (s *Service) InScope(ctx context.Context, who toolcrib.Principal, agent, tool string, args json.RawMessage) error {
	now, err := s.Standing().Standing(ctx, who)
	if err != nil || now.Token == nil {
		return err
	}
	return now.Token.Covers(agent, tool, args)
}

// OpenRuns is how many runs have not ended, by status.
func (s *Service) OpenRuns(ctx context.Context) (map[toolcrib.Status]int64, error) {
	return s.store.OpenRuns(ctx)
}

// Active is how many runs the pool drives.
func (p *Pool) Active() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.drives)
}
