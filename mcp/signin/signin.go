// Package signin signs in to MCP servers with OAuth: discovery of the authorization server, a client, the consent of
// a person, and tokens that are refreshed. The official SDK and x/oauth2 implement the documents and requests of
// OAuth. This package is the policy: what to ask for, trust and store, and where to send it.
//
// The server and the authorization server are untrusted. A token is sent only to the server it is for, and to the
// endpoints of the issuer that it came from.
package signin

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
)

// Bounds of the data of a server.
const (
	maxToken     = 16 << 10
	maxScopes    = 100
	maxScopeSize = 4 << 10 // bytes of all scopes together
)

// Server is an MCP server with the configuration for signing in to it.
type Server struct {
	URL string
	// ClientID is a client that is registered with the issuer, or the address of a Client ID Metadata Document. If
	// "", the client registers itself.
	ClientID     string
	ClientSecret string // requires Issuer, so that it is sent nowhere else
	// Issuer is the authorization server. If "", the server names it. An issuer that is given here may be at an
	// address that is not public.
	Issuer string
	Scopes []string // scopes to ask for; if nil, those that the server asks for
	Port   int      // port of the redirect on 127.0.0.1; 0 means any
}

// Person is the person who signs in.
type Person struct {
	// Visit shows the person the page of the authorization server. It returns soon.
	Visit func(Page) error
	// Pasted receives the addresses that the person copied from a browser on another machine. It may be nil.
	Pasted <-chan string
	// Wrong is called if a pasted address is not the answer. It may be nil.
	Wrong func(why string)
	// Client asks the person for a client that is registered with the issuer. It may be nil.
	Client func(ctx context.Context, issuer, redirect string) (id, secret string, err error)
}

// Page is the page on which a person signs in.
type Page struct {
	URL    string
	Issuer string // issuer that asks for the consent
	Server string // the origin that gets the token
	Scopes []string
}

// login is one sign-in.
type login struct {
	Server
	at      *url.URL // the server
	private bool     // the authorization server may be at an address that is not public
	client  *http.Client
	person  Person

	issuer              *oauthex.AuthServerMeta
	credentials, before *Credentials
}

// Login signs a person in to a server. before has the credentials of an earlier sign-in, or is nil. Scopes that the
// server has asked for since then are requested as well.
func Login(ctx context.Context, s Server, before *Credentials, p Person) (*Credentials, error) {
	at, err := address(s.URL)
	if err != nil {
		return nil, fmt.Errorf("the server's url %w", err)
	}
	c := &Credentials{URL: at.String(), Private: s.Issuer != ""}
	l := &login{Server: s, at: at, private: c.private(at), person: p, credentials: c}
	l.client = client(at, l.private)
	if err := l.discover(ctx); err != nil {
		return nil, err
	}
	if before != nil && before.Issuer == c.Issuer {
		l.before = before
	}
	if l.before != nil && before.Wanted != nil && s.Scopes == nil {
		c.Scopes = union(before.Scopes, before.Wanted, c.Scopes)
	}
	if err := boundScopes(c.Scopes); err != nil {
		return nil, err
	}
	answers, err := listen(s.Port)
	if err != nil {
		return nil, err
	}
	defer answers.close()
	if err := l.register(ctx, answers.redirect); err != nil {
		return nil, err
	}
	return c, l.authorize(ctx, answers)
}

