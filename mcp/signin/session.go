package signin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/hosts"
)

// Credentials are what a sign-in to one server has given. They are of one issuer, and go to
// no other.
type Credentials struct {
	URL      string `json:"url"`      // of the server
	Resource string `json:"resource"` // as the server calls itself
	Issuer   string `json:"issuer"`
	Private  bool   `json:"private,omitempty"` // an administrator has named the issuer

	TokenURL     string `json:"token_url"`
	RevokeURL    string `json:"revoke_url,omitempty"`
	ClientID     string `json:"client_id"`
	ClientSecret string `json:"client_secret,omitempty"`
	InHeader     bool   `json:"in_header,omitempty"` // how the client shows its secret

	Scopes  []string  `json:"scopes"`
	Wanted  []string  `json:"wanted,omitempty"` // scopes that the server has asked for since
	Access  string    `json:"access"`
	Refresh string    `json:"refresh,omitempty"` // "" = it cannot be refreshed
	Expires time.Time `json:"expires,omitzero"`  // zero = the server says when
}

// Secrets are what must not be shown.
func (c *Credentials) Secrets() []string {
	return slices.DeleteFunc([]string{c.Access, c.Refresh, c.ClientSecret}, func(s string) bool { return s == "" })
}

// early is how long before its end a token is refreshed.
const early = 10 * time.Second

func (c *Credentials) expired() bool {
	return !c.Expires.IsZero() && !time.Now().Add(early).Before(c.Expires)
}

// private reports whether the issuer may be at an address that is not public.
func (c *Credentials) private(server *url.URL) bool {
	return c.Private || hosts.Loopback(server.Hostname())
}

// client is an HTTP client for the endpoints of the issuer.
func (c *Credentials) client() (*http.Client, error) {
	at, err := address(c.URL)
	if err != nil {
		return nil, err
	}
	return client(at, c.private(at)), nil
}

// trade gets tokens for a grant. After an error, all is as it was.
func (c *Credentials) trade(ctx context.Context, client *http.Client, grant url.Values) error {
	grant.Set("resource", c.Resource)
	request := clientcredentials.Config{
		ClientID: c.ClientID, ClientSecret: c.ClientSecret, TokenURL: c.TokenURL, EndpointParams: grant,
		AuthStyle: oauth2.AuthStyleInParams,
	}
	if c.InHeader {
		request.AuthStyle = oauth2.AuthStyleInHeader
	}
	token, err := request.Token(context.WithValue(ctx, oauth2.HTTPClient, client))
	if err != nil {
		return fmt.Errorf("%s issued no token: %w", c.Issuer, cleaned(err))
	}
	other, _ := token.Extra("resource").(string)
	switch {
	case !strings.EqualFold(token.Type(), "bearer"):
		err = fmt.Errorf("a token of an unsupported type: %s", clean(token.TokenType))
	case !isToken(token.AccessToken) || token.RefreshToken != "" && !isToken(token.RefreshToken):
		err = errors.New("an invalid token")
	case other != "" && other != c.Resource:
		err = fmt.Errorf("a token for another server: %s", clean(other))
	}
	if err != nil {
		return fmt.Errorf("%s gives %w", c.Issuer, err)
	}
	if granted, ok := token.Extra("scope").(string); ok {
		if scopes := strings.Fields(granted); boundScopes(scopes) == nil {
			c.Scopes = scopes
		}
	}
	c.Access, c.Expires = token.AccessToken, token.Expiry.Round(0) // a sleeping machine's clock for times stands still
	c.Refresh = token.RefreshToken                                 // the one that was sent, if there is no new one
	return nil
}

// isToken reports whether a text can be in a header.
func isToken(text string) bool {
	return text != "" && len(text) <= maxToken &&
		!strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}

// Revoke tells the issuer that the tokens are not used any longer (RFC 7009). It reports
// whether the issuer takes that.
func (c *Credentials) Revoke(ctx context.Context) (bool, error) {
	if c.RevokeURL == "" {
		return false, nil
	}
	client, err := c.client()
	if err != nil {
		return false, err
	}
	for kind, token := range map[string]string{"refresh_token": c.Refresh, "access_token": c.Access} {
		if token == "" {
			continue
		}
		form := url.Values{"token": {token}, "token_type_hint": {kind}}
		if !c.InHeader {
			form.Set("client_id", c.ClientID)
			if c.ClientSecret != "" {
				form.Set("client_secret", c.ClientSecret)
			}
		}
		q, err := http.NewRequestWithContext(ctx, http.MethodPost, c.RevokeURL, strings.NewReader(form.Encode()))
		if err != nil {
			return false, err
		}
		q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if c.InHeader {
			q.SetBasicAuth(url.QueryEscape(c.ClientID), url.QueryEscape(c.ClientSecret))
		}
		r, err := client.Do(q)
		if err != nil {
			return false, fmt.Errorf("%s: %w", c.Issuer, cleaned(err))
		}
		_ = r.Body.Close() // it says nothing that is needed
		if r.StatusCode != http.StatusOK {
			return false, fmt.Errorf("%s does not revoke the tokens: %s", c.Issuer, clean(r.Status))
		}
	}
	return true, nil
}

