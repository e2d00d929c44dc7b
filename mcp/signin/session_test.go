package signin_test

import (
	"context"
	"errors"
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
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/mcp/signin"
)

// TestSession_Refresh: many simultaneous calls of two processes refresh a token once; the server,
// which accepts each refresh token once, refuses none.
func TestSession_Refresh(t *testing.T) {
	for name, end := range map[string]func(s *oauthtest.Server, m *memory){
		"expired": func(_ *oauthtest.Server, m *memory) { m.c.Expires = time.Now().Add(-time.Hour) },
		"refused": func(s *oauthtest.Server, _ *memory) { s.Expire() },
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			store := &memory{c: login(t, s, signin.Server{})}
			first := store.c.Refresh
			processes := []*http.Client{session(t, s, store), session(t, s, store)}
			for _, one := range processes {
				if err := use(t, s, one, "look"); err != nil {
					t.Fatal(err)
				}
			}
			end(s, store)
			if name == "expired" {
				processes = []*http.Client{session(t, s, store), session(t, s, store)}
			}
			var all sync.WaitGroup
			for i := range 20 {
				all.Go(func() {
					if err := use(t, s, processes[i%2], "look"); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if n := len(s.Seen("/token")); n != 2 {
				t.Errorf("%d requests for tokens, want one for the sign-in and one to refresh", n)
			}
			if store.c.Refresh == first {
				t.Error("the new refresh token is not kept")
			}
		})
	}
}

// TestSession_Asks: where a person must sign in, the error says how, and nothing waits.
func TestSession_Asks(t *testing.T) {
	tests := []struct {
		name   string
		change func(s *oauthtest.Server, c *signin.Credentials) *signin.Credentials
		want   string
	}{
		{"nobody has signed in", func(*oauthtest.Server, *signin.Credentials) *signin.Credentials { return nil }, "asks for a sign-in"},
		{"expired, without a refresh token", func(_ *oauthtest.Server, c *signin.Credentials) *signin.Credentials {
			c.Expires, c.Refresh = time.Now(), ""
			return c
		}, "the sign-in has expired"},
		{"refused, without a refresh token", func(s *oauthtest.Server, c *signin.Credentials) *signin.Credentials {
			s.Expire()
			c.Refresh = ""
			return c
		}, "the sign-in has expired"},
		{"the refresh token is not taken", func(_ *oauthtest.Server, c *signin.Credentials) *signin.Credentials {
			c.Expires, c.Refresh = time.Now(), "another"
			return c
		}, "the sign-in has ended"},
		{"another address", func(_ *oauthtest.Server, c *signin.Credentials) *signin.Credentials {
			c.URL += "2"
			return c
		}, "asks for a sign-in"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t)
			store := &memory{c: tt.change(s, login(t, s, signin.Server{}))}
			for range 3 { // it is said each time, and a refresh token that was refused is not sent again
				err := use(t, s, session(t, s, store), "look")
				if err == nil || !strings.Contains(err.Error(), "to sign in: toolcrib mcp login x") {
					t.Fatalf("got %v", err)
				}
				if !strings.Contains(err.Error(), tt.want) && !strings.Contains(err.Error(), "has expired") {
					t.Errorf("got %v", err)
				}
			}
			if n := len(s.Seen("/token")); n > 2 {
				t.Errorf("%d requests for tokens", n)
			}
			for _, q := range s.Seen("/mcp") {
				if tt.name == "another address" && q.Token != "" {
					t.Error("the token of another address was sent")
				}
			}
		})
	}
}