// discover finds the authorization server of the server, and the scopes to ask it for.
func (l *login) discover(ctx context.Context) error {
	asked, challenges, err := l.challenge(ctx)
	if err != nil {
		return err
	}
	resource, err := l.resource(ctx, challenges)
	if err != nil {
		return err
	}
	named := resource != nil
	if !named { // servers of 2025-03-26 are their own authorization servers
		origin := l.at.Scheme + "://" + l.at.Host
		resource = &oauthex.ProtectedResourceMetadata{Resource: l.URL, AuthorizationServers: []string{origin}}
	}
	issuer := l.Issuer
	switch {
	case len(resource.AuthorizationServers) == 0:
		return errors.New("the server names no authorization server")
	case issuer == "":
		issuer = resource.AuthorizationServers[0]
	case !slices.ContainsFunc(resource.AuthorizationServers, func(one string) bool { return sameIssuer(one, issuer) }):
		return fmt.Errorf("the server does not name the authorization server %s (oauth.issuer), but %s",
			issuer, clean(strings.Join(resource.AuthorizationServers, ", ")))
	}
	if _, err := address(issuer); err != nil {
		return fmt.Errorf("the address of the authorization server %w", err)
	}
	meta, err := auth.GetAuthServerMetadata(ctx, issuer, l.client)
	switch {
	case err != nil:
		return fmt.Errorf("the authorization server %s: %w", clean(issuer), cleaned(err))
	case meta == nil && !named && asked:
		return toolcrib.Errorf(toolcrib.CodeBadRequest, "the server refuses access, and does not say how to sign in; it may "+
			"want a key, which the configuration can give it in headers")
	case meta == nil && !named:
		return toolcrib.Errorf(toolcrib.CodeBadRequest, "the server does not ask for a sign-in")
	case meta == nil:
		return fmt.Errorf("the authorization server %s does not say how to use it (RFC 8414)", clean(issuer))
	}
	return l.apply(meta, resource, challenges)
}

// apply checks the metadata of an authorization server, and applies it.
func (l *login) apply(meta *oauthex.AuthServerMeta, resource *oauthex.ProtectedResourceMetadata,
	challenges []oauthex.Challenge,
) error {
	if !slices.Contains(meta.CodeChallengeMethodsSupported, "S256") {
		return fmt.Errorf("the authorization server %s does not support PKCE with S256, which is required", meta.Issuer)
	}
	for name, text := range map[string]*string{
		"authorization": &meta.AuthorizationEndpoint, "token": &meta.TokenEndpoint,
		"registration": &meta.RegistrationEndpoint, "revocation": &meta.RevocationEndpoint,
	} {
		if *text == "" && name != "authorization" && name != "token" {
			continue
		}
		to, err := address(*text)
		if err == nil && authority(to) != authority(l.at) {
			err = reachable(to.Hostname(), l.private)
		}
		if err != nil {
			return fmt.Errorf("the %s endpoint of the authorization server %s %w", name, meta.Issuer, err)
		}
		*text = to.String()
	}
	scopes := l.Scopes
	if scopes == nil {
		if scopes = strings.Fields(parameter(challenges, "scope")); len(scopes) == 0 {
			scopes = resource.ScopesSupported
		}
		// Without this scope, many servers issue no refresh token.
		if slices.Contains(meta.ScopesSupported, offline) {
			scopes = union(scopes, []string{offline})
		}
	}
	l.issuer = meta
	c := l.credentials
	c.Issuer, c.Resource, c.Scopes = meta.Issuer, resource.Resource, scopes
	c.TokenURL, c.RevokeURL = meta.TokenEndpoint, meta.RevocationEndpoint
	return nil
}

// offline is the scope of a refresh token.
const offline = "offline_access"

