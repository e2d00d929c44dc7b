// Package oauthtest provides an MCP server that requires signing in, and its authorization server, for
// tests. They use HTTP on loopback, and are as strict as the standards. Tests can change their
// responses.
package oauthtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Server is an MCP server and its authorization server, at two origins. Its fields may be set before it
// is used. The functions modify responses.
type Server struct {
	MCP, Auth *httptest.Server

	NoRotate bool                                    // whether a refresh token may be reused
	Resource func(map[string]any)                    // modifies the metadata of the resource
	Metadata func(map[string]any)                    // modifies that of the authorization server
	Answer   func(url.Values)                        // modifies the redirect of the browser
	Token    func(form url.Values, a map[string]any) // modifies the response of the token endpoint
	Handle   map[string]http.HandlerFunc             // replaces paths of the authorization server

	mu      sync.Mutex
	clients map[string]client
	codes   map[string]grant
	access  map[string]grant
	refresh map[string]grant
	seen    []Request
}

const tokenLife = time.Hour

// Request is a request to one of the servers.
type Request struct {
	To     string // mcp or auth
	Method string
	Path   string
	Token  string // bearer token
	Form   url.Values
	Body   map[string]any
}

type client struct {
	secret   string
	redirect string
}

type grant struct {
	client, redirect, challenge, resource string
	scopes                                []string
	ends                                  time.Time
}

// New starts both servers.
func New() *Server {
	s := &Server{
		clients: map[string]client{}, codes: map[string]grant{}, access: map[string]grant{}, refresh: map[string]grant{},
	}
	s.Auth = httptest.NewUnstartedServer(s.record("auth", s.auth()))
	s.MCP = httptest.NewUnstartedServer(s.record("mcp", s.mcp()))
	s.Auth.Start()
	s.MCP.Start() // a client of an earlier server at this address may ask at once
	return s
}

// Close ends both servers.
func (s *Server) Close() {
	s.MCP.CloseClientConnections()
	s.MCP.Close()
	s.Auth.Close()
}

// URL returns the address of the MCP server.
func (s *Server) URL() string { return s.MCP.URL + "/mcp" }

// Register registers a client in advance.
func (s *Server) Register(id, secret, redirect string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients[id] = client{secret, redirect}
}

// Expire makes all access tokens invalid.
func (s *Server) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.access)
}

// Live returns the numbers of valid access and refresh tokens.
func (s *Server) Live() (access, refresh int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.access), len(s.refresh)
}

// Seen returns the requests for a path.
func (s *Server) Seen(path string) (list []Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.seen {
		if q.Path == path {
			list = append(list, q)
		}
	}
	return list
}

// record records the requests of a server.
func (s *Server) record(to string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, q.Body, 1<<20))
		if err != nil {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			return
		}
		q.Body = io.NopCloser(bytes.NewReader(body))
		one := Request{To: to, Method: q.Method, Path: q.URL.Path, Form: q.URL.Query()}
		one.Token, _ = strings.CutPrefix(q.Header.Get("Authorization"), "Bearer ")
		if strings.HasPrefix(q.Header.Get("Content-Type"), "application/x-www-form-urlencoded") {
			one.Form, _ = url.ParseQuery(string(body)) // empty if it is not a form
		}
		_ = json.Unmarshal(body, &one.Body) // nil if it is not JSON
		s.mu.Lock()
		s.seen = append(s.seen, one)
		s.mu.Unlock()
		if handle := s.Handle[q.URL.Path]; handle != nil && to == "auth" {
			handle(w, q)
			return
		}
		next.ServeHTTP(w, q)
	})
}

