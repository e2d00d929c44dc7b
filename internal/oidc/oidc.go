// Package oidc signs people in by an OpenID Connect provider: discovery, the code flow with PKCE, the ID token, and
// signing out. It wraps go-oidc. It keeps no state of a sign-in; the caller stores a [Flow] between its two halves.
package oidc

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
)

// Bounds of the answers of a provider.
const (
	timeout     = 10 * time.Second // of one request
	maxResponse = 1 << 20
	maxIDToken  = 64 << 10

	// discoveredFor is how long what the provider says of itself is used, and failedFor how long it is not asked again
	// after it could not be reached.
	discoveredFor = time.Hour
	failedFor     = 3 * time.Second

	// skew is how much the clock of the provider may be behind.
	skew = 30 * time.Second
)

// Options are the options of [New]. Issuer and ClientID are needed.
type Options struct {
	Issuer, ClientID, ClientSecret string
	Scopes                         []string
	// Now returns the time. If nil, [time.Now] does.
	Now func() time.Time
	// Wanted are claims that are asked for by UserInfo if the ID token lacks them.
	Wanted []string
}

// Provider is a provider. It is safe for concurrent use, and contacts the provider when it is first needed.
type Provider struct {
	o      Options
	client *http.Client

	mu     sync.Mutex
	found  *oidc.Provider // nil until it was reached
	end    string         // end_session_endpoint, or ""
	at     time.Time      // when it was asked last
	failed error          // why it could not be reached then
}

// New returns a provider. It does not contact it.
func New(o Options) *Provider {
	if o.Now == nil {
		o.Now = time.Now
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: timeout, MaxIdleConns: 4, IdleConnTimeout: time.Minute,
		MaxResponseHeaderBytes: maxResponse,
	}
	return &Provider{o: o, client: &http.Client{Timeout: timeout, Transport: bounded{transport}}}
}

// Close closes idle connections.
func (p *Provider) Close() { p.client.CloseIdleConnections() }

// bounded bounds the bodies of responses.
type bounded struct{ *http.Transport }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := b.Transport.RoundTrip(r)
	if err == nil {
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(res.Body, maxResponse), res.Body}
	}
	return res, err
}

// discover returns what the provider says of itself.
func (p *Provider) discover(ctx context.Context) (*oidc.Provider, string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch age := time.Since(p.at); {
	case p.found != nil && age < discoveredFor:
		return p.found, p.end, nil
	case p.failed != nil && age < failedFor:
		return nil, "", p.failed
	}
	// Not the request's context: others wait for the same answer, and the keys are asked for later.
	asking, cancel := context.WithTimeout(oidc.ClientContext(context.WithoutCancel(ctx), p.client), timeout)
	defer cancel()
	found, err := oidc.NewProvider(asking, p.o.Issuer)
	p.at = time.Now()
	if err != nil {
		if p.found != nil { // what was true an hour ago is likely to be true still
			return p.found, p.end, nil
		}
		p.failed = unreachable(err)
		return nil, "", p.failed
	}
	var more struct {
		End string `json:"end_session_endpoint"`
	}
	_ = found.Claims(&more) // it is optional
	p.found, p.end, p.failed = found, more.End, nil
	return p.found, p.end, nil
}

func unreachable(err error) error {
	return &toolcrib.Error{
		Code: toolcrib.CodeOverloaded, Message: "the sign-in provider cannot be used at the moment; try again later",
		Err: err, RetryAfter: failedFor,
	}
}

func (p *Provider) config(found *oidc.Provider, redirect string) *oauth2.Config {
	at := found.Endpoint()
	var says struct {
		Methods []string `json:"token_endpoint_auth_methods_supported"`
	}
	_ = found.Claims(&says) // it is optional
	// To try both would use up the code with the first.
	at.AuthStyle = oauth2.AuthStyleInHeader
	if p.o.ClientSecret == "" || len(says.Methods) > 0 && !slices.Contains(says.Methods, "client_secret_basic") {
		at.AuthStyle = oauth2.AuthStyleInParams
	}
	scopes := slices.Clone(p.o.Scopes)
	if !slices.Contains(scopes, oidc.ScopeOpenID) {
		scopes = append([]string{oidc.ScopeOpenID}, scopes...)
	}
	return &oauth2.Config{
		ClientID: p.o.ClientID, ClientSecret: p.o.ClientSecret, Endpoint: at, RedirectURL: redirect, Scopes: scopes,
	}
}

// Flow is a sign-in that has begun. It is secret, and must be kept where only the same browser can bring it back.
type Flow struct {
	State    string `json:"state"`
	Nonce    string `json:"nonce"`
	Verifier string `json:"verifier"`
	Redirect string `json:"redirect"`
}

// Begin returns the address at the provider to which the browser goes, and the flow that [Provider.Finish] needs.
// redirect is where the provider sends the browser.
func (p *Provider) Begin(ctx context.Context, redirect string) (at string, f Flow, err error) {
	found, _, err := p.discover(ctx)
	if err != nil {
		return "", f, err
	}
	f = Flow{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), Redirect: redirect}
	c := p.config(found, redirect)
	return c.AuthCodeURL(f.State, oidc.Nonce(f.Nonce), oauth2.S256ChallengeOption(f.Verifier)), f, nil
}

// Identity is who has signed in, as a verified ID token says.
type Identity struct {
	Issuer, Subject string
	Session         string // of the provider, or ""
	IDToken         string
	Claims          map[string]any
}

