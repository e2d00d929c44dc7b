// Package websession signs people in to a server with a cookie. The HTTP API and the pages share it: the state of a
// session is in the service, this package has the cookie, and refuses requests that a page of another site makes.
package websession

import (
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/oidc"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/people"
)

// maxCookie bounds a cookie that is looked up.
const maxCookie = 128

// Sessions are the sessions of the browsers that use a server. They are safe for concurrent use.
type Sessions struct {
	service func() *service.Service

	mu    sync.Mutex
	using *config.OIDC   // of known
	known *oidc.Provider // nil until it is needed
}

// New returns the sessions of a server. current returns its service under the configuration in effect.
func New(current func() *service.Service) *Sessions { return &Sessions{service: current} }

// Principal returns the current principal of the session of a request, and the session. A request without a cookie, one
// whose session has ended, and one that a page of another site may have made are errors with unauthorized or forbidden.
// The rights are looked up each time.
func (s *Sessions) Principal(r *http.Request) (toolcrib.Principal, people.WebSession, error) {
	return s.principal(r, true)
}

// Watch is [Sessions.Principal] for a request that is being answered. It does not count as a use of the session.
func (s *Sessions) Watch(r *http.Request) (toolcrib.Principal, people.WebSession, error) {
	return s.principal(r, false)
}

func (s *Sessions) principal(r *http.Request, used bool) (who toolcrib.Principal, w people.WebSession, err error) {
	cookie := s.Cookie(r)
	if cookie == "" {
		return who, w, toolcrib.Errorf(toolcrib.CodeUnauthorized, "sign in first")
	}
	if err := s.SameOrigin(r); err != nil {
		return who, w, err
	}
	return s.service().People.ActBySession(r.Context(), cookie, used)
}

// SameOrigin returns an error for a request with an effect that a page of another origin makes a browser send.
func (s *Sessions) SameOrigin(r *http.Request) error {
	if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") { // a GET with the effects of a POST
		post := *r
		post.Method = http.MethodPost
		r = &post
	}
	if http.NewCrossOriginProtection().Check(r) != nil {
		return toolcrib.Errorf(toolcrib.CodeForbidden, "a page of another origin has sent this request; open this server's own")
	}
	return nil
}

// Cookie returns the cookie of a request, or "". It is as secret as a password.
func (s *Sessions) Cookie(r *http.Request) string {
	c, err := r.Cookie(s.name(r))
	if err != nil || len(c.Value) > maxCookie {
		return ""
	}
	return c.Value
}

// SignIn begins a session with a name and a password. The errors are those of [people.People.SignIn].
func (s *Sessions) SignIn(w http.ResponseWriter, r *http.Request, name, password string) (people.WebSession, error) {
	return s.begin(w, r, func(p *people.People, from people.Client) (people.SignedIn, error) {
		return p.SignIn(r.Context(), name, password, from)
	})
}

// SignInByToken begins a session that acts as an access token does, and ends with it.
func (s *Sessions) SignInByToken(w http.ResponseWriter, r *http.Request, token string) (people.WebSession, error) {
	return s.begin(w, r, func(p *people.People, from people.Client) (people.SignedIn, error) {
		return p.SignInByToken(r.Context(), token, from)
	})
}

// begin sets the cookie of a new session, and ends the one that the browser had.
func (s *Sessions) begin(
	w http.ResponseWriter, r *http.Request, signIn func(*people.People, people.Client) (people.SignedIn, error),
) (people.WebSession, error) {
	if err := s.SameOrigin(r); err != nil {
		return people.WebSession{}, err
	}
	p := s.service().People
	from := people.Client{Address: s.Address(r), Agent: r.UserAgent()}
	if c, none := r.Cookie(s.name(r) + deviceSuffix); none == nil {
		from.Device = c.Value
	}
	// If the connection supports it. A sign-in may be delayed.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(people.SignInTimeout))
	in, err := signIn(p, from)
	if err != nil {
		return people.WebSession{}, err
	}
	if old := s.Cookie(r); old != "" {
		if _, err := p.SignOut(r.Context(), old); err != nil {
			return people.WebSession{}, err
		}
	}
	if in.Device != "" {
		s.set(w, r, deviceSuffix, in.Device, time.Now().Add(people.DeviceTTL))
	}
	s.set(w, r, "", in.Cookie, in.Expires)
	return in.WebSession, nil
}

// SignOut ends the session of a request, and removes the cookie. Runs continue. It returns the session as it was; the
// zero value if there was none.
func (s *Sessions) SignOut(w http.ResponseWriter, r *http.Request) (old people.WebSession, err error) {
	if err := s.SameOrigin(r); err != nil {
		return old, err
	}
	if cookie := s.Cookie(r); cookie != "" {
		old, err = s.service().People.SignOut(r.Context(), cookie)
	}
	s.set(w, r, "", "", time.Time{})
	return old, err
}

// deviceSuffix is what the name of the cookie ends in by which a browser is known again ([people.SignedIn.Device]).
const deviceSuffix = "_known"

// set sets the cookie with a suffix, which is "" for that of a session, or removes it if value is "".
func (s *Sessions) set(w http.ResponseWriter, r *http.Request, suffix, value string, expires time.Time) {
	c := &http.Cookie{
		Name: s.name(r) + suffix, Value: value, Path: "/", Expires: expires, HttpOnly: true, Secure: s.Secure(r),
		SameSite: http.SameSiteLaxMode,
	}
	if value == "" {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}

// name returns the name of the cookie. Browsers accept one with the prefix only over TLS and for this host alone.
// Without TLS, servers at several ports of a machine share their cookies, so that the port is in the name.
func (s *Sessions) name(r *http.Request) string {
	if s.Secure(r) {
		return "__Host-toolcrib"
	}
	_, port, err := net.SplitHostPort(r.Host)
	if err != nil || strings.ContainsFunc(port, func(c rune) bool { return c < '0' || c > '9' }) {
		port = "80"
	}
	return "toolcrib_" + port
}

// Secure reports whether the browser reaches the server over TLS: by itself, or through a proxy whose public origin is
// is server.origin or in server.cors.
func (s *Sessions) Secure(r *http.Request) bool {
	c := &s.service().Env.Config.Server
	here := func(origin string) bool { return strings.EqualFold(origin, "https://"+r.Host) }
	return r.TLS != nil || here(c.Origin) || slices.ContainsFunc(c.CORS, here)
}
