package server

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
)

// lookEvery is how often the tokens of requests being answered are checked. Changes by another process are
// seen within a further half second.
const lookEvery = 200 * time.Millisecond

// inFlight are the requests being answered, by their credentials.
type inFlight struct {
	mu sync.Mutex
	of map[string]map[*http.Request]answered
}

// answered ends the context of a request. The answer may have what is only for who as they were when it began.
type answered struct {
	who toolcrib.Principal
	end context.CancelCauseFunc
}

// whileValid returns the context of a request, which ends when its token becomes invalid, or its user loses
// administration or a role, with the reason as its cause. leave must be called.
func (s *Server) whileValid(r *http.Request, who toolcrib.Principal) (ctx context.Context, leave func()) {
	ctx, end := context.WithCancelCause(r.Context())
	head, g := s.credential(r), &s.inFlight
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.of == nil {
		g.of = map[string]map[*http.Request]answered{}
	}
	if g.of[head] == nil {
		g.of[head] = map[*http.Request]answered{}
	}
	g.of[head][r] = answered{who, end}
	return ctx, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if delete(g.of[head], r); len(g.of[head]) == 0 {
			delete(g.of, head)
		}
		end(nil)
	}
}

// watchTokens ends requests whose tokens become invalid, until ctx ends.
func (s *Server) watchTokens(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, one := range s.inFlight.each() {
			head := s.credential(one)
			who, err := s.principal(one.WithContext(ctx), s.web.Watch)
			switch {
			case lostRights(err):
				s.inFlight.end(head, func(toolcrib.Principal) error { return err })
			case err == nil:
				s.inFlight.end(head, func(before toolcrib.Principal) error { return withdrawn(before, who) })
			}
		}
	}
}

// each returns one request of each token.
func (g *inFlight) each() (list []*http.Request) {
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

// end ends the requests of a token for which why, which is given their principal, returns an error.
func (g *inFlight) end(head string, why func(before toolcrib.Principal) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, one := range g.of[head] {
		if err := why(one.who); err != nil {
			one.end(err)
		}
	}
}

// withdrawn returns an error if a user had administration, or a role, that they no longer have.
func withdrawn(before, now toolcrib.Principal) error {
	if before.Admin && !now.Admin {
		return toolcrib.Errorf(toolcrib.CodeForbidden, "%s is no longer an administrator", now.User)
	}
	for _, role := range before.Roles {
		if !slices.Contains(now.Roles, role) {
			return toolcrib.Errorf(toolcrib.CodeForbidden, "%s no longer has the role %s", now.User, role)
		}
	}
	return nil
}

// lostRights reports whether err means that a token is no longer valid. That it cannot be checked at the
// moment does not.
func lostRights(err error) bool {
	switch toolcrib.CodeOf(err) {
	case toolcrib.CodeUnauthorized, toolcrib.CodeForbidden, toolcrib.CodeTokenInvalid, toolcrib.CodeTokenRevoked,
		toolcrib.CodeTokenExpired:
		return true
	}
	return false
}

// revoked returns why the token of a request is no longer valid, or nil if the last check found it valid.
func (c *call) revoked() error {
	if err := context.Cause(c); lostRights(err) && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
