// Package people administers who may use a data folder: users, groups, access tokens, and the audit log.
package people

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/access/standing"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/store"
)

// EndRuns ends the runs that match a filter, because their user or token is no longer valid as why says, or cancels
// them.
type EndRuns func(ctx context.Context, who toolcrib.Principal, f store.Filter, why string, cancel bool) error

// People are the users, groups and access tokens of a data folder. They are safe for use by several goroutines.
type People struct {
	env *env.Env
	// state is shared under all configurations of a data folder. Its fields are set when they are first used.
	state   *state
	endRuns EndRuns
}

// New returns the people of a data folder.
func New(e *env.Env, end EndRuns) *People {
	s := &state{hashing: make(chan struct{}, hashesAtOnce), waiting: make(chan struct{}, waitersAtOnce)}
	s.failures = rate.NewLimiter(rate.Every(time.Second), failuresAtOnce)
	return &People{e, s, end}
}

// failuresAtOnce bounds the entries of the audit log about failed sign-ins: that many at once, and one a second.
const failuresAtOnce = 60

// Under returns the people under another configuration.
func (s *People) Under(e *env.Env, end EndRuns) *People { return &People{e, s.state, end} }

// people is who may do what today, made at its first use.
type state struct {
	sync.Mutex
	standing *standing.People
	// signer returns the signer of tokens. Its key is derived from those of the data folder.
	signer   *access.Signer   // once it was needed; the store keeps its keys as long
	verifier *access.Verifier // with it
	clock    *access.Clock
	node     func(context.Context, toolcrib.Principal) (toolcrib.Trust, string, error) // of standing.Options

	hashing  chan struct{} // has an element for each password being checked
	waiting  chan struct{} // has an element for each sign-in that waits
	failures *rate.Limiter // of entries about failed sign-ins
	omitted  int           // failures without an entry since the last one with one
	place    string        // see storedSession
}

// Standing returns the current rights of users and tokens, for the gate and for commands.
func (s *People) Standing() *standing.People {
	s.state.Lock()
	defer s.state.Unlock()
	if s.state.standing == nil {
		// It fails without a source or a time only.
		s.state.standing, _ = standing.New(standing.Options{
			Source: s.env.Store.Access(), Now: s.Now, Age: standing.Fresh, Node: s.state.node,
		})
	}
	return s.state.standing
}

// SetNodes sets what looks up the other nodes of the bus ([standing.Options.Node]). It must be called before the first
// use.
func (s *People) SetNodes(node func(ctx context.Context, who toolcrib.Principal) (toolcrib.Trust, string, error)) {
	s.state.node = node
}

// never is later than any token is valid. It is used if the time is unknown.
var never = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// Now returns the time that tokens are checked against. It never goes back, and starts no earlier than the newest
// time that is stored.
func (s *People) Now() time.Time {
	s.state.Lock()
	defer s.state.Unlock()
	if s.state.clock == nil {
		latest, err := s.env.Store.Access().Latest(context.Background())
		if err != nil {
			latest = never
		}
		s.state.clock = access.NewClock(nil, latest)
	}
	return s.state.clock.Now()
}

// ActFor returns the principal of an administrator, self, who acts for a user.
func (s *People) ActFor(ctx context.Context, self, name string) (toolcrib.Principal, error) {
	if err := s.env.OpenToRead(ctx); err != nil {
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

// maxNear bounds among how many names the most similar one is searched.
const maxNear = 1000

// tellUnadded warns that no user has this name although others were added. It may be a typing error, and an unknown
// name has no restrictions.
func (s *People) tellUnadded(ctx context.Context, name string) error {
	if _, err := s.env.Store.Access().User(ctx, name); !errors.Is(err, toolcrib.ErrNotFound) {
		return err
	}
	var names []string
	for u, err := range s.EachUser(ctx) {
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
	s.env.Notice(fmt.Sprintf("there is no user %s; a name without a user is not restricted; see users list%s", name,
		guard.DidYouMean(name, names)))
	return nil
}

// ActBy returns the principal that an access token acts for, within its scope. self is who presents it, if known. A
// token that signs in is as good as its user. With any other token, the principal is never an administrator and has
// no roles outside of the gate.
func (s *People) ActBy(ctx context.Context, self, token string) (who toolcrib.Principal, err error) {
	if err := s.env.OpenToRead(ctx); err != nil {
		return who, err
	}
	c, err := s.verified(ctx, token)
	if err != nil {
		return who, err
	}
	return s.actOn(ctx, self, c)
}

// actOn returns the principal that the claims of a valid token act for.
func (s *People) actOn(ctx context.Context, self string, c access.Claims) (who toolcrib.Principal, err error) {
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

// verified returns the claims of a token that is valid now.
func (s *People) verified(ctx context.Context, text string) (access.Claims, error) {
	if _, err := s.signer(); err != nil {
		return access.Claims{}, err
	}
	return s.state.verifier.Verify(ctx, text)
}

// signer signs tokens with a key that comes from those of the data folder, which are made with the database.
func (s *People) signer() (*access.Signer, error) {
	s.state.Lock()
	defer s.state.Unlock()
	if s.state.signer != nil {
		return s.state.signer, nil
	}
	keys, err := s.env.Keys()
	if err != nil {
		return nil, err
	}
	signer, err := access.NewSigner(keys.Derive(access.KeyPurpose))
	if err == nil {
		s.state.signer, s.state.verifier = signer, &access.Verifier{
			Keys: []access.PublicKey{signer.Public()}, Audience: access.DefaultAudience, Now: s.Now,
			Revoked: func(ctx context.Context, c access.Claims) (string, error) { return s.Standing().WhyRevoked(ctx, c) },
		}
	}
	return signer, err
}

// Watches returns an error unless who may read how the whole data folder is used: administrators, and access tokens
// of administrators, so that a program that collects metrics needs no other rights.
func (s *People) Watches(ctx context.Context, who toolcrib.Principal) error {
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

// InScope returns an error with token_scope_insufficient if the access token of a principal does not cover a call.
func (s *People) InScope(ctx context.Context, who toolcrib.Principal, agent, tool string, args json.RawMessage) error {
	now, err := s.Standing().Standing(ctx, who)
	if err != nil || now.Token == nil {
		return err
	}
	return now.Token.Covers(agent, tool, args)
}
