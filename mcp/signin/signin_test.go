package signin_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/oauthtest"
	"github.com/toolcrib/toolcrib/mcp/signin"
)

func start(t *testing.T) *oauthtest.Server {
	t.Helper()
	s := oauthtest.New()
	t.Cleanup(s.Close)
	return s
}

// browser is a person whose browser consents to everything.
func browser(t *testing.T) signin.Person {
	return signin.Person{Visit: func(p signin.Page) error {
		go func() {
			r, err := http.Get(p.URL)
			if err != nil {
				t.Logf("the browser: %v", err)
				return
			}
			_ = r.Body.Close()
		}()
		return nil
	}}
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// login signs in, and fails the test if that does not work.
func login(t *testing.T, s *oauthtest.Server, server signin.Server) *signin.Credentials {
	t.Helper()
	server.URL = s.URL()
	c, err := signin.Login(within(t, 2*time.Minute), server, nil, browser(t))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// memory is a store for several sessions.
type memory struct {
	mu   sync.Mutex
	c    *signin.Credentials
	lock sync.Mutex
	fail error
}

func (m *memory) Load() (*signin.Credentials, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.c == nil {
		return nil, nil
	}
	c := *m.c
	return &c, nil
}

func (m *memory) Save(c *signin.Credentials) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail == nil {
		kept := *c
		m.c = &kept
	}
	return m.fail
}

func (m *memory) Lock() (func(), error) {
	m.lock.Lock()
	return m.lock.Unlock, nil
}

// session is a client of the server that has signed in as the store says.
func session(t *testing.T, s *oauthtest.Server, store signin.Store) *http.Client {
	t.Helper()
	one, err := signin.NewSession(s.URL(), "toolcrib mcp login x", store)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Transport: one.Transport(http.DefaultTransport)}
}

// use lists the tools of the server and calls one.
func use(t *testing.T, s *oauthtest.Server, client *http.Client, tool string) error {
	t.Helper()
	ctx := within(t, 2*time.Minute)
	c, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(ctx,
		&sdk.StreamableClientTransport{Endpoint: s.URL(), HTTPClient: client, MaxRetries: -1}, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.CallTool(ctx, &sdk.CallToolParams{Name: tool})
	return err
}

// TestLogin signs in as the standards have it: discovery, a client of its
// own, PKCE with S256, the resource in each request, and state.
func TestLogin(t *testing.T) {
	s := start(t)
	c := login(t, s, signin.Server{})
	if c.Issuer != s.Auth.URL || c.Resource != s.URL() || c.Access == "" || c.Refresh == "" || c.Expires.IsZero() ||
		!slices.Equal(c.Scopes, []string{"read"}) {
		t.Errorf("got %+v", c)
	}
	asked, traded := s.Seen("/authorize"), s.Seen("/token")
	if len(asked) != 1 || len(traded) != 1 {
		t.Fatalf("asked %d times, traded %d times", len(asked), len(traded))
	}
	if form := asked[0].Form; form.Get("code_challenge_method") != "S256" || form.Get("resource") != s.URL() ||
		form.Get("scope") != "read" || len(form.Get("state")) < 20 {
		t.Errorf("asked %v", form)
	}
	if form := traded[0].Form; len(form.Get("code_verifier")) < 43 || form.Get("resource") != s.URL() {
		t.Errorf("traded %v", form)
	}
	if err := use(t, s, session(t, s, &memory{c: c}), "look"); err != nil {
		t.Error(err)
	}
}

// TestLogin_Clients: a client of the configuration, one that a document describes, one that
// registers itself, one that the person names.
func TestLogin_Clients(t *testing.T) {
	none := func(m map[string]any) { delete(m, "registration_endpoint") }
	const document = "https://client.example/toolcrib.json"
	tests := []struct {
		name     string
		metadata func(map[string]any)
		server   signin.Server
		person   func(ctx context.Context, issuer, redirect string) (string, string, error)
		secret   string
		want     string // begins the client's name, or is in the error
	}{
		{name: "configured", server: signin.Server{ClientID: "mine"}, want: "mine"},
		{name: "configured with a secret", server: signin.Server{ClientID: "mine", ClientSecret: "hush hush/%"}, want: "mine"},
		{
			name: "a document", server: signin.Server{ClientID: document},
			metadata: func(m map[string]any) { m["client_id_metadata_document_supported"] = true }, want: document,
		},
		{name: "a document that is not read", server: signin.Server{ClientID: document}, want: "client-"},
		{
			name: "a person names it", metadata: none, want: "named",
			person: func(_ context.Context, issuer, redirect string) (string, string, error) { return "named", "", nil },
		},
		{name: "nobody names one", metadata: none, want: "register one there"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t)
			s.Metadata = tt.metadata
			tt.server.URL = s.URL()
			p := browser(t)
			if tt.server.ClientSecret != "" {
				tt.server.Issuer = s.Auth.URL
			}
			if tt.person != nil {
				p.Client = tt.person
			}
			visit := p.Visit
			p.Visit = func(page signin.Page) error {
				u, _ := url.Parse(page.URL)
				if id := u.Query().Get("client_id"); !strings.HasPrefix(id, "client-") {
					s.Register(id, tt.server.ClientSecret, u.Query().Get("redirect_uri"))
				}
				return visit(page)
			}
			c, err := signin.Login(within(t, 2*time.Minute), tt.server, nil, p)
			switch {
			case err != nil && !strings.Contains(err.Error(), tt.want):
				t.Error(err)
			case err == nil && !strings.HasPrefix(c.ClientID, tt.want):
				t.Errorf("signed in as %s", c.ClientID)
			case err == nil:
				s.Expire() // the client shows who it is when it refreshes, too
				if err := use(t, s, session(t, s, &memory{c: c}), "look"); err != nil {
					t.Error(err)
				}
				if done, err := c.Revoke(t.Context()); err != nil && !done {
					t.Error(err)
				}
			}
		})
	}
}

