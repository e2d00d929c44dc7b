package service_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/people"
)

const house = `
providers: {demo: {type: script, file: demo.script}}
agents: {default: {model: demo/x}}
`

// writes is a script of a model that writes a file.
const writes = "- tool_calls: [{name: write_file, arguments: {path: out.txt, content: hello}}]\n- {text: done}\n"

// open returns a service on a new data folder, whose model writes a file.
func open(t testing.TB) *service.Service {
	t.Helper()
	return openWith(t, writes)
}

// openWith returns a service on a new data folder, with the script of its model and further tools.
func openWith(t testing.TB, script string, tools ...toolcrib.Tool) *service.Service {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"toolcrib.yaml": house, "demo.script": script} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := config.Load(config.Source{Path: filepath.Join(dir, "toolcrib.yaml"), Origin: config.OriginFlag}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := service.New(env.Options{
		Config: c, DataDir: filepath.Join(dir, "data"), Driver: "test",
		NoSandbox: func() string { return "" }, Notice: func(text string) { t.Log(text) }, Tools: tools,
	})
	t.Cleanup(func() { _ = s.Close() })
	if err := s.Env.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

var root = toolcrib.Principal{User: "local:root", Admin: true}

// carrier adds a user with an access token for all tools, and returns the principal of the token.
func carrier(t *testing.T, s *service.Service, name string) toolcrib.Principal {
	t.Helper()
	if _, err := s.People.User(t.Context(), root, name); err != nil {
		if _, err := s.People.AddUser(t.Context(), root,
			access.NewUser{User: access.User{Name: name, Admin: name == "bob"}}); err != nil {
			t.Fatal(err)
		}
	}
	scope := access.Scope{Agents: []string{"default"}, Tools: []string{"write_file"}}
	token, err := s.People.CreateToken(t.Context(), root, people.TokenRequest{User: name, Scope: scope, Via: "api"})
	if err != nil {
		t.Fatal(err)
	}
	who, err := s.People.ActBy(t.Context(), "http", token.Token)
	if err != nil {
		t.Fatal(err)
	}
	return who
}

func has(t *testing.T, what string, err error, want toolcrib.Code) {
	t.Helper()
	if got := toolcrib.CodeOf(err); got != want {
		t.Errorf("%s: %v (%s), want %s", what, err, got, want)
	}
}