// TestSession_RefreshHostile: a refresh that answers something else changes nothing.
func TestSession_RefreshHostile(t *testing.T) {
	thief := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		t.Errorf("%s %s came to another server", q.Method, q.URL)
	}))
	t.Cleanup(thief.Close)
	for want, change := range map[string]func(s *oauthtest.Server){
		"for another server": func(s *oauthtest.Server) {
			s.Token = func(_ url.Values, a map[string]any) { a["resource"] = "https://bank.example/mcp" }
		},
		"redirects": func(s *oauthtest.Server) {
			s.Handle = map[string]http.HandlerFunc{"/token": func(w http.ResponseWriter, q *http.Request) {
				http.Redirect(w, q, thief.URL, http.StatusPermanentRedirect)
			}}
		},
		"503": func(s *oauthtest.Server) {
			s.Handle = map[string]http.HandlerFunc{"/token": func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusServiceUnavailable)
			}}
		},
	} {
		s := start(t)
		s.NoRotate = true
		store := &memory{c: login(t, s, signin.Server{})}
		store.c.Expires = time.Now()
		before := store.c
		change(s)
		client := session(t, s, store)
		if _, err := client.Get(s.URL()); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "cannot be refreshed") {
			t.Errorf("%s: %v", want, err)
		}
		if store.c != before {
			t.Errorf("%s: the sign-in was changed", want)
		}
		s.Token, s.Handle = nil, nil
		soon(t, func() error { return use(t, s, client, "look") }) // it was not the end of the sign-in
	}
}

// TestSession_Scopes: a call that needs more says so; the next sign-in asks for all.
func TestSession_Scopes(t *testing.T) {
	s := start(t)
	store := &memory{c: login(t, s, signin.Server{})}
	client := session(t, s, store)
	err := use(t, s, client, "put")
	if err == nil || !strings.Contains(err.Error(), "needs more than the sign-in allows; to allow it: toolcrib mcp login x") {
		t.Fatalf("got %v", err)
	}
	if err := use(t, s, client, "look"); err != nil {
		t.Error(err)
	}
	if len(s.Seen("/authorize")) != 1 {
		t.Error("a call has asked for consent")
	}
	more, err := signin.Login(within(t, 2*time.Minute), signin.Server{URL: s.URL()}, store.c, browser(t))
	if err != nil || !slices.Equal(more.Scopes, []string{"read", "write"}) || len(more.Wanted) > 0 {
		t.Fatalf("got %+v, %v", more, err)
	}
	if err := use(t, s, session(t, s, &memory{c: more}), "put"); err != nil {
		t.Error(err)
	}
	// Of another issuer nothing is taken over.
	other := *store.c
	other.Issuer, other.Wanted = "https://other.example", []string{"everything"}
	if c, err := signin.Login(within(t, 2*time.Minute), signin.Server{URL: s.URL()}, &other, browser(t)); err != nil ||
		slices.Contains(c.Scopes, "everything") {
		t.Errorf("got %+v, %v", c, err)
	}
}

// TestSession_OtherOrigin: a request for another server is not sent, with a token or without.
func TestSession_OtherOrigin(t *testing.T) {
	thief := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was sent") }))
	t.Cleanup(thief.Close)
	s := start(t)
	client := session(t, s, &memory{c: login(t, s, signin.Server{})})
	if _, err := client.Get(thief.URL); err == nil || !strings.Contains(err.Error(), "another server") {
		t.Error(err)
	}
	if _, err := signin.NewSession("http://mcp.example/mcp", "x", &memory{}); err == nil {
		t.Error("a token would be sent in clear text")
	}
}

// TestSession_CallerGone: a refresh that has begun is finished and stored, even if its caller is gone;
// the others get its token.
func TestSession_CallerGone(t *testing.T) {
	s := start(t)
	store := &memory{c: login(t, s, signin.Server{})}
	store.c.Expires = time.Now()
	began, release := make(chan struct{}), make(chan struct{})
	s.Token = func(url.Values, map[string]any) { close(began); <-release }
	client := session(t, s, store)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-began; cancel() }()
	q, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.URL(), nil)
	if _, err := client.Do(q); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	s.Token = nil
	close(release)
	if err := use(t, s, client, "look"); err != nil {
		t.Error(err)
	}
	if n := len(s.Seen("/token")); n != 2 {
		t.Errorf("%d requests for tokens", n)
	}
}

// TestSession_Full: a refresh that cannot be kept is an error once, and holds in this process.
func TestSession_Full(t *testing.T) {
	s := start(t)
	store := &memory{c: login(t, s, signin.Server{}), fail: errors.New("no space left")}
	store.c.Expires = time.Now()
	client := session(t, s, store)
	if _, err := client.Get(s.URL()); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Error(err)
	}
	if err := use(t, s, client, "look"); err != nil {
		t.Error(err)
	}
}

