package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/access/standing"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/store"
)

// Sessions returns a page of the sessions that fit and that who may see; by an access
// token those that are all its own.
func (s *Service) Sessions(
	ctx context.Context, who toolcrib.Principal, f store.SessionFilter,
) (store.SessionPage, error) {
	runs, ok := env.Seen(who, store.Filter{User: f.User})
	if !ok {
		return store.SessionPage{}, nil
	}
	f.User, f.Token = runs.User, runs.Token
	return s.Env.Store.Sessions(ctx, f)
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
		info, err = s.Env.Store.Session(ctx, who.User, name)
	}
	if errors.Is(err, toolcrib.ErrNotFound) && env.Admin(who) {
		if info, err = s.Env.Store.Session(ctx, "", name); err == nil && string(info.ID) != name {
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
	for range env.PartsLooked / store.MaxLimit {
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
	info, err := env.ByPart("session", store.SessionPrefix, part, fit, id)
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
	for rec, err := range s.Env.Each(ctx, store.Filter{User: info.User, Session: info.ID, TopLevel: true}) {
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
		s.people.standing, _ = standing.New(standing.Options{Source: s.Env.Store.Access(), Now: s.Now, Age: standing.Fresh})
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
		latest, err := s.Env.Store.Access().Latest(context.Background())
		if err != nil {
			latest = never
		}
		s.people.clock = access.NewClock(nil, latest)
	}
	return s.people.clock.Now()
}

// ActFor is the user for whom an administrator, self, acts (contract §1).
func (s *Service) ActFor(ctx context.Context, self, name string) (toolcrib.Principal, error) {
	if err := s.Env.OpenToRead(ctx); err != nil {
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
	if _, err := s.Env.Store.Access().User(ctx, name); !errors.Is(err, toolcrib.ErrNotFound) {
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
	s.Env.Notice(fmt.Sprintf("there is no user %s; a name without a user is not restricted; see users list%s", name,
		guard.DidYouMean(name, names)))
	return nil
}

// ActBy is whom an access token acts for, within its scope; self presents it, if that is
// known. A token that signs in is as good as its user. By any other nobody is an
// administrator, or has a role such as approver, outside of the gate: neither does it
// change anything, nor does it see what belongs to others.
func (s *Service) ActBy(ctx context.Context, self, token string) (who toolcrib.Principal, err error) {
	if err := s.Env.OpenToRead(ctx); err != nil {
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
	keys, err := s.Env.Keys()
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
	return s.Env.Store.OpenRuns(ctx)
}

// Active is how many runs the pool drives.
func (p *Pool) Active() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.drives)
}