// mcp returns the handler of the MCP server, at /mcp, and at /sse with the transport of 2024-11-05. Its
// tool look needs a token, its tool put one with the scope write.
func (s *Server) mcp() http.Handler {
	server := sdk.NewServer(&sdk.Implementation{Name: "guarded", Version: "1"}, nil)
	for _, name := range []string{"look", "put"} {
		server.AddTool(&sdk.Tool{Name: name, Description: name, InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(_ context.Context, q *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
				text := name + " done"
				if q.Extra != nil { // a faulty server that reveals the token
					text += " with " + q.Extra.Header.Get("Authorization")
				}
				return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}}, nil
			})
	}
	get := func(*http.Request) *sdk.Server { return server }
	inner := map[string]http.Handler{"/mcp": sdk.NewStreamableHTTPHandler(get, nil), "/sse": sdk.NewSSEHandler(get, nil)}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/oauth-protected-resource/", func(w http.ResponseWriter, _ *http.Request) {
		answer := map[string]any{
			"resource": s.URL(), "authorization_servers": []string{s.Auth.URL}, "scopes_supported": []string{"read"},
		}
		if s.Resource != nil {
			s.Resource(answer)
		}
		write(w, http.StatusOK, answer)
	})
	guarded := func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body) // a buffer, see record
		q.Body = io.NopCloser(bytes.NewReader(body))
		token, _ := strings.CutPrefix(q.Header.Get("Authorization"), "Bearer ")
		s.mu.Lock()
		g, ok := s.access[token]
		s.mu.Unlock()
		challenge := `Bearer resource_metadata="` + s.MCP.URL + `/.well-known/oauth-protected-resource` + q.URL.Path + `"`
		switch {
		case !ok || time.Now().After(g.ends) || g.resource != s.URL() && g.resource != s.MCP.URL:
			w.Header().Set("WWW-Authenticate", challenge)
			w.WriteHeader(http.StatusUnauthorized)
		case bytes.Contains(body, []byte(`"name":"put"`)) && !slices.Contains(g.scopes, "write"):
			w.Header().Set("WWW-Authenticate", challenge+`, error="insufficient_scope", scope="write"`)
			w.WriteHeader(http.StatusForbidden)
		default:
			inner[q.URL.Path].ServeHTTP(w, q)
		}
	}
	mux.Handle("/mcp/", http.RedirectHandler("/mcp", http.StatusTemporaryRedirect))
	for path := range inner {
		mux.HandleFunc(path, guarded)
	}
	return mux
}

func write(w http.ResponseWriter, status int, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer) // it fails only if the client has gone
}

func fail(w http.ResponseWriter, status int, code string) {
	write(w, status, map[string]string{"error": code, "error_description": "because it is " + code})
}

// auth returns the handler of the authorization server.
func (s *Server) auth() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/oauth-authorization-server", func(w http.ResponseWriter, _ *http.Request) {
		at := s.Auth.URL
		answer := map[string]any{
			"issuer": at, "authorization_endpoint": at + "/authorize", "token_endpoint": at + "/token",
			"registration_endpoint": at + "/register", "revocation_endpoint": at + "/revoke",
			"response_types_supported": []string{"code"}, "code_challenge_methods_supported": []string{"S256"},
			"token_endpoint_auth_methods_supported":          []string{"none", "client_secret_basic"},
			"authorization_response_iss_parameter_supported": true,
		}
		if s.Metadata != nil {
			s.Metadata(answer)
		}
		write(w, http.StatusOK, answer)
	})
	mux.HandleFunc("POST /register", func(w http.ResponseWriter, q *http.Request) {
		var asked struct {
			Redirects []string `json:"redirect_uris"`
		}
		if json.NewDecoder(q.Body).Decode(&asked) != nil || len(asked.Redirects) != 1 {
			fail(w, http.StatusBadRequest, "invalid_client_metadata")
			return
		}
		id := "client-" + rand.Text()
		s.Register(id, "", asked.Redirects[0])
		write(w, http.StatusCreated, map[string]any{
			"client_id": id, "redirect_uris": asked.Redirects, "token_endpoint_auth_method": "none",
		})
	})
	mux.HandleFunc("GET /authorize", s.authorize)
	mux.HandleFunc("POST /token", s.token)
	mux.HandleFunc("POST /revoke", func(w http.ResponseWriter, q *http.Request) {
		if _, ok := s.knows(q); !ok {
			fail(w, http.StatusUnauthorized, "invalid_client")
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.access, q.PostFormValue("token"))
		delete(s.refresh, q.PostFormValue("token"))
	})
	return mux
}