// Finish returns who has signed in, from the query with which the provider has sent the browser back. The errors are
// bad_request if it does not belong to the flow, forbidden if the provider has refused, unauthorized if what it says
// cannot be trusted, and overloaded if it cannot be reached.
func (p *Provider) Finish(ctx context.Context, f Flow, query url.Values) (who Identity, err error) {
	found, _, err := p.discover(ctx)
	if err != nil {
		return who, err
	}
	if f.State == "" || subtle.ConstantTimeCompare([]byte(query.Get("state")), []byte(f.State)) != 1 {
		return who, toolcrib.Errorf(toolcrib.CodeBadRequest, "this sign-in was not begun in this browser; begin again")
	}
	if iss := query.Get("iss"); iss != "" && iss != p.o.Issuer { // RFC 9207
		return who, untrusted(fmt.Errorf("the answer is from another provider, %q", guard.Clip(iss, maxShown)))
	}
	if code := query.Get("error"); code != "" {
		return who, toolcrib.Errorf(toolcrib.CodeForbidden, "the provider refuses the sign-in: %s",
			guard.Visible(guard.Clip(code+" "+query.Get("error_description"), maxShown)))
	}
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, p.client), 2*timeout)
	defer cancel()
	token, err := p.config(found, f.Redirect).Exchange(ctx, query.Get("code"), oauth2.VerifierOption(f.Verifier))
	var refused *oauth2.RetrieveError
	switch {
	case errors.As(err, &refused) && refused.Response.StatusCode < http.StatusInternalServerError:
		return who, untrusted(fmt.Errorf("the code: %s", guard.Clip(refused.ErrorCode, maxShown)))
	case err != nil:
		return who, unreachable(err)
	}
	raw, _ := token.Extra("id_token").(string)
	if who, err = p.verify(ctx, found, raw, f.Nonce); err != nil {
		return Identity{}, untrusted(err)
	}
	lacks := slices.ContainsFunc(p.o.Wanted, func(c string) bool { return who.Claims[c] == nil })
	if lacks && found.UserInfoEndpoint() != "" {
		err = who.ask(ctx, found, token)
	}
	return who, err
}

// maxShown bounds what is repeated of an answer of the provider.
const maxShown = 200

func untrusted(err error) error {
	return &toolcrib.Error{
		Code: toolcrib.CodeUnauthorized, Message: "the answer of the sign-in provider cannot be trusted; begin again", Err: err,
	}
}

func (p *Provider) verify(ctx context.Context, found *oidc.Provider, raw, nonce string) (who Identity, err error) {
	if raw == "" || len(raw) > maxIDToken {
		return who, errors.New("no ID token, or one that is too long")
	}
	now := func() time.Time { return p.o.Now().Add(-skew) }
	t, err := found.VerifierContext(ctx, &oidc.Config{ClientID: p.o.ClientID, Now: now}).Verify(ctx, raw)
	if err != nil {
		return who, err
	}
	who = Identity{Issuer: p.o.Issuer, Subject: t.Subject, IDToken: raw}
	if err := t.Claims(&who.Claims); err != nil {
		return who, err
	}
	azp, _ := who.Claims["azp"].(string)
	switch {
	case t.Subject == "":
		return who, errors.New("the ID token names no subject")
	case nonce == "" || subtle.ConstantTimeCompare([]byte(t.Nonce), []byte(nonce)) != 1:
		return who, errors.New("the ID token is for another sign-in")
	case azp != "" && azp != p.o.ClientID, len(t.Audience) > 1 && azp == "":
		return who, errors.New("the ID token was issued to another client")
	case t.IssuedAt.After(p.o.Now().Add(10 * skew)):
		return who, errors.New("the ID token was issued in the future; set the clocks")
	}
	who.Session, _ = who.Claims["sid"].(string)
	return who, nil
}

// ask adds claims that only the endpoint UserInfo has.
func (who *Identity) ask(ctx context.Context, found *oidc.Provider, token *oauth2.Token) error {
	info, err := found.UserInfo(ctx, oauth2.StaticTokenSource(token))
	if err != nil {
		return unreachable(err)
	}
	var more map[string]any
	if err := info.Claims(&more); err != nil || info.Subject != who.Subject {
		return untrusted(errors.Join(err, errors.New("UserInfo is about somebody else")))
	}
	for name, value := range more {
		if _, ok := who.Claims[name]; !ok {
			who.Claims[name] = value
		}
	}
	return nil
}

// EndURL returns the address at the provider that ends the session there, and then sends the browser to back; "" if the
// provider has none or cannot be reached.
func (p *Provider) EndURL(ctx context.Context, idToken, back string) string {
	_, end, err := p.discover(ctx)
	u, bad := url.Parse(end)
	if err != nil || bad != nil || u.Scheme != "https" && u.Scheme != "http" {
		return ""
	}
	q := u.Query()
	q.Set("client_id", p.o.ClientID)
	q.Set("post_logout_redirect_uri", back)
	if idToken != "" {
		q.Set("id_token_hint", idToken)
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// Ended returns whose sessions the provider has ended, from its logout token: all of the subject, or the one with this
// ID at the provider.
func (p *Provider) Ended(ctx context.Context, logoutToken string) (subject, session string, err error) {
	found, _, err := p.discover(ctx)
	if err != nil {
		return "", "", err
	}
	if len(logoutToken) > maxIDToken {
		return "", "", untrusted(errors.New("the logout token is too long"))
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	now := func() time.Time { return p.o.Now().Add(-skew) }
	t, err := found.VerifierContext(ctx, &oidc.Config{ClientID: p.o.ClientID, Now: now}).VerifyLogout(ctx, logoutToken)
	if err != nil {
		return "", "", untrusted(err)
	}
	return t.Subject, t.SessionID, nil
}
