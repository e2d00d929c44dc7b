package server

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
)

// lookEvery is how often the tokens of those who are being answered are looked at. What another
// process changes is known within half a second more (contract §6).
const lookEvery = 200 * time.Millisecond

// guests are the requests that are being answered, by the head that has their token.
type guests struct {
	mu sync.Mutex
	of map[string]map[*http.Request]answered
}

// answered ends the context of a request. It may hold what only an administrator sees if admin is set.
type answered struct {
	admin bool
	end   context.CancelCauseFunc
}

// staysWhileGood ends the context of a request when its token is no longer good, or no longer that of an
// administrator, with why as its cause. leave must be called.
func (s *Server) staysWhileGood(r *http.Request, admin bool) (ctx context.Context, leave func()) {
	ctx, end := context.WithCancelCause(r.Context())
	head, g := r.Header.Get("Authorization"), &s.guests
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.of == nil {
		g.of = map[string]map[*http.Request]answered{}
	}
	if g.of[head] == nil {
		g.of[head] = map[*http.Request]answered{}
	}
	g.of[head][r] = answered{admin, end}
	return ctx, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if delete(g.of[head], r); len(g.of[head]) == 0 {
			delete(g.of, head)
		}
		end(nil)
	}
}

// watchTokens ends requests whose tokens are no longer good, until ctx ends.
func (s *Server) watchTokens(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, one := range s.guests.each() {
			head := one.Header.Get("Authorization")
			who, err := s.who(one.WithContext(ctx))
			switch {
			case lostRights(err):
				s.guests.end(head, err, false)
			case err == nil && !who.Admin:
				s.guests.end(head, toolcrib.Errorf(toolcrib.CodeForbidden, "%s is no longer an administrator", who.User), true)
			}
		}
	}
}

// each returns a request of each token.
func (g *guests) each() (list []*http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, all := range g.of {
		for r := range all {
			list = append(list, r)
			break
		}
	}
	return list
}

// end ends the requests of a token, or those that began as an administrator's.
func (g *guests) end(head string, why error, admins bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, one := range g.of[head] {
		if one.admin || !admins {
			one.end(why)
		}
	}
}

// lostRights reports whether who asked no longer may. That a token cannot be checked at the moment is
// no such case.
func lostRights(err error) bool {
	switch toolcrib.CodeOf(err) {
	case toolcrib.CodeUnauthorized, toolcrib.CodeForbidden, toolcrib.CodeTokenInvalid, toolcrib.CodeTokenRevoked,
		toolcrib.CodeTokenExpired:
		return true
	}
	return false
}

// revoked returns why the token of a request is no longer good; nil = it was when it was last looked at.
func (c *call) revoked() error {
	if err := context.Cause(c); lostRights(err) && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