// authorize consents at once, and redirects the browser back.
func (s *Server) authorize(w http.ResponseWriter, q *http.Request) {
	v := q.URL.Query()
	s.mu.Lock()
	known, ok := s.clients[v.Get("client_id")]
	s.mu.Unlock()
	if !ok || known.redirect != v.Get("redirect_uri") || v.Get("response_type") != "code" ||
		v.Get("code_challenge_method") != "S256" || v.Get("code_challenge") == "" || v.Get("state") == "" {
		fail(w, http.StatusBadRequest, "invalid_request")
		return
	}
	code := "code-" + rand.Text()
	s.mu.Lock()
	s.codes[code] = grant{
		client: v.Get("client_id"), redirect: known.redirect, challenge: v.Get("code_challenge"),
		resource: v.Get("resource"), scopes: strings.Fields(v.Get("scope")),
	}
	s.mu.Unlock()
	answer := url.Values{"code": {code}, "state": {v.Get("state")}, "iss": {s.Auth.URL}}
	if s.Answer != nil {
		s.Answer(answer)
	}
	http.Redirect(w, q, known.redirect+"?"+answer.Encode(), http.StatusFound)
}

// knows returns the client of a request. ok is false if its secret is wrong.
func (s *Server) knows(q *http.Request) (id string, ok bool) {
	id, secret, header := q.BasicAuth()
	if header {
		id, _ = url.QueryUnescape(id) // an invalid one is not a known client
		secret, _ = url.QueryUnescape(secret)
	} else {
		id, secret = q.PostFormValue("client_id"), q.PostFormValue("client_secret")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.clients[id]
	return id, ok && known.secret == secret && header == (known.secret != "")
}

func (s *Server) token(w http.ResponseWriter, q *http.Request) {
	id, ok := s.knows(q)
	if !ok || q.ParseForm() != nil {
		fail(w, http.StatusUnauthorized, "invalid_client")
		return
	}
	v := q.PostForm
	s.mu.Lock()
	defer s.mu.Unlock()
	var g grant
	switch v.Get("grant_type") {
	case "authorization_code":
		g, ok = s.codes[v.Get("code")]
		delete(s.codes, v.Get("code"))
		sum := sha256.Sum256([]byte(v.Get("code_verifier")))
		ok = ok && g.challenge == base64.RawURLEncoding.EncodeToString(sum[:]) && g.redirect == v.Get("redirect_uri")
	case "refresh_token":
		if g, ok = s.refresh[v.Get("refresh_token")]; !ok { // it was stolen or used twice: revoke its successors
			maps.DeleteFunc(s.refresh, func(_ string, one grant) bool { return one.client == id })
		}
		if !s.NoRotate {
			delete(s.refresh, v.Get("refresh_token"))
		}
	}
	if !ok || g.client != id || g.resource != v.Get("resource") {
		fail(w, http.StatusBadRequest, "invalid_grant")
		return
	}
	g.ends = time.Now().Add(tokenLife)
	access, refresh := "access-"+rand.Text(), "refresh-"+rand.Text()
	answer := map[string]any{
		"access_token": access, "token_type": "Bearer", "expires_in": int(tokenLife.Seconds()), "refresh_token": refresh,
		"scope": strings.Join(g.scopes, " "),
	}
	if s.Token != nil {
		s.Token(v, answer)
	}
	s.access[fmt.Sprint(answer["access_token"])] = g
	if token := answer["refresh_token"]; token != nil {
		s.refresh[fmt.Sprint(token)] = g
	}
	write(w, http.StatusOK, answer)
}
