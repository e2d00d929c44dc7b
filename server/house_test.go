package server_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/server"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/people"
)

const agents = `
providers: {demo: {type: script, file: demo.script}, slow: {type: script, file: slow.script}}
agents:
  default: {model: demo/x}
  slow: {model: slow/x}
  short: {model: demo/x, max_concurrent: 1}
`

var scripts = map[string]string{
	"demo.script": "- tool_calls: [{name: write_file, arguments: {path: out.txt, content: hello}}]\n- {text: done}\n",
	"slow.script": "- {text: one two three four, delay: 400ms}\n",
}

// never is the script of a run that does not end by itself.
const never = "- {text: never, delay: 10m}\n"

// house is a server on a data folder.
type house struct {
	t       *testing.T
	dir     string
	data    string // folder in dir; "" = data
	config  string
	service *service.Service
	server  *server.Server
	url     string
	stop    func() error
	walls   string                          // why there is no sandbox; "" uses that of this machine
	routes  map[string]map[string]operation // routes of the document, by path and method
	schemas map[string]*jsonschema.Schema
	mu      sync.Mutex
	checks  map[string]*jsonschema.Resolved // schemas in use
	log     record
	// others are further servers of the same database. Requests go to all of them in turn.
	others []*house
	asked  atomic.Uint64
}

// record is the log of a server.
type record struct {
	mu   sync.Mutex
	text []byte
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text = append(r.text, p...)
	return len(p), nil
}

// take returns the lines since the last call.
func (r *record) take() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := string(r.text)
	r.text = nil
	return text
}

type operation struct {
	Summary     string
	RequestBody *struct {
		Content map[string]struct{ Schema ref }
	}
	Responses  map[string]response
	Parameters []struct{ Name, In string }
	Security   *[]any
}

type response struct {
	ref
	Content map[string]struct{ Schema ref }
}

type ref struct {
	Ref string `json:"$ref"`
}

func (r ref) name() string { return r.Ref[strings.LastIndexByte(r.Ref, '/')+1:] }

var root = toolcrib.Principal{User: "local:root", Admin: true}

// open starts a server on a new data folder.
func open(t *testing.T, more string) *house {
	t.Helper()
	return openWith(t, agents+more, scripts)
}

// openWith starts a server with a configuration and scripts.
func openWith(t *testing.T, config string, scripts map[string]string) *house {
	t.Helper()
	h := &house{t: t, dir: t.TempDir(), config: config}
	for name, text := range scripts {
		h.script(name, text)
	}
	h.start()
	t.Cleanup(func() { _ = h.stop() })
	return h
}

// scripted starts a server with an agent for each of the scripts, by name. more is added to the list of agents.
func scripted(t *testing.T, scripts map[string]string, more string) *house {
	t.Helper()
	providers, agents, files := "providers:\n", "agents:\n  default: {model: hello/x}\n", map[string]string{}
	for name, text := range scripts {
		providers += "  " + name + ": {type: script, file: " + name + ".script}\n"
		agents += "  " + name + ": {model: " + name + "/x}\n"
		files[name+".script"] = text
	}
	return openWith(t, providers+agents+more, files)
}

// script sets the replies of a model from the next run on.
func (h *house) script(name, text string) {
	h.t.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, name), []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// restart replaces the server by another one with a changed configuration.
func (h *house) restart(from, to string) {
	h.t.Helper()
	if err := h.stop(); err != nil {
		h.t.Fatal(err)
	}
	h.config = strings.Replace(h.config, from, to, 1)
	h.start()
}

// start starts a server on the data folder as the last one has left it.
func (h *house) start() {
	h.t.Helper()
	path := filepath.Join(h.dir, "toolcrib.yaml")
	if err := os.WriteFile(path, []byte(h.config), 0o600); err != nil {
		h.t.Fatal(err)
	}
	c, err := config.Load(config.Source{Path: path, Origin: config.OriginFlag}, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	c.Log.Requests = strings.Contains(h.config, "log: {requests: true}")
	walls := h.walls
	h.service = service.New(env.Options{
		Config: c, DataDir: filepath.Join(h.dir, cmp.Or(h.data, "data")), Driver: "server", NoSandbox: func() string { return walls },
	})
	log := slog.New(slog.NewJSONHandler(&h.log, nil))
	h.service.Env.Notice = func(text string) { log.Info(text) } // as the command serve does
	h.service.Env.Log = func() (*slog.Logger, error) { return log, nil }
	if err := h.service.Env.OpenFor(h.t.Context(), root); err != nil {
		h.t.Fatal(err)
	}
	s, err := server.New(server.Options{Service: h.service, Log: log, Version: "test"})
	if err != nil {
		h.t.Fatal(err)
	}
	h.server = s
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		h.t.Fatal(err)
	}
	h.url = "http://" + l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l, "", "") }()
	stopped := false
	h.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		err := <-ended
		_ = h.service.Close()
		return err
	}
	h.read()
}

