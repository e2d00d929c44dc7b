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

// Credentials are the result of a sign-in to one server. They belong to one issuer, and are sent to no other.
type Credentials struct {
	URL      string `json:"url"`      // URL of the server
	Resource string `json:"resource"` // the server's own identifier
	Issuer   string `json:"issuer"`
	Private  bool   `json:"private,omitempty"` // an administrator named the issuer

	TokenURL     string `json:"token_url"`
	RevokeURL    string `json:"revoke_url,omitempty"`
	ClientID     string `json:"client_id"`
	ClientSecret string `json:"client_secret,omitempty"`
	InHeader     bool   `json:"in_header,omitempty"` // the client sends its secret in a header

	Scopes  []string  `json:"scopes"`
	Wanted  []string  `json:"wanted,omitempty"` // scopes that the server has asked for since
	Access  string    `json:"access"`
	Refresh string    `json:"refresh,omitempty"` // "" if it cannot be refreshed
	Expires time.Time `json:"expires,omitzero"`  // zero if only the server knows
}

// Secrets returns the values that must not be shown.
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

// client returns an HTTP client for the endpoints of the issuer.
func (c *Credentials) client() (*http.Client, error) {
	at, err := address(c.URL)
	if err != nil {
		return nil, err
	}
	return client(at, c.private(at)), nil
}

// exchange exchanges a grant for tokens. If it returns an error, c is unchanged.
func (c *Credentials) exchange(ctx context.Context, client *http.Client, grant url.Values) error {
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
	c.Access, c.Expires = token.AccessToken, token.Expiry.Round(0) // the monotonic clock stops while a machine sleeps
	c.Refresh = token.RefreshToken                                 // the one that was sent, if the answer has none
	return nil
}

// isToken reports whether a text can be sent as a token in a header.
func isToken(text string) bool {
	return text != "" && len(text) <= maxToken &&
		!strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}

// Revoke notifies the issuer that the tokens are no longer used (RFC 7009). It reports whether the issuer supports
// that.
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
		_ = r.Body.Close() // the body is not needed
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
	// Save stores credentials in place of the previous ones.
	Save(c *Credentials) error
	// Lock keeps other processes from refreshing at the same time.
	Lock() (unlock func(), err error)
}

// Session is a server that a person may have signed in to. It is safe for concurrent use.
type Session struct {
	server *url.URL
	login  string // the command that signs in
	store  Store

	// now has the credentials, which are never modified. It is nil until they are loaded. They are zero if no person
	// has signed in.
	now      atomic.Pointer[Credentials]
	renewing sync.Mutex // held while now is changed
	refused  atomic.Pointer[refusal]
}

// refusal is the error after a request was refused, or credentials could not be refreshed. It is also the error of
// the next requests, so that a client that then tries another protocol does not hide it, and requests that wait do
// not all try to refresh.
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

// Transport sends requests with the token of the session, and refreshes the token. It never asks a person: if one
// must sign in, its error says how. Requests to other servers are refused.
func (s *Session) Transport(inner http.RoundTripper) http.RoundTripper {
	return round(func(q *http.Request) (*http.Response, error) {
		r, err := s.send(inner, q)
		if err != nil && q.Body != nil {
			_ = q.Body.Close() // required also for a request that was not sent
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
		challenges, _ := oauthex.ParseWWWAuthenticate(r.Header.Values("WWW-Authenticate")) // its parsable parts
		if r.StatusCode == http.StatusForbidden && parameter(challenges, "error") != "insufficient_scope" {
			return r, nil
		}
		_ = r.Body.Close() // nothing of it was used
		switch {
		case r.StatusCode == http.StatusForbidden:
			return nil, s.needsScopes(strings.Fields(parameter(challenges, "scope")))
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

// withToken returns a request with a token. If token is "", it returns the request as it is.
func withToken(q *http.Request, token string) *http.Request {
	if token != "" {
		q = q.Clone(q.Context())
		q.Header.Set("Authorization", "Bearer "+token)
	}
	return q
}

// Errors of a refresh, wrapped together with the cause.
var (
	errRefresh = toolcrib.Errorf(toolcrib.CodeProviderFailed, "the sign-in cannot be refreshed")
	errKeep    = toolcrib.Errorf(toolcrib.CodeInternal, "the refreshed sign-in cannot be stored")
)

// needs returns the error that a person must sign in. Its [toolcrib.Error] contains no text of a server.
func (s *Session) needs(why string) error {
	return s.refuse(toolcrib.Errorf(toolcrib.CodeUnauthorized, "%s; to sign in: %s", why, s.login))
}

func (s *Session) refuse(err error) error {
	s.refused.Store(&refusal{s.now.Load(), err, time.Now().Add(refusalLasts)})
	return err
}

// refusal returns the error for the current credentials, if it still lasts.
func (s *Session) refusal() error {
	if last := s.refused.Load(); last != nil && last.of == s.now.Load() && time.Now().Before(last.until) {
		return last.err
	}
	return nil
}

// needsScopes stores the scopes that the server requires, for the next sign-in, and returns the error.
func (s *Session) needsScopes(scopes []string) error {
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
					_ = s.save(&next) // if this fails, the next sign-in asks for less, and the error comes again
				}
			}
		}
	}
	return err
}

// token returns a token other than the one that was refused, or "" if no person has signed in. It returns when ctx
// ends; a refresh that has begun is finished and stored.
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

// load reads the credentials for this server. They are zero if no person has signed in.
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
	s.now.Store(c) // valid in this process even if it cannot be stored
	return s.store.Save(c)
}

// fresh returns a token other than the refused one: one that another process got by refreshing or by a sign-in, or
// one that it gets by refreshing.
func (s *Session) fresh(ctx context.Context, refused string) (string, error) {
	if err := s.refusal(); err != nil { // while this waited
		return "", err
	}
	usable := func(c *Credentials) bool { return c.Access != refused && !c.expired() }
	c, err := s.load()
	switch {
	case err != nil && refused == "": // the server may not need a sign-in
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
	err = next.exchange(ctx, client, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {c.Refresh}})
	var ended *answered
	switch {
	case errors.As(err, &ended) && (ended.code == "invalid_grant" || ended.code == "invalid_client"):
		next.Refresh, next.Expires = "", time.Unix(0, 0)
		_ = s.save(&next) // if this fails, the refresh token is refused once more
		return "", fmt.Errorf("%w (%w)", s.needs("the sign-in has ended"), ended)
	case err != nil:
		return "", s.refuse(fmt.Errorf("%w: %w", errRefresh, err))
	}
	if err := s.save(&next); err != nil {
		return "", fmt.Errorf("%w: %w", errKeep, err)
	}
	return next.Access, nil
}