// TestLogin_SecretNeedsIssuer: a server cannot have the client's secret sent to an
// authorization server of its choice.
func TestLogin_SecretNeedsIssuer(t *testing.T) {
	for issuer, want := range map[string]string{"": "needs oauth.issuer", "https://issuer.example": "does not name"} {
		s := start(t)
		server := signin.Server{URL: s.URL(), ClientID: "mine", ClientSecret: "hush", Issuer: issuer}
		_, err := signin.Login(within(t, 2*time.Minute), server, nil, browser(t))
		if err == nil || !strings.Contains(err.Error(), want) || len(s.Seen("/token")) > 0 {
			t.Errorf("%q: %v", issuer, err)
		}
	}
}

// TestLogin_Hostile: whatever the server and the authorization server answer, no code and no
// token goes where it does not belong, and the error says what is wrong.
func TestLogin_Hostile(t *testing.T) {
	thief := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		t.Errorf("%s %s came to another server", q.Method, q.URL)
	}))
	t.Cleanup(thief.Close)
	to := func(where string) http.HandlerFunc {
		return func(w http.ResponseWriter, q *http.Request) { http.Redirect(w, q, where, http.StatusTemporaryRedirect) }
	}
	endless := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		piece := []byte(`{"issuer":"` + strings.Repeat("x", 1<<20))
		for range 1024 {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	}
	const metadata = "/.well-known/oauth-authorization-server"
	tests := []struct {
		name   string
		change func(s *oauthtest.Server)
		want   string
	}{
		{"the token endpoint leads to another host", func(s *oauthtest.Server) {
			s.Handle = map[string]http.HandlerFunc{"/token": to(thief.URL)}
		}, "it redirects"},
		{"the token endpoint leads to itself", func(s *oauthtest.Server) {
			s.Handle = map[string]http.HandlerFunc{"/token": to("/token2")}
		}, "it redirects"},
		{"the registration leads to another host", func(s *oauthtest.Server) {
			s.Handle = map[string]http.HandlerFunc{"/register": to(thief.URL)}
		}, "it redirects"},
		{"metadata on another origin", func(s *oauthtest.Server) {
			s.Handle = map[string]http.HandlerFunc{metadata: to(thief.URL + metadata)}
		}, "another server"},
		{"metadata of 1 GB", func(s *oauthtest.Server) {
			s.Handle = map[string]http.HandlerFunc{metadata: endless}
		}, "more than 1 MiB"},
		{"a token answer of 1 GB", func(s *oauthtest.Server) {
			s.Handle = map[string]http.HandlerFunc{"/token": endless}
		}, "more than 1 MiB"},
		{"metadata that is not JSON", func(s *oauthtest.Server) {
			s.Handle = map[string]http.HandlerFunc{metadata: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprint(w, "<html>")
			}}
		}, "invalid character"},
		{"the metadata of another issuer", func(s *oauthtest.Server) {
			s.Metadata = func(m map[string]any) { m["issuer"] = "https://other.example" }
		}, "does not match"},
		{"no PKCE", func(s *oauthtest.Server) {
			s.Metadata = func(m map[string]any) { delete(m, "code_challenge_methods_supported") }
		}, "PKCE"},
		{"plain PKCE only", func(s *oauthtest.Server) {
			s.Metadata = func(m map[string]any) { m["code_challenge_methods_supported"] = []string{"plain"} }
		}, "PKCE with S256"},
		{"a token endpoint of http", func(s *oauthtest.Server) {
			s.Metadata = func(m map[string]any) { m["token_endpoint"] = "http://auth.example/token" }
		}, "HTTPS"},
		{"an authorization endpoint that is a script", func(s *oauthtest.Server) {
			s.Metadata = func(m map[string]any) { m["authorization_endpoint"] = "javascript:alert(1)" }
		}, "disallowed scheme"},
		{"an authorization endpoint that is a file", func(s *oauthtest.Server) {
			s.Metadata = func(m map[string]any) { m["authorization_endpoint"] = "file:///etc/passwd" }
		}, "authorization_endpoint"},
		{"a revocation endpoint of http", func(s *oauthtest.Server) {
			s.Metadata = func(m map[string]any) { m["revocation_endpoint"] = "http://auth.example/revoke" }
		}, "revocation endpoint"},
		{"no token endpoint", func(s *oauthtest.Server) {
			s.Metadata = func(m map[string]any) { delete(m, "token_endpoint") }
		}, "token endpoint"},
		{"the metadata of another resource", func(s *oauthtest.Server) {
			s.Resource = func(m map[string]any) { m["resource"] = "https://bank.example/mcp" }
		}, "another server: https://bank.example"},
		{"the metadata of a part beside it", func(s *oauthtest.Server) {
			s.Resource = func(m map[string]any) { m["resource"] = s.MCP.URL + "/mc" }
		}, "another server"},
		{"no authorization server", func(s *oauthtest.Server) {
			s.Resource = func(m map[string]any) { m["authorization_servers"] = []string{} }
		}, "names no authorization server"},
		{"an authorization server of http", func(s *oauthtest.Server) {
			s.Resource = func(m map[string]any) { m["authorization_servers"] = []string{"http://auth.example"} }
		}, "https://"},
		{"10,000 scopes", func(s *oauthtest.Server) {
			s.Resource = func(m map[string]any) { m["scopes_supported"] = slices.Repeat([]string{"a"}, 10_000) }
		}, "more than 100 scopes"},
		{"a scope that is two", func(s *oauthtest.Server) {
			s.Resource = func(m map[string]any) { m["scopes_supported"] = []string{"read admin"} }
		}, "is not a scope"},
		{"the answer of another issuer", func(s *oauthtest.Server) {
			s.Answer = func(v url.Values) { v.Set("iss", "https://other.example") }
		}, "not from"},
		{"the answer of nobody", func(s *oauthtest.Server) {
			s.Answer = func(v url.Values) { v.Del("iss") }
		}, "not from"},
		{"another issuer, also if nobody said that it is named", func(s *oauthtest.Server) {
			s.Metadata = func(m map[string]any) { delete(m, "authorization_response_iss_parameter_supported") }
			s.Answer = func(v url.Values) { v.Set("iss", "https://other.example") }
		}, "not from"},
		{"a refusal", func(s *oauthtest.Server) {
			s.Answer = func(v url.Values) { v.Del("code"); v.Set("error", "access_denied\x1b[2J") }
		}, "refused the sign-in: access_denied"},
		{"no code", func(s *oauthtest.Server) {
			s.Answer = func(v url.Values) { v.Del("code") }
		}, "has no code"},
		{"a code that somebody else got", func(s *oauthtest.Server) {
			s.Answer = func(v url.Values) { v.Set("code", "code-of-somebody-else") }
		}, "invalid_grant"},
		{"a token of another kind", func(s *oauthtest.Server) {
			s.Token = func(_ url.Values, a map[string]any) { a["token_type"] = "DPoP" }
		}, "unsupported type: DPoP"},
		{"a token that ends the header", func(s *oauthtest.Server) {
			s.Token = func(_ url.Values, a map[string]any) { a["access_token"] = "x\r\nHost: other.example" }
		}, "an invalid token"},
		{"a token of 100 KB", func(s *oauthtest.Server) {
			s.Token = func(_ url.Values, a map[string]any) { a["access_token"] = strings.Repeat("x", 100_000) }
		}, "an invalid token"},
		{"a token for another server", func(s *oauthtest.Server) {
			s.Token = func(_ url.Values, a map[string]any) { a["resource"] = "https://bank.example/mcp" }
		}, "for another server"},
		{"an error that repeats what was sent", func(s *oauthtest.Server) {
			s.Handle = map[string]http.HandlerFunc{"/token": func(w http.ResponseWriter, q *http.Request) {
				w.WriteHeader(http.StatusBadRequest)
				_ = q.ParseForm()
				fmt.Fprint(w, q.PostForm.Encode())
			}}
		}, "no reason (400 Bad Request)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t)
			tt.change(s)
			c, err := signin.Login(within(t, 2*time.Minute), signin.Server{URL: s.URL()}, nil, browser(t))
			if err == nil {
				t.Fatalf("signed in: %+v", c)
			}
			if !strings.Contains(err.Error(), tt.want) || len(err.Error()) > 700 || strings.ContainsAny(err.Error(), "\x1b\r\n") {
				t.Errorf("got %q, want %q", err, tt.want)
			}
			for _, q := range s.Seen("/token") {
				for _, name := range []string{"code", "code_verifier"} {
					if v := q.Form.Get(name); v != "" && strings.Contains(err.Error(), v) {
						t.Errorf("the error holds the %s", name)
					}
				}
			}
		})
	}
}