// read reads the document of the server.
func (h *house) read() {
	h.t.Helper()
	_, _, text := h.ask("GET", "/api/openapi.json", "", "")
	text = bytes.ReplaceAll(text, []byte("#/components/schemas/"), []byte("http://document/"))
	var doc struct {
		Paths      map[string]map[string]operation
		Components struct {
			Schemas   map[string]*jsonschema.Schema
			Responses map[string]response
		}
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		h.t.Fatal(err)
	}
	h.routes, h.schemas = doc.Paths, doc.Components.Schemas
	h.checks = map[string]*jsonschema.Resolved{}
	for _, methods := range h.routes {
		for method, op := range methods {
			if op.RequestBody != nil && op.RequestBody.Content["application/json"].Schema.Ref == "" {
				op.RequestBody = nil // it belongs to another protocol
				methods[method] = op
			}
			for status, one := range op.Responses {
				if one.Ref != "" {
					op.Responses[status] = doc.Components.Responses[one.name()]
				}
			}
		}
	}
	for _, schema := range h.schemas {
		closed(schema)
	}
}

// check returns a schema of the document with those that it refers to, or nil if the document lacks it.
func (h *house) check(name string) *jsonschema.Resolved {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.checks[name] == nil && h.schemas[name] != nil {
		resolved, err := h.schemas[name].CloneSchemas().Resolve(&jsonschema.ResolveOptions{
			Loader: func(at *url.URL) (*jsonschema.Schema, error) {
				return h.schemas[strings.TrimPrefix(at.Path, "/")].CloneSchemas(), nil
			},
		})
		if err != nil {
			h.t.Fatalf("%s: %v", name, err)
		}
		h.checks[name] = resolved
	}
	return h.checks[name]
}

// token adds a user and returns a token of that user.
func (h *house) token(user string, scope access.Scope) string {
	h.t.Helper()
	if _, err := h.service.People.User(h.t.Context(), root, user); err != nil {
		u := access.User{Name: user, Admin: user == "boss"}
		if _, err := h.service.People.AddUser(h.t.Context(), root, access.NewUser{User: u}); err != nil {
			h.t.Fatal(err)
		}
	}
	t, err := h.service.People.CreateToken(h.t.Context(), root, people.TokenRequest{User: user, Scope: scope, Via: "api"})
	if err != nil {
		h.t.Fatal(err)
	}
	return t.Token
}

// expired returns a token of a user that has expired.
func (h *house) expired(user string) string {
	h.t.Helper()
	t, err := h.service.People.CreateToken(h.t.Context(), root,
		people.TokenRequest{User: user, TTL: time.Second, Via: "api"})
	if err != nil {
		h.t.Fatal(err)
	}
	h.eventually("the token expires", func() bool {
		_, err := h.service.People.CheckToken(h.t.Context(), root, t.Token)
		return toolcrib.CodeOf(err) == toolcrib.CodeTokenExpired
	})
	return t.Token
}

var (
	signIn = access.Scope{SignIn: true}
	quiet  = slog.New(slog.DiscardHandler)
)

// beside starts another server with the same configuration, whose data folder has this name.
func (h *house) beside(data string) {
	h.t.Helper()
	other := &house{t: h.t, dir: h.dir, data: data, config: h.config}
	other.start()
	h.t.Cleanup(func() { _ = other.stop() })
	h.others = append(h.others, other)
}

// at returns the address for the next request.
func (h *house) at() string {
	if i := int(h.asked.Add(1)) % (1 + len(h.others)); i > 0 {
		return h.others[i-1].url
	}
	return h.url
}

