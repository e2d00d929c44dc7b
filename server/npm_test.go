package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/internal/npmtest"
	"github.com/toolcrib/toolcrib/service"
)

// cutOff is an address of the server whose first n answers never arrive.
type cutOff struct {
	mu   sync.Mutex
	left int
	to   *httputil.ReverseProxy
}

func (c *cutOff) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	cut := r.Method == http.MethodPost && c.left > 0
	if cut {
		c.left--
	}
	c.mu.Unlock()
	if !cut {
		c.to.ServeHTTP(w, r)
		return
	}
	ctx, stop := context.WithTimeout(r.Context(), 150*time.Millisecond)
	defer stop()
	c.to.ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx))
	panic(http.ErrAbortHandler)
}

// told is a client's report about its steps.
type told map[string]struct {
	Text, Finish, Pending, Code, Last string
	N, Usage, Items, Status           int
	Pieces, Next                      bool
}

// holds checks the reports that every client must make.
func (c told) holds(t *testing.T, name string) {
	t.Helper()
	for step, want := range map[string]string{
		"completion": "Hello there.", "stream": "Hello there.", "tools": "Sunny in Berlin.", "toolStream": "Sunny in Berlin.",
		"retry": "one two three four", "response": "Hello there.",
	} {
		if got, ok := c[step]; ok && got.Text != want || !ok && (step == "completion" || step == "tools" || step == "retry") {
			t.Errorf("%s: %s: %+v, want %q", name, step, got, want)
		}
	}
	if got := c["approval"]; !strings.Contains(got.Text, "/approvals/apr_") {
		t.Errorf("%s: approval: %+v", name, got)
	}
	for step, status := range map[string]int{
		"unknown": 404, "unsupported": 400, "provider": 502, "token": 401, "conversation": 400,
	} {
		if got, ok := c[step]; ok && got.Status != status || !ok && status > 401 {
			t.Errorf("%s: %s: %+v, want %d", name, step, got, status)
		}
	}
	if got, ok := c["parsed"]; ok && got.N != 4 {
		t.Errorf("%s: parsed: %+v", name, got)
	}
}

func TestV1_OfficialClients(t *testing.T) {
	for client, packages := range map[string][]string{
		"openai":    {"openai@7.59.0"},
		"agents":    {"@openai/agents@0.20.0"},
		"ai":        {"ai@7.0.173", "@ai-sdk/openai-compatible@3.0.92"},
		"langchain": {"@langchain/openai@1.6.0"},
	} {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			modules := map[string]string{}
			for _, p := range packages {
				modules[p[:strings.LastIndex(p, "@")]] = npmtest.Package(t, p)
			}
			command := exec.Command(npmtest.Node(t), "testdata/openai.mjs", client)
			h := v1House(t)
			to, err := url.Parse(h.url)
			if err != nil {
				t.Fatal(err)
			}
			proxy := &cutOff{left: 1, to: httputil.NewSingleHostReverseProxy(to)}
			proxy.to.ErrorHandler = func(http.ResponseWriter, *http.Request, error) {}
			cut := httptest.NewServer(proxy)
			t.Cleanup(cut.Close)
			token := h.token("ann", access.Scope{})
			input, err := json.Marshal(map[string]any{"url": h.url, "cut": cut.URL, "token": token, "modules": modules})
			if err != nil {
				t.Fatal(err)
			}
			var stderr bytes.Buffer
			command.Stdin, command.Stderr = bytes.NewReader(input), &stderr
			out, err := command.Output()
			if err != nil {
				t.Fatalf("%v\n%s%s", err, out, stderr.Bytes())
			}
			all := map[string]told{}
			if client == "openai" || client == "ai" {
				out = slices.Concat([]byte(`{"":`), out, []byte("}"))
			}
			if err := json.Unmarshal(out, &all); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			for name, one := range all {
				one.holds(t, name)
			}
			if got := all[""]; client == "openai" &&
				(got["completion"].Usage != 13 || got["stream"].Usage != 13 || got["tools"].Usage != 20 ||
					!got["stream"].Pieces || got["unknown"].Code != "model_not_found" || got["midway"].Code != "provider_failed" ||
					got["responseStream"].Items != 2 || got["responseStream"].Last != "response.completed") {
				t.Errorf("%s", out)
			}
			// The retries began one run, and the client's calls were executed.
			var runs api.RunList
			h.want(200, &runs, "GET", "/api/runs?agent=slow", token, "")
			want := len(all)
			if client == "ai" || client == "langchain" { // their retries are not marked as such
				want++
			}
			if len(runs.Runs) != want {
				t.Errorf("%d runs of slow, want %d", len(runs.Runs), want)
			}
			h.want(200, &runs, "GET", "/api/runs?agent=weather", token, "")
			for _, listed := range runs.Runs {
				var run service.Run
				h.want(200, &run, "GET", "/api/runs/"+string(listed.ID), token, "")
				if run.Status != "completed" || len(run.Trace) != 1 ||
					!strings.Contains(run.Trace[0].Result, "It is sunny in Berlin.") {
					t.Errorf("%+v", run)
				}
			}
		})
	}
}