// TestLogin_Answers: only the answer to the question that was asked counts. Others, such as
// those that a page on the net has the browser send, change nothing.
func TestLogin_Answers(t *testing.T) {
	s := start(t)
	p := browser(t)
	visit := p.Visit
	p.Visit = func(page signin.Page) error {
		u, _ := url.Parse(page.URL)
		redirect, state := u.Query().Get("redirect_uri"), u.Query().Get("state")
		if !strings.HasPrefix(redirect, "http://127.0.0.1:") {
			t.Errorf("the answer goes to %s", redirect)
		}
		iss := "&iss=" + url.QueryEscape(s.Auth.URL)
		for _, query := range []string{
			"code=injected", "code=injected&state=" + iss, "code=injected&state=wrong" + iss,
			"code=injected&code=other&state=" + state + iss, "code=injected&state=" + state + "&state=x" + iss,
			"error=access_denied", "error=access_denied&state=wrong", "%zz",
		} {
			if status := get(t, redirect+"?"+query, ""); status != http.StatusBadRequest {
				t.Errorf("%s: status %d", query, status)
			}
		}
		right := "?code=injected&state=" + state + iss
		if status := get(t, redirect+right, "rebound.example"); status != http.StatusBadRequest {
			t.Errorf("another name for this machine: status %d", status)
		}
		if status := get(t, strings.Replace(redirect, "/callback", "/other", 1)+right, ""); status != http.StatusNotFound {
			t.Errorf("another path: status %d", status)
		}
		return visit(page)
	}
	if _, err := signin.Login(within(t, 2*time.Minute), signin.Server{URL: s.URL()}, nil, p); err != nil {
		t.Fatal(err)
	}
	for _, q := range s.Seen("/token") {
		if strings.Contains(q.Form.Get("code"), "injected") {
			t.Errorf("the code of another was traded: %v", q.Form)
		}
	}
}

