package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib/service"
)

// odd are JSON values that no client sends by mistake, for each part of a body, a path or a query.
func odd() []string {
	texts := []string{
		`""`, `" "`, `"\u0000"`, `"a\u0000b"`, `"\ud800"`, `"\u001b[2J\u202e"`, `"."`, `".."`, `"../../etc"`, `"/"`,
		`"/dev/null"`,
		`"/proc/self/mem"`, `"/etc/passwd"`, `"/etc/passwd/x"`, `"no/such"`, `"/no/such"`, `"last"`, `"nobody"`, `"-"`,
		`"run_"`, `"%00"`, `"*"`, `"["`,
		`"run_00000000000000000000000000"`, `"apr_00000000000000000000000000"`, `"folder"`, `"loop"`, `"link"`, `"loop/x"`,
		`"socket:9"`,
		`"` + strings.Repeat("a", 10_000) + `"`, `"/` + strings.Repeat("a/", 5_000) + `"`, `"` +
			strings.Repeat("n", 300) + `"`,
	}
	return append(texts, `null`, `true`, `0`, `-1`, `1e99`, `9223372036854775808`, `[]`, `{}`, `[null]`, `[""]`,
		`["\u0000"]`, `{"":""}`,
		`{"path":"\u0000"}`, `{"path":"loop"}`, `{"path":"folder"}`, `{"file_path":"\u0000"}`, `{"command":"\u0000"}`,
		strings.Repeat("[", 200)+strings.Repeat("]", 200), strings.Repeat(`{"a":`, 200)+"1"+strings.Repeat("}", 200))
}

// direct answers a request without a network, which has no deadlines.
type direct struct{ *httptest.ResponseRecorder }

func (direct) SetReadDeadline(time.Time) error  { return nil }
func (direct) SetWriteDeadline(time.Time) error { return nil }

func (h *house) direct(ctx context.Context, method, path, token, body string) (int, string) {
	h.t.Helper()
	r := httptest.NewRequestWithContext(ctx, method, "http://127.0.0.1"+path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	w := direct{httptest.NewRecorder()}
	h.server.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// openOdd returns a server with a run that has ended, and a workspace with files for paths.
func openOdd(t *testing.T) (h *house, boss string, run service.Run) {
	h = open(t, "server: {rate_limit: 1000000}\n")
	h.script("slow.script", "- {text: done}\n")
	boss = h.token("boss", signIn)
	h.want(200, &run, "POST", "/api/runs", boss, `{"agent":"slow","input":"x","session_id":"talk"}`)
	own := filepath.Join(h.dir, "data", "workspaces", "boss")
	err := errors.Join(os.Mkdir(filepath.Join(own, "folder"), 0o700), os.Symlink("loop", filepath.Join(own, "loop")),
		os.Symlink("/etc/passwd", filepath.Join(own, "link")))
	if err != nil {
		t.Fatal(err)
	}
	h.log.take()
	return h, boss, run
}

// No request causes an internal error: on all routes, odd values are answered with an error of the client, without a
// stack, and with at most one line of the log.
func TestContract9_OddValues(t *testing.T) {
	h, boss, run := openOdd(t)
	values, asked, started := odd(), 0, time.Now()
	ask := func(method, path, body string) {
		t.Helper()
		asked++
		// A client that leaves: the events of a run that waits for an approval do not end.
		ctx, leave := context.WithTimeout(t.Context(), 5*time.Second)
		defer leave()
		status, answer := h.direct(ctx, method, path, boss, body)
		log := ofRun.ReplaceAllString(h.log.take(), "")
		if status == http.StatusInternalServerError || strings.Contains(answer+log, "goroutine") ||
			strings.Count(log, "\n") > 1 {
			t.Errorf("%s %.200s %.300s: %d %.300s\n%.600s", method, path, body, status, answer, log)
		}
	}
	for pattern, methods := range h.routes {
		for method, op := range methods {
			method = strings.ToUpper(method)
			if pattern == "/api/ws" {
				continue
			}
			path := strings.NewReplacer("{id}", string(run.ID), "{name}", "write_file", "{agent}", "slow", "{model}", "slow",
				"{kind}", "agent").Replace(pattern)
			for i, text := range values {
				if (i+len(pattern)+len(method))%4 != 0 && testing.Short() {
					continue
				}
				var value string
				if json.Unmarshal([]byte(text), &value) != nil || len(value) > 4000 {
					value = text[:min(len(text), 300)]
				}
				value = url.QueryEscape(value)
				if strings.Contains(pattern, "{") && value != "" && value != "." && value != ".." {
					ask(method, varied.ReplaceAllString(pattern, strings.ReplaceAll(value, "+", "%20")), "{}")
				}
				for _, p := range op.Parameters {
					if p.In == "query" {
						ask(method, path+"?"+p.Name+"="+value, "")
					}
				}
				if op.RequestBody == nil {
					continue
				}
				ask(method, path, text)
				name := op.RequestBody.Content["application/json"].Schema.name()
				var sample map[string]json.RawMessage
				_ = json.Unmarshal([]byte(samples[name]), &sample)
				for _, property := range slices.Sorted(maps.Keys(h.schemas[name].Properties)) {
					changed := maps.Clone(sample)
					changed[property] = json.RawMessage(text)
					var body strings.Builder
					for key, value := range changed {
						fmt.Fprintf(&body, ",%q:%s", key, value)
					}
					ask(method, path, "{"+body.String()[1:]+"}")
				}
			}
		}
	}
	t.Logf("%d requests in %v", asked, time.Since(started))
}

var varied = regexp.MustCompile(`\{[a-z]+\}`)

// A client that has disconnected is not an error of the server, however far its request has come (N4).
func TestN4_AbortedRequests(t *testing.T) {
	h, boss, run := openOdd(t)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for pattern, methods := range h.routes {
		for method, op := range methods {
			body := ""
			if op.RequestBody != nil {
				body = samples[op.RequestBody.Content["application/json"].Schema.name()]
			}
			h.service.People.Standing().Renew()
			h.direct(gone, strings.ToUpper(method), varied.ReplaceAllString(pattern, string(run.ID)), boss, body)
			if log := ofRun.ReplaceAllString(h.log.take(), ""); log != "" {
				t.Errorf("%s %s: %s", method, pattern, log)
			}
		}
	}
}

// Reading creates no folder: the first run of a user creates theirs.
func TestContract9_LookingMakesNothing(t *testing.T) {
	h := open(t, "")
	boss, ann := h.token("boss", signIn), h.token("ann", signIn)
	all := filepath.Join(h.dir, "data", "workspaces")
	h.want(200, nil, "POST", "/api/tools/explain", boss, `{"user":"nobody"}`)
	h.want(200, nil, "POST", "/api/tools/explain", ann, `{"tool":"write_file","arguments":{"path":"x","content":"y"}}`)
	h.want(200, nil, "POST", "/api/gate/decide", ann, `{"tool":"Read","arguments":{"file_path":"x"}}`)
	h.want(200, nil, "GET", "/api/agents", ann, "")
	h.want(400, nil, "POST", "/api/runs", ann, `{"agent":"no-such","input":"x"}`)
	h.want(400, nil, "POST", "/v1/chat/completions", ann, `{"model":"slow","messages":[]}`)
	if list, err := os.ReadDir(all); len(list) > 0 || err == nil {
		t.Errorf("%v %v", list, err)
	}
	h.want(200, nil, "POST", "/api/runs", ann, `{"agent":"slow","input":"x"}`)
	if _, err := os.Stat(filepath.Join(all, "ann")); err != nil {
		t.Error(err)
	}
}
