package ui_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/internal/browsertest"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/server"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/people"
)

func TestMain(m *testing.M) {
	code := m.Run()
	browsertest.Stop()
	os.Exit(code)
}

// root is the owner of the data folder.
var root = toolcrib.Principal{User: "local:root", Admin: true}

// house is a server with its data folder.
type house struct {
	t       *testing.T
	dir     string
	url     string
	project string // folder of the project; "" = none
	service *service.Service
	stop    func()
}

// open starts a server. scripts are the replies of models: each is a provider and an agent of its name; default is the
// one of agents without a model. more is added to the configuration.
func open(t *testing.T, scripts map[string]string, more string) *house {
	t.Helper()
	h := &house{t: t, dir: t.TempDir()}
	providers, agents := "providers:\n", "agents:\n"
	for name, text := range scripts {
		providers += "  " + name + ": {type: script, file: " + name + ".script}\n"
		agents += "  " + name + ": {model: " + name + "/x}\n"
		h.write(name+".script", text)
	}
	h.write("toolcrib.yaml", providers+agents+more)
	h.start("127.0.0.1:0")
	t.Cleanup(func() { h.stop() })
	return h
}

func (h *house) write(name, text string) {
	h.t.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, name), []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// start starts a server on the data folder, and restart another one at the same address.
func (h *house) start(address string) {
	h.t.Helper()
	c, err := config.Load(config.Source{Path: filepath.Join(h.dir, "toolcrib.yaml"), Origin: config.OriginFlag}, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	h.service = service.New(env.Options{
		Config: c, DataDir: filepath.Join(h.dir, "data"), Driver: "server", NoSandbox: func() string { return "" },
		Source: config.Source{Folder: h.project},
	})
	if err := h.service.Env.OpenFor(h.t.Context(), root); err != nil {
		h.t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(h.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	s, err := server.New(server.Options{Service: h.service, Log: log, Version: "test"})
	if err != nil {
		h.t.Fatal(err)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		h.t.Fatal(err)
	}
	h.url = "http://" + l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l, "", "") }()
	stopped := false
	h.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			h.t.Errorf("the server: %v", err)
		}
		_ = h.service.Close()
	}
}

func (h *house) restart() {
	h.t.Helper()
	h.stop()
	h.start(strings.TrimPrefix(h.url, "http://"))
}

// token returns an access token of a user, who is added if missing. The user boss is an administrator.
func (h *house) token(user string) string {
	h.t.Helper()
	if _, err := h.service.People.User(h.t.Context(), root, user); err != nil {
		u := access.User{Name: user, Admin: user == "boss"}
		if _, err := h.service.People.AddUser(h.t.Context(), root, access.NewUser{User: u}); err != nil {
			h.t.Fatal(err)
		}
	}
	t, err := h.service.People.CreateToken(h.t.Context(), root,
		people.TokenRequest{User: user, Scope: access.Scope{SignIn: true}, Via: "api"})
	if err != nil {
		h.t.Fatal(err)
	}
	return t.Token
}

// tab opens a tab of a user.
func (h *house) tab(user string, o browsertest.Options) *browsertest.Tab {
	h.t.Helper()
	o.Token = h.token(user)
	return browsertest.Open(h.t, o)
}

// get returns the answer to a request of a user for a page, without a browser.
func (h *house) get(token, path string) (status int, head http.Header, body string) {
	h.t.Helper()
	return h.send(token, http.MethodGet, path, "", "")
}

// form sends a form as a browser without JavaScript does.
func (h *house) form(token, path, values string) (status int, head http.Header, body string) {
	h.t.Helper()
	return h.send(token, http.MethodPost, path, "application/x-www-form-urlencoded", values)
}

// program sends a request to the API, as a program with an access token does.
func (h *house) program(token, method, path, body string) (status int, text string) {
	h.t.Helper()
	status, _, text = h.send(token, method, path, "application/json", body)
	return status, text
}

// post sends a request to the API, which must succeed.
func (h *house) post(token, path, body string, into any) {
	h.t.Helper()
	status, text := h.program(token, http.MethodPost, path, body)
	if status/100 != 2 {
		h.t.Fatalf("%s %s: %d %s", path, body, status, text)
	}
	if into != nil {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			h.t.Fatal(err)
		}
	}
}

// send sends a request, and follows no redirect.
func (h *house) send(token, method, path, kind, text string) (status int, head http.Header, body string) {
	h.t.Helper()
	r, err := http.NewRequestWithContext(h.t.Context(), method, h.url+path, strings.NewReader(text))
	if err != nil {
		h.t.Fatal(err)
	}
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	if kind != "application/json" {
		r.Header.Set("Accept", "text/html")
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		h.t.Fatal(err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return answer.StatusCode, answer.Header, string(data)
}
