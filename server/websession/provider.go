package websession

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/oidc"
	"github.com/toolcrib/toolcrib/service/people"
)

const (
	// CallbackPath is where the provider sends the browser after a sign-in.
	CallbackPath = "/api/oidc/callback"

	flowLasts = 10 * time.Minute // from its begin to its end at the provider
	maxFlow   = 4000
	maxNext   = 1024
)

// flowPurpose is the purpose of the key that encrypts a flow.
const flowPurpose = "sign-in at a provider"

// flow is what the browser keeps of a sign-in at the provider, encrypted.
type flow struct {
	oidc.Flow
	Issuer string    `json:"issuer"`
	Next   string    `json:"next"`
	Until  time.Time `json:"until"`
}

// HasProvider reports whether people can sign in by a provider.
func (s *Sessions) HasProvider() bool { return s.service().Env.Config.Server.OIDC.Issuer != "" }

// provider returns the provider of the configuration in effect.
func (s *Sessions) provider() (*oidc.Provider, *config.OIDC, error) {
	now := s.service()
	c := &now.Env.Config.Server.OIDC
	if c.Issuer == "" {
		return nil, c, toolcrib.Errorf(toolcrib.CodeNotFound, "nobody signs in here by a provider (server.oidc)")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.using != c {
		r := now.Env.Resolver()
		id, err := c.ClientID.Resolve(r)
		if err != nil {
			return nil, c, err
		}
		secret, err := c.ClientSecret.Resolve(r)
		if err != nil {
			return nil, c, err
		}
		o := oidc.Options{Issuer: c.Issuer, ClientID: id, ClientSecret: secret, Scopes: c.Scopes, Now: now.People.Now}
		for _, claim := range []string{c.UserClaim, c.GroupsClaim} {
			if claim != "" {
				o.Wanted = append(o.Wanted, claim)
			}
		}
		if s.known != nil {
			s.known.Close()
		}
		s.using, s.known = c, oidc.New(o)
	}
	return s.known, c, nil
}

// Begin begins a sign-in by the provider, and returns the address there to which the browser goes. next is the page of
// this server that it opens in the end; one of another server is replaced by /.
func (s *Sessions) Begin(w http.ResponseWriter, r *http.Request, next string) (at string, err error) {
	p, c, err := s.provider()
	if err != nil {
		return "", err
	}
	f := flow{Issuer: c.Issuer, Next: Local(next), Until: time.Now().Add(flowLasts)}
	if at, f.Flow, err = p.Begin(r.Context(), s.Origin(r)+CallbackPath); err != nil {
		return "", err
	}
	sealed, err := s.service().People.Sealed(flowPurpose, f)
	if err != nil {
		return "", err
	}
	s.setFlow(w, r, sealed)
	return at, nil
}

// setFlow sets the cookie of a sign-in by the provider, or removes it if value is "".
func (s *Sessions) setFlow(w http.ResponseWriter, r *http.Request, value string) {
	c := &http.Cookie{
		Name: s.name(r) + "_provider", Value: value, Path: "/", MaxAge: int(flowLasts.Seconds()), HttpOnly: true,
		Secure: s.Secure(r), SameSite: http.SameSiteLaxMode,
	}
	if value == "" {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}

// Finish ends a sign-in by the provider, which has sent the browser to CallbackPath, and begins a session. It returns
// the page to open. The errors are those of [oidc.Provider.Finish] and [people.People.SignInByProvider].
func (s *Sessions) Finish(w http.ResponseWriter, r *http.Request) (next string, err error) {
	p, c, err := s.provider()
	if err != nil {
		return "", err
	}
	var f flow
	if kept, none := r.Cookie(s.name(r) + "_provider"); none == nil && len(kept.Value) <= maxFlow {
		if _, err := s.service().People.Unsealed(flowPurpose, kept.Value, &f); err != nil {
			return "", err
		}
	}
	s.setFlow(w, r, "") // it is used once, whatever comes of it
	if f.Issuer != c.Issuer || time.Now().After(f.Until) {
		f.State = ""
	}
	who, err := p.Finish(r.Context(), f.Flow, r.URL.Query())
	if err != nil {
		return "", err
	}
	_, err = s.begin(w, r, func(of *people.People, from people.Client) (people.SignedIn, error) {
		return of.SignInByProvider(r.Context(), who, from)
	})
	return Local(f.Next), err
}

// EndURL returns the address at the provider that ends the session there too, for the browser of a session that has
// ended; "" if the session was not by a provider, or it has no such address.
func (s *Sessions) EndURL(r *http.Request, old people.WebSession) string {
	p, c, err := s.provider()
	if err != nil || old.OIDC == nil || old.OIDC.Issuer != c.Issuer {
		return ""
	}
	return p.EndURL(r.Context(), old.OIDC.IDToken, s.Origin(r)+"/")
}

// Ended ends the sessions that the provider has ended, which it says by a request of its own (back-channel logout).
func (s *Sessions) Ended(r *http.Request, logoutToken string) error {
	p, c, err := s.provider()
	if err != nil {
		return err
	}
	subject, session, err := p.Ended(r.Context(), logoutToken)
	if err != nil {
		return err
	}
	return s.service().People.EndByProvider(r.Context(), c.Issuer, subject, session)
}

// Origin returns the origin under which the browser reaches the server: that of the configuration, if it has one.
func (s *Sessions) Origin(r *http.Request) string {
	if origin := s.service().Env.Config.Server.Origin; origin != "" {
		return origin
	}
	if s.Secure(r) {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// Local returns the path and query of a page of this server, or / for any other address.
func Local(next string) string {
	u, err := url.Parse(next)
	strange := strings.ContainsFunc(next, func(c rune) bool { return c <= ' ' || c == '\\' || c == 0x7f })
	if err != nil || strange || u.Host != "" || u.Scheme != "" || u.User != nil || len(next) > maxNext ||
		!strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") {
		return "/"
	}
	return next
}