// Store keeps the credentials of one server, for all processes that use it.
type Store interface {
	// Load returns the credentials, or nil.
	Load() (*Credentials, error)
	// Save keeps credentials instead of those that are there.
	Save(c *Credentials) error
	// Lock keeps other processes from refreshing at the same time.
	Lock() (unlock func(), err error)
}

// Session is a server that somebody may have signed in to. It is safe for concurrent use.
type Session struct {
	server *url.URL
	login  string // the command that signs in
	store  Store

	// now are the credentials, which do not change; if nil, nobody has looked. Those of
	// nobody are zero.
	now      atomic.Pointer[Credentials]
	renewing sync.Mutex // of who changes now
	refused  atomic.Pointer[refusal]
}

// refusal is the error after credentials, or nobody's, were refused, or could not be refreshed.
// It is the error of the next requests, too: a client that then tries another protocol must
// not hide it, and those that wait do not all try to refresh.
type refusal struct {
	of    *Credentials
	err   error
	until time.Time
}

// refusalLasts is longer than a client needs to try another protocol.
const refusalLasts = time.Second

// NewSession returns the session of a server. login is the command that signs in, for errors.
func NewSession(server, login string, store Store) (*Session, error) {
	at, err := address(server)
	if err != nil {
		return nil, err
	}
	return &Session{server: at, login: login, store: store}, nil
}

// Transport sends requests with the token of the session, and refreshes that. It asks nobody:
// if a person must sign in, its error says how. Requests to other servers are refused.
func (s *Session) Transport(inner http.RoundTripper) http.RoundTripper {
	return round(func(q *http.Request) (*http.Response, error) {
		r, err := s.send(inner, q)
		if err != nil && q.Body != nil {
			_ = q.Body.Close() // which a request that was not sent must do, too
		}
		return r, err
	})
}

func (s *Session) send(inner http.RoundTripper, q *http.Request) (*http.Response, error) {
	if q.URL.Scheme != s.server.Scheme || q.URL.Host != s.server.Host {
		return nil, fmt.Errorf("it names an address of another server: %s", clean(q.URL.Host))
	}
	token, err := s.token(q.Context(), "")
	for again := false; err == nil; again = true {
		var r *http.Response
		r, err = inner.RoundTrip(withToken(q, token))
		if err != nil || r.StatusCode != http.StatusUnauthorized && r.StatusCode != http.StatusForbidden {
			return r, err
		}
		challenges, _ := oauthex.ParseWWWAuthenticate(r.Header.Values("WWW-Authenticate")) // what can be read of it
		if r.StatusCode == http.StatusForbidden && parameter(challenges, "error") != "insufficient_scope" {
			return r, nil
		}
		_ = r.Body.Close() // nothing of it was used
		switch {
		case r.StatusCode == http.StatusForbidden:
			return nil, s.short(strings.Fields(parameter(challenges, "scope")))
		case again || q.Body != nil && q.GetBody == nil:
			return nil, s.needs("it refuses the sign-in")
		}
		if token, err = s.token(q.Context(), cmp.Or(token, "none")); err == nil && q.Body != nil {
			q = q.Clone(q.Context())
			q.Body, err = q.GetBody()
		}
	}
	return nil, err
}

// withToken returns a request with a token; if "", without.
func withToken(q *http.Request, token string) *http.Request {
	if token != "" {
		q = q.Clone(q.Context())
		q.Header.Set("Authorization", "Bearer "+token)
	}
	return q
}

// The errors of a refresh, before what is wrong.
var (
	errRefresh = toolcrib.Errorf(toolcrib.CodeProviderFailed, "the sign-in cannot be refreshed")
	errKeep    = toolcrib.Errorf(toolcrib.CodeInternal, "the refreshed sign-in cannot be stored")
)

