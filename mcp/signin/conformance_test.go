package signin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/npmtest"
	"github.com/toolcrib/toolcrib/mcp/signin"
)

func TestMain(m *testing.M) {
	if os.Getenv("MCP_CONFORMANCE_SCENARIO") != "" {
		if err := conforming(os.Args[len(os.Args)-1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// TestConformance runs the scenarios of the official suite that are about signing in, for
// 2025-11-25 and 2026-07-28. Its clients are this program.
func TestConformance(t *testing.T) {
	// What is not done on purpose, and why.
	refused := map[string]string{
		"2025-03-26-oauth-endpoint-fallback": "a server without metadata does not say that it supports PKCE",
	}
	node, suite := npmtest.Conformance(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{
		"metadata-default", "metadata-var1", "metadata-var2", "metadata-var3", "basic-cimd", "scope-from-www-authenticate",
		"scope-from-scopes-supported", "scope-omitted-when-undefined", "scope-step-up", "scope-retry-limit",
		"token-endpoint-auth-basic", "token-endpoint-auth-post", "token-endpoint-auth-none", "pre-registration",
		"2025-03-26-oauth-metadata-backcompat", "2025-03-26-oauth-endpoint-fallback", "resource-mismatch",
		"offline-access-scope", "offline-access-not-supported", "authorization-server-migration", "iss-supported",
		"iss-not-advertised", "iss-supported-missing", "iss-wrong-issuer", "iss-unexpected", "iss-normalized",
		"metadata-issuer-mismatch",
	} {
		if testing.Short() && i%5 != 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), node, suite,
				"client", "--command", self, "--scenario", "auth/"+name)
			cmd.Dir = t.TempDir()
			out, err := cmd.CombinedOutput()
			switch reason := refused[name]; {
			case reason != "" && err == nil:
				t.Errorf("it passes now, though %s", reason)
			case reason == "" && err != nil:
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// conforming is a client of the conformance suite of MCP: whenever the server asks for it,
// its person signs in, at most three times.
func conforming(url string) error {
	var about struct {
		ID     string `json:"client_id"`
		Secret string `json:"client_secret"`
		Issuer string `json:"issuer"`
	}
	_ = json.Unmarshal([]byte(os.Getenv("MCP_CONFORMANCE_CONTEXT")), &about) // most scenarios have none
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	store := &memory{}
	person := signin.Person{Visit: func(p signin.Page) error {
		go func() {
			if r, err := http.Get(p.URL); err == nil {
				_ = r.Body.Close()
			}
		}()
		return nil
	}}
	var err error
	for range 3 {
		var session *signin.Session
		if session, err = signin.NewSession(url, "login", store); err != nil {
			return err
		}
		client := &http.Client{Transport: session.Transport(http.DefaultTransport)}
		if err = callAll(ctx, url, client); err == nil {
			return nil
		}
		var asks *toolcrib.Error
		if !errors.As(err, &asks) {
			return err
		}
		server := signin.Server{URL: url, ClientID: about.ID, ClientSecret: about.Secret, Issuer: about.Issuer}
		if about.ID == "" {
			server.ClientID = "https://conformance-test.local/client-metadata.json"
		}
		before, _ := store.Load()
		c, err := signin.Login(ctx, server, before, person)
		if err != nil {
			return err
		}
		_ = store.Save(c)
	}
	return err
}

// callAll calls each tool of a server.
func callAll(ctx context.Context, url string, client *http.Client) error {
	c, err := sdk.NewClient(&sdk.Implementation{Name: "toolcrib", Version: "1"}, nil).Connect(ctx,
		&sdk.StreamableClientTransport{Endpoint: url, HTTPClient: client, MaxRetries: -1}, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	list, err := c.ListTools(ctx, nil)
	if err != nil {
		return err
	}
	for _, t := range list.Tools {
		if _, err := c.CallTool(ctx, &sdk.CallToolParams{Name: t.Name, Arguments: map[string]any{}}); err != nil {
			return err
		}
	}
	return nil
}
