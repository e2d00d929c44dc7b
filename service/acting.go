package service

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/access/standing"
	"github.com/toolcrib/toolcrib/guard"
)

// people is who may do what today, made at its first use.
type people struct {
	sync.Mutex
	standing *standing.People
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

// tellUnadded tells of a name that nobody has, where others were added: it may be a slip
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
	text := fmt.Sprintf("there is no user %s; a name without a user is not restricted; see users list", name)
	if near := guard.Nearest(name, names); near != "" {
		text += fmt.Sprintf(" (did you mean %q?)", near)
	}
	s.Notice(text)
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
		who.Token = ""
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
	signer, err := s.signer()
	if err != nil {
		return access.Claims{}, err
	}
	kept := s.store.Access()
	v := &access.Verifier{
		Keys: []access.PublicKey{signer.Public()}, Audience: access.DefaultAudience, Now: s.Now,
		Revoked: func(ctx context.Context, c access.Claims) (string, error) {
			return access.WhyRevoked(ctx, kept, kept, c)
		},
	}
	return v.Verify(ctx, text)
}

// signer signs tokens with a key that comes from those of the data folder, which are
// made with the database.
func (s *Service) signer() (*access.Signer, error) {
	keys, err := s.Keys()
	if err != nil {
		return nil, err
	}
	return access.NewSigner(keys.Derive(access.KeyPurpose), 0)
}