// challenge sends the server requests without a token. asked reports whether it refused one, and challenges are
// those of its answer.
func (l *login) challenge(ctx context.Context) (asked bool, challenges []oauthex.Challenge, err error) {
	client := &http.Client{Transport: l.client.Transport, Timeout: requestTimeout, CheckRedirect: sameServer}
	for _, one := range [][2]string{
		{http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"ping"}`}, {http.MethodGet}, // for the transport of 2024-11-05
	} {
		q, err := http.NewRequestWithContext(ctx, one[0], l.URL, strings.NewReader(one[1]))
		if err != nil {
			return false, nil, err
		}
		q.Header.Set("Accept", "application/json, text/event-stream")
		q.Header.Set("Content-Type", "application/json")
		r, err := client.Do(q)
		if err != nil {
			return false, nil, err
		}
		_ = r.Body.Close() // nothing of it was used
		if r.StatusCode == http.StatusUnauthorized {
			challenges, _ := oauthex.ParseWWWAuthenticate(r.Header.Values("WWW-Authenticate")) // its parsable parts
			return true, challenges, nil
		}
	}
	return false, nil, nil
}

// parameter returns a parameter of the challenge for a token.
func parameter(challenges []oauthex.Challenge, name string) string {
	for _, c := range challenges {
		if value := c.Params[name]; c.Scheme == "bearer" && value != "" {
			return value
		}
	}
	return ""
}

// resource reads the metadata of the server (RFC 9728). It returns nil if there is no such document.
func (l *login) resource(
	ctx context.Context, challenges []oauthex.Challenge,
) (*oauthex.ProtectedResourceMetadata, error) {
	const known = "/.well-known/oauth-protected-resource"
	origin := l.at.Scheme + "://" + l.at.Host
	places := []string{origin + known}
	if path := strings.TrimLeft(l.at.EscapedPath(), "/"); path != "" {
		places = slices.Insert(places, 0, origin+known+"/"+path)
	}
	if named := parameter(challenges, "resource_metadata"); named != "" {
		places = slices.Insert(places, 0, named)
	}
	for _, place := range places {
		if _, err := address(place); err != nil {
			return nil, fmt.Errorf("the address of the server's metadata %w", err)
		}
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, place, nil)
		if err != nil {
			return nil, err
		}
		q.Header.Set("Accept", "application/json")
		r, err := l.client.Do(q)
		if err != nil {
			return nil, err
		}
		if r.StatusCode != http.StatusOK {
			_ = r.Body.Close() // nothing of it was used
			continue
		}
		meta := new(oauthex.ProtectedResourceMetadata)
		err = errors.Join(json.NewDecoder(r.Body).Decode(meta), r.Body.Close())
		if err != nil {
			return nil, fmt.Errorf("the server's metadata at %s cannot be read: %w", clean(place), cleaned(err))
		}
		if !l.covers(meta.Resource) {
			return nil, fmt.Errorf("the metadata at %s is that of another server: %s", clean(place), clean(meta.Resource))
		}
		return meta, nil
	}
	return nil, nil
}

// covers reports whether a resource is the server, or a path of its origin that contains the server.
func (l *login) covers(resource string) bool {
	u, err := url.Parse(resource)
	if err != nil || u.Scheme != l.at.Scheme || u.Host != l.at.Host || u.User != nil || u.Fragment != "" {
		return false
	}
	in := strings.TrimRight(u.EscapedPath(), "/") + "/"
	return strings.HasPrefix(strings.TrimRight(l.at.EscapedPath(), "/")+"/", in)
}

// register determines the client to sign in as: the configured one, one that is registered now, or one that the
// person names.
func (l *login) register(ctx context.Context, redirect string) error {
	c, methods := l.credentials, l.issuer.TokenEndpointAuthMethodsSupported
	document := strings.HasPrefix(l.ClientID, "https://")
	switch {
	case l.ClientSecret != "" && l.Issuer == "":
		return toolcrib.Errorf(toolcrib.CodeBadRequest, "oauth.client_secret needs oauth.issuer, so that the secret goes "+
			"nowhere else; the server names %s", clean(c.Issuer))
	case l.ClientID != "" && (!document || l.issuer.ClientIDMetadataDocumentSupported):
		c.ClientID, c.ClientSecret = l.ClientID, l.ClientSecret
	case l.issuer.RegistrationEndpoint != "":
		method := "none"
		for _, one := range []string{"none", secretInForm, secretInHeader} {
			if slices.Contains(methods, one) {
				method = one
				break
			}
		}
		made, err := oauthex.RegisterClient(ctx, l.issuer.RegistrationEndpoint, &oauthex.ClientRegistrationMetadata{
			ClientName: "toolcrib", RedirectURIs: []string{redirect}, ApplicationType: "native",
			GrantTypes: []string{"authorization_code", "refresh_token"}, ResponseTypes: []string{"code"},
			TokenEndpointAuthMethod: method, Scope: strings.Join(c.Scopes, " "),
		}, l.client)
		if err != nil {
			return fmt.Errorf("the authorization server %s registers no client: %w", c.Issuer, unregistered(err))
		}
		c.ClientID, c.ClientSecret = made.ClientID, made.ClientSecret
		if made.ClientSecret != "" {
			methods = []string{cmp.Or(made.TokenEndpointAuthMethod, secretInHeader)}
		}
	case l.before != nil: // there is no other source of a client
		c.ClientID, c.ClientSecret = l.before.ClientID, l.before.ClientSecret
	case l.person.Client != nil:
		id, secret, err := l.person.Client(ctx, c.Issuer, redirect)
		if err != nil {
			return err
		}
		c.ClientID, c.ClientSecret = id, secret
	}
	if c.ClientID == "" {
		return toolcrib.Errorf(toolcrib.CodeBadRequest, "the authorization server %s does not register clients by itself; "+
			"register one there, with the redirect address http://127.0.0.1/callback, and name it in the configuration: "+
			"oauth.client_id, and oauth.client_secret if it has one", clean(c.Issuer))
	}
	// A client without a secret sends its ID in the form.
	c.InHeader = c.ClientSecret != "" && !slices.Contains(methods, secretInForm)
	return nil
}

// unregistered returns an error of a registration as it may be shown. The answer may contain a secret.
func unregistered(err error) error {
	var refused *oauthex.ClientRegistrationError
	var failed *url.Error
	if errors.As(err, &refused) || errors.As(err, &failed) {
		return cleaned(err)
	}
	return errors.New("its response does not conform to RFC 7591")
}

// Ways in which a client sends its secret.
const (
	secretInForm   = "client_secret_post"
	secretInHeader = "client_secret_basic"
)

// authorize asks the person for their consent, and exchanges the answer for tokens.
func (l *login) authorize(ctx context.Context, answers *answers) error {
	c, verifier := l.credentials, oauth2.GenerateVerifier()
	answers.state, answers.issuer = rand.Text(), c.Issuer
	answers.named = l.issuer.AuthorizationResponseIssParameterSupported
	config := oauth2.Config{
		ClientID: c.ClientID, RedirectURL: answers.redirect, Scopes: c.Scopes,
		Endpoint: oauth2.Endpoint{AuthURL: l.issuer.AuthorizationEndpoint},
	}
	more := []oauth2.AuthCodeOption{
		oauth2.S256ChallengeOption(verifier), oauth2.SetAuthURLParam("resource", c.Resource),
	}
	if slices.Contains(c.Scopes, offline) {
		more = append(more, oauth2.SetAuthURLParam("prompt", "consent")) // OpenID Connect requires it for this scope
	}
	answers.serve()
	page := Page{
		URL: config.AuthCodeURL(answers.state, more...), Issuer: c.Issuer, Server: l.at.Scheme + "://" + l.at.Host,
		Scopes: c.Scopes,
	}
	if err := l.person.Visit(page); err != nil {
		return err
	}
	code, err := answers.wait(ctx, l.person)
	if err != nil {
		return err
	}
	return c.exchange(ctx, l.client, url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "code_verifier": {verifier},
		"redirect_uri": {answers.redirect},
	})
}

// union returns the elements of all lists, sorted and without duplicates.
func union(lists ...[]string) []string {
	all := slices.Concat(lists...)
	slices.Sort(all)
	return slices.Compact(all)
}

// boundScopes returns an error if scopes are too many or too long, or not valid (RFC 6749, section 3.3).
func boundScopes(scopes []string) error {
	size := 0
	for _, s := range scopes {
		size += len(s)
		if s == "" || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }) {
			return fmt.Errorf("%s is not a scope", clean(s))
		}
	}
	if len(scopes) > maxScopes || size > maxScopeSize {
		return fmt.Errorf("the server asks for more than %d scopes, or %d bytes of them; name those that you need in "+
			"oauth.scopes", maxScopes, maxScopeSize)
	}
	return nil
}

// sameIssuer reports whether two identifiers are those of the same issuer, ignoring a slash at the end.
func sameIssuer(a, b string) bool { return strings.TrimSuffix(a, "/") == strings.TrimSuffix(b, "/") }

const maxShown = 300

// clean returns a text of a server as it may be shown.
func clean(text string) string {
	return guard.Clip(guard.Visible(strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")), maxShown)
}

// cleaned returns an error that may contain a text of a server, as it may be shown.
func cleaned(err error) error {
	var refused *oauth2.RetrieveError
	if errors.As(err, &refused) { // its text has the whole answer, which may repeat what was sent
		return &answered{refused.ErrorCode, clean(fmt.Sprintf("%s (%s)", cmp.Or(refused.ErrorDescription,
			refused.ErrorCode, "no reason"), refused.Response.Status))}
	}
	return errors.New(clean(err.Error()))
}

// answered is an error that the authorization server returned.
type answered struct{ code, text string }

func (a *answered) Error() string { return a.text }