func get(t *testing.T, address, host string) int {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Error(err)
		return 0
	}
	q.Host = host
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer r.Body.Close()
	if page, _ := io.ReadAll(r.Body); strings.Contains(string(page), "injected") {
		t.Errorf("the page has what came with the request: %s", page)
	}
	return r.StatusCode
}

// TestLogin_Pasted signs in with the address that a browser on another machine ended at.
func TestLogin_Pasted(t *testing.T) {
	s := start(t)
	pasted, wrong := make(chan string), make(chan string, 9)
	p := signin.Person{Pasted: pasted, Wrong: func(why string) { wrong <- why }, Visit: func(page signin.Page) error {
		go func() {
			stop := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
			r, err := stop.Get(page.URL)
			if err != nil {
				t.Error(err)
				return
			}
			_ = r.Body.Close()
			pasted <- "what?"
			pasted <- "http://127.0.0.1:1/callback?code=x&state=y"
			pasted <- "  " + r.Header.Get("Location") + "\n"
		}()
		return nil
	}}
	c, err := signin.Login(within(t, 2*time.Minute), signin.Server{URL: s.URL()}, nil, p)
	if err != nil || c.Access == "" || len(wrong) != 2 {
		t.Errorf("got %+v, %v; %d were wrong", c, err, len(wrong))
	}
}