// needs is the error that a person must sign in. Its [toolcrib.Error] has no words of a server.
func (s *Session) needs(why string) error {
	return s.refuse(toolcrib.Errorf(toolcrib.CodeUnauthorized, "%s; to sign in: %s", why, s.login))
}

func (s *Session) refuse(err error) error {
	s.refused.Store(&refusal{s.now.Load(), err, time.Now().Add(refusalLasts)})
	return err
}

// refusal returns the error of the credentials of now, if it still lasts.
func (s *Session) refusal() error {
	if last := s.refused.Load(); last != nil && last.of == s.now.Load() && time.Now().Before(last.until) {
		return last.err
	}
	return nil
}

// short keeps which scopes the server wants, for the next sign-in.
func (s *Session) short(scopes []string) error {
	err := toolcrib.Errorf(toolcrib.CodeScopeInsufficient, "this needs more than the sign-in allows; to allow it: %s", s.login)
	if boundScopes(scopes) == nil && len(scopes) > 0 {
		s.renewing.Lock()
		defer s.renewing.Unlock()
		if unlock, err := s.store.Lock(); err == nil {
			defer unlock()
			if c, err := s.load(); err == nil && c.Access != "" {
				next := *c
				next.Wanted = union(c.Wanted, scopes)
				if boundScopes(next.Wanted) == nil && !slices.Equal(next.Wanted, c.Wanted) {
					_ = s.save(&next) // without it the next sign-in asks for less, and this is said again
				}
			}
		}
	}
	return err
}

// token returns a token other than the one that was refused, "" if nobody has signed in. The
// caller waits no longer than it wants; a refresh that has begun is finished, and kept.
func (s *Session) token(ctx context.Context, refused string) (string, error) {
	if err := s.refusal(); err != nil {
		return "", err
	}
	if c := s.now.Load(); c != nil && refused == "" && !c.expired() {
		return c.Access, nil
	}
	type result struct {
		token string
		err   error
	}
	done := make(chan result, 1)
	go func() {
		s.renewing.Lock()
		defer s.renewing.Unlock()
		token, err := s.fresh(context.WithoutCancel(ctx), refused)
		done <- result{token, err}
	}()
	select {
	case r := <-done:
		return r.token, r.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// load reads the credentials for this server; those of nobody are zero.
func (s *Session) load() (*Credentials, error) {
	c, err := s.store.Load()
	if err != nil {
		return nil, fmt.Errorf("the sign-in cannot be read: %w", err)
	}
	if c == nil || c.URL != s.server.String() {
		c = new(Credentials)
	}
	s.now.Store(c)
	return c, nil
}

func (s *Session) save(c *Credentials) error {
	s.now.Store(c) // it holds here, also if it cannot be kept for others
	return s.store.Save(c)
}

// fresh returns a token other than the refused one: of another process that has refreshed or
// signed in, or by refreshing.
func (s *Session) fresh(ctx context.Context, refused string) (string, error) {
	if err := s.refusal(); err != nil { // while this waited
		return "", err
	}
	usable := func(c *Credentials) bool { return c.Access != refused && !c.expired() }
	c, err := s.load()
	switch {
	case err != nil && refused == "": // it may need no sign-in
		s.now.Store(new(Credentials))
		return "", nil
	case err != nil:
		return "", err
	}
	if c.Access != "" && !usable(c) {
		unlock, err := s.store.Lock()
		if err != nil {
			return "", fmt.Errorf("%w: %w", errRefresh, err)
		}
		defer unlock()
		if c, err = s.load(); err != nil { // another process may have been first
			return "", err
		}
	}
	switch {
	case c.URL == "" && refused == "":
		return "", nil
	case c.URL == "":
		return "", s.needs("it asks for a sign-in")
	case usable(c):
		return c.Access, nil
	case c.Refresh == "":
		return "", s.needs("the sign-in has expired")
	}
	client, err := c.client()
	if err != nil {
		return "", err
	}
	next := *c
	err = next.trade(ctx, client, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {c.Refresh}})
	var ended *answered
	switch {
	case errors.As(err, &ended) && (ended.code == "invalid_grant" || ended.code == "invalid_client"):
		next.Refresh, next.Expires = "", time.Unix(0, 0)
		_ = s.save(&next) // without it the refresh token is refused once more
		return "", fmt.Errorf("%w (%w)", s.needs("the sign-in has ended"), ended)
	case err != nil:
		return "", s.refuse(fmt.Errorf("%w: %w", errRefresh, err))
	}
	if err := s.save(&next); err != nil {
		return "", fmt.Errorf("%w: %w", errKeep, err)
	}
	return next.Access, nil
}