// TestRevoke: the issuer of the tokens is notified that they are no longer used, if it supports that.
func TestRevoke(t *testing.T) {
	s := start(t)
	c := login(t, s, signin.Server{})
	if done, err := c.Revoke(t.Context()); err != nil || !done {
		t.Error(done, err)
	}
	if access, refresh := s.Live(); access+refresh > 0 {
		t.Errorf("%d and %d tokens are left", access, refresh)
	}
	s.Handle = map[string]http.HandlerFunc{"/revoke": http.NotFound}
	if done, err := c.Revoke(t.Context()); err == nil || done {
		t.Error(done, err)
	}
	c.RevokeURL = ""
	if done, err := c.Revoke(t.Context()); err != nil || done {
		t.Error(done, err)
	}
}

// TestSession_Refused: a client that tries another protocol at once gets the same error, and
// sends nothing. A sign-in counts soon.
func TestSession_Refused(t *testing.T) {
	began := time.Now()
	s := start(t)
	store := &memory{}
	client := session(t, s, store)
	for range 20 {
		if _, err := client.Get(s.URL()); toolcrib.CodeOf(err) != toolcrib.CodeUnauthorized {
			t.Error(err)
		}
	}
	if n := len(s.Seen("/mcp")); n > 10+int(time.Since(began).Seconds()) { // one each second
		t.Errorf("%d requests", n)
	}
	store.c = login(t, s, signin.Server{})
	soon(t, func() error { return use(t, s, client, "look") })
}

// soon waits until something works.
func soon(t *testing.T, try func() error) {
	t.Helper()
	var err error
	waittest.Until(t, "it works", func() bool {
		err = try()
		return err == nil
	})
}

// TestSession_Hangs: calls that wait for an authorization server that hangs end when their
// callers want, and do not each wait for it in turn.
func TestSession_Hangs(t *testing.T) {
	began := time.Now()
	s := start(t)
	store := &memory{c: login(t, s, signin.Server{})}
	store.c.Expires = time.Now()
	release := make(chan struct{})
	s.Handle = map[string]http.HandlerFunc{"/token": func(w http.ResponseWriter, _ *http.Request) {
		<-release
		w.WriteHeader(http.StatusServiceUnavailable)
	}}
	client := session(t, s, store)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			q, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.URL(), nil)
			if _, err := client.Do(q); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	close(release)
	if _, err := client.Get(s.URL()); err == nil || !strings.Contains(err.Error(), "cannot be refreshed") {
		t.Error(err)
	}
	if n := len(s.Seen("/token")); n > 10+int(time.Since(began).Seconds()) { // one for the sign-in, and one each second
		t.Errorf("%d requests for tokens", n)
	}
}

// TestSession_Unreadable: a server that needs no sign-in works, also if none can be read.
func TestSession_Unreadable(t *testing.T) {
	s := start(t)
	client := session(t, s, unreadable{})
	if _, err := client.Get(s.URL()); err == nil || !strings.Contains(err.Error(), "the keys are gone") {
		t.Error(err)
	}
	open := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	t.Cleanup(open.Close)
	one, err := signin.NewSession(open.URL, "x", unreadable{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := (&http.Client{Transport: one.Transport(http.DefaultTransport)}).Get(open.URL)
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close()
}

type unreadable struct{ signin.Store }

func (unreadable) Load() (*signin.Credentials, error) { return nil, errors.New("the keys are gone") }

// TestSession_SSE signs in to a server that has the transport of 2024-11-05.
func TestSession_SSE(t *testing.T) {
	s := start(t)
	s.Resource = func(m map[string]any) { m["resource"] = s.MCP.URL }
	at := s.MCP.URL + "/sse"
	c, err := signin.Login(within(t, 2*time.Minute), signin.Server{URL: at}, nil, browser(t))
	if err != nil {
		t.Fatal(err)
	}
	one, err := signin.NewSession(at, "x", &memory{c: c})
	if err != nil {
		t.Fatal(err)
	}
	s.Expire() // it refreshes, too
	ctx := within(t, 2*time.Minute)
	client, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(ctx,
		&sdk.SSEClientTransport{Endpoint: at, HTTPClient: &http.Client{Transport: one.Transport(http.DefaultTransport)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.CallTool(ctx, &sdk.CallToolParams{Name: "look"}); err != nil {
		t.Error(err)
	}
}