// TestLogin_Ends: a person who does not come back is not waited for without end, and the
// port is free then.
func TestLogin_Ends(t *testing.T) {
	s := start(t)
	var at string
	ctx, cancel := context.WithCancelCause(within(t, 2*time.Minute))
	p := signin.Person{Visit: func(page signin.Page) error {
		u, _ := url.Parse(page.URL)
		at = u.Query().Get("redirect_uri")
		cancel(context.DeadlineExceeded)
		return nil
	}}
	if _, err := signin.Login(ctx, signin.Server{URL: s.URL()}, nil, p); err == nil ||
		!strings.Contains(err.Error(), "timed out waiting for the sign-in") {
		t.Error(err)
	}
	if _, err := http.Get(at); err == nil {
		t.Error("the address still answers")
	}
	away := errors.New("the person has gone")
	p.Visit = func(signin.Page) error { return away }
	if _, err := signin.Login(t.Context(), signin.Server{URL: s.URL()}, nil, p); !errors.Is(err, away) {
		t.Error(err)
	}
}

// TestLogin_NotAsked: a server that asks for no sign-in says so.
func TestLogin_NotAsked(t *testing.T) {
	for status, want := range map[int]string{
		http.StatusNotFound: "does not ask for a sign-in", http.StatusUnauthorized: "may want a key",
	} {
		open := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("WWW-Authenticate", `Bearer "`)
			w.WriteHeader(map[string]int{"/mcp": status}[q.URL.Path] + map[bool]int{true: 404}[q.URL.Path != "/mcp"])
		}))
		t.Cleanup(open.Close)
		_, err := signin.Login(t.Context(), signin.Server{URL: open.URL + "/mcp"}, nil, browser(t))
		if toolcrib.CodeOf(err) != toolcrib.CodeBadRequest || !strings.Contains(err.Error(), want) {
			t.Error(err)
		}
	}
	if _, err := signin.Login(t.Context(), signin.Server{URL: "http://mcp.example/mcp"}, nil, browser(t)); err == nil ||
		!strings.Contains(err.Error(), "https://") {
		t.Error(err)
	}
}

// TestLogin_Redirected: a server may lead to another path of its own, with the token.
func TestLogin_Redirected(t *testing.T) {
	s := start(t)
	c, err := signin.Login(within(t, 2*time.Minute), signin.Server{URL: s.URL() + "/"}, nil, browser(t))
	if err != nil {
		t.Fatal(err)
	}
	one, err := signin.NewSession(s.URL()+"/", "x", &memory{c: c})
	if err != nil {
		t.Fatal(err)
	}
	ctx := within(t, 2*time.Minute)
	client, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(ctx,
		&sdk.StreamableClientTransport{
			Endpoint: s.URL() + "/", HTTPClient: &http.Client{Transport: one.Transport(http.DefaultTransport)},
		}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = client.Close() // it was only reached
}

// TestLogin_Old: a server of 2025-03-26 is its own authorization server.
func TestLogin_Old(t *testing.T) {
	s := start(t)
	origin := s.Auth.URL
	s.Handle = map[string]http.HandlerFunc{"/mcp": func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
	}}
	c, err := signin.Login(within(t, 2*time.Minute), signin.Server{URL: origin + "/mcp"}, nil, browser(t))
	if err != nil || c.Issuer != origin || c.Resource != origin+"/mcp" {
		t.Errorf("got %+v, %v", c, err)
	}
}