func (h *house) request(method, path, token, body string, head ...string) *http.Request {
	h.t.Helper()
	r, err := http.NewRequestWithContext(h.t.Context(), method, h.at()+path, strings.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(head); i += 2 {
		r.Header.Set(head[i], head[i+1])
		if head[i] == "Host" {
			r.Host = head[i+1]
		}
	}
	return r
}

// ask sends a request and checks the answer against the document.
func (h *house) ask(method, path, token, body string, head ...string) (int, http.Header, []byte) {
	h.t.Helper()
	res, err := http.DefaultClient.Do(h.request(method, path, token, body, head...))
	if err != nil {
		h.t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	if h.routes != nil && strings.HasPrefix(res.Header.Get("Content-Type"), "application/json") {
		h.fits(method, path, res.StatusCode, data)
	}
	return res.StatusCode, res.Header, data
}

// closed makes a schema reject fields that the document does not have. Clients must accept them.
func closed(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if s.Properties != nil && s.AdditionalProperties == nil {
		s.AdditionalProperties = &jsonschema.Schema{Not: &jsonschema.Schema{}}
	}
	for _, p := range s.Properties {
		closed(p)
	}
	closed(s.Items)
	closed(s.AdditionalProperties)
}

// fits checks an answer against the document.
func (h *house) fits(method, path string, status int, data []byte) {
	h.t.Helper()
	path, _, _ = strings.Cut(path, "?")
	name := "Failure" // if there is no such route
	for pattern, methods := range h.routes {
		if op, ok := methods[strings.ToLower(method)]; ok && matches(pattern, path) {
			known, ok := op.Responses[strconv.Itoa(status)]
			if !ok {
				h.t.Errorf("%s %s: the document has no %d: %s", method, pattern, status, data)
			}
			name = known.Content["application/json"].Schema.name()
		}
	}
	schema := h.check(name)
	if name == "" {
		return
	}
	var value any
	if err := json.Unmarshal(data, &value); err != nil || schema == nil {
		h.t.Errorf("%s %s: %d %s (%s): %v", method, path, status, data, name, err)
		return
	}
	if err := schema.Validate(value); err != nil {
		h.t.Errorf("%s %s answers what the document does not have: %v\n%s", method, path, err, data)
	}
}

func matches(pattern, path string) bool {
	a, b := strings.Split(pattern, "/"), strings.Split(path, "/")
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] && !strings.HasPrefix(a[i], "{") {
			return false
		}
	}
	return true
}

// want sends a request and checks the status. The answer is decoded into out, unless that is nil.
func (h *house) want(status int, out any, method, path, token, body string, head ...string) {
	h.t.Helper()
	got, _, data := h.ask(method, path, token, body, head...)
	if got != status {
		h.t.Fatalf("%s %s: %d, want %d: %s", method, path, got, status, data)
	}
	if out != nil {
		if err := json.Unmarshal(data, out); err != nil {
			h.t.Fatalf("%s %s: %v: %s", method, path, err, data)
		}
	}
}

type event struct {
	id   int
	name string
	data string
}

// events reads a stream until it ends or until returns true.
func (h *house) events(r *http.Request, until func(event) bool) (all []event) {
	h.t.Helper()
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		h.t.Fatal(err)
	}
	defer res.Body.Close()
	if kind := res.Header.Get("Content-Type"); res.StatusCode != 200 || kind != "text/event-stream" {
		data, _ := io.ReadAll(res.Body)
		h.t.Fatalf("%s: %d %s %s", r.URL, res.StatusCode, kind, data)
	}
	var e event
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		switch name, value, _ := strings.Cut(lines.Text(), ": "); name {
		case "id":
			e.id, _ = strconv.Atoi(value)
		case "event":
			e.name = value
		case "data":
			e.data = value
		case "":
			if e.name == "" {
				continue
			}
			if strings.HasPrefix(r.URL.Path, "/api/") {
				h.fitsEvent(e)
			}
			all = append(all, e)
			if until != nil && until(e) {
				return all
			}
			e = event{}
		}
	}
	return all
}

// fitsEvent checks an event against the document.
func (h *house) fitsEvent(e event) {
	h.t.Helper()
	for name, schema := range h.schemas {
		if schema.Title == e.name {
			var data any
			if err := errors.Join(json.Unmarshal([]byte(e.data), &data), h.check(name).Validate(data)); err != nil {
				h.t.Errorf("event %s is not as the document has it: %v\n%s", e.name, err, e.data)
			}
			return
		}
	}
	h.t.Errorf("the document has no event %s: %s", e.name, e.data)
}

func names(all []event) string {
	var b bytes.Buffer
	for _, e := range all {
		b.WriteString(e.name + " ")
	}
	return b.String()
}

// eventually waits until a condition is true.
func (h *house) eventually(what string, is func() bool) {
	h.t.Helper()
	waittest.Until(h.t, what, is)
}

// unwritten removes the file that the model of [open] has a user write: another write of its content would not ask.
func (h *house) unwritten(user string) {
	h.t.Helper()
	err := os.Remove(filepath.Join(h.dir, "data", "workspaces", user, "out.txt"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		h.t.Fatal(err)
	}
}
