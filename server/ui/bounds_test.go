package ui_test

import (
	"context"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/service/policy"
)

// A user has at most 64 open streams. Those of others do not count, and one that ends makes room.
func TestStreams_Bound(t *testing.T) {
	h := open(t, map[string]string{"default": hello}, "")
	ann, bob := h.token("ann"), h.token("bob")
	stream := func(token string) (status int, end func()) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, h.url+"/approvals/live", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		answer, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		end = func() {
			cancel()
			_ = answer.Body.Close() // it was cancelled
		}
		t.Cleanup(end)
		return answer.StatusCode, end
	}
	var last func()
	for i := range 64 {
		status, end := stream(ann)
		if last = end; status != http.StatusOK {
			t.Fatalf("stream %d: %d", i+1, status)
		}
	}
	if status, _ := stream(ann); status != http.StatusTooManyRequests {
		t.Errorf("stream 65: %d", status)
	}
	if status, _ := stream(bob); status != http.StatusOK {
		t.Errorf("the first stream of another user: %d", status)
	}
	if status, _, _ := h.get(ann, "/approvals"); status != http.StatusOK {
		t.Errorf("a page besides: %d", status)
	}
	last()
	waittest.Until(t, "a stream that ended makes room", func() bool {
		status, end := stream(ann)
		if status != http.StatusOK {
			end()
		}
		return status == http.StatusOK
	})
}

// A form of somebody who has not signed in has at most 64 KiB, and one of others without files 2 MiB. What is larger has
// no effect.
func TestForms_Bound(t *testing.T) {
	h := open(t, map[string]string{"default": hello}, "")
	h.member("ann")
	const kilobyte = 1 << 10
	padded := func(v url.Values, size int) string {
		v.Set("pad", strings.Repeat("x", size))
		return v.Encode()
	}
	signIn := url.Values{"user": {"ann"}, "password": {password}, "next": {"/runs"}}
	if status, head, body := h.form("", "/sign-in", padded(signIn, 60*kilobyte)); status != http.StatusSeeOther || head.Get("Set-Cookie") == "" {
		t.Errorf("a form of 60 KiB: %d %.500s", status, body)
	}
	for _, path := range []string{"/sign-in", "/preferences", "/password"} {
		status, head, body := h.form("", path, padded(signIn, 65*kilobyte))
		if status != http.StatusRequestEntityTooLarge || head.Get("Set-Cookie") != "" || !strings.Contains(body, "65536 bytes") {
			t.Errorf("%s with 65 KiB: %d %v", path, status, head)
		}
	}
	boss, to := h.token("boss"), url.Values{"tool": {"list_directory"}, "to": {"off"}}
	on := func() bool {
		var tool policy.Tool
		h.api("boss", http.MethodGet, "/api/tools/list_directory", "", &tool)
		return tool.Enabled
	}
	if status, _, _ := h.form(boss, "/tools/switch", padded(to, 2100*kilobyte)); status != http.StatusRequestEntityTooLarge || !on() {
		t.Errorf("a form of 2,100 KiB: %d, the tool is on: %t", status, on())
	}
	if status, _, _ := h.form(boss, "/tools/switch", padded(to, 2000*kilobyte)); status != http.StatusSeeOther || on() {
		t.Errorf("a form of 2,000 KiB: %d, the tool is on: %t", status, on())
	}
}

// Each download has its own type and name, and no browser takes it for a page.
func TestDownloads(t *testing.T) {
	h := open(t, map[string]string{"default": used}, "")
	run := h.runs("boss", "default", "a\r\nX-Header: b")
	boss := h.token("boss")
	result := 0
	for seq := 1; result == 0; seq++ {
		status, _, body := h.get(boss, fmt.Sprintf("/runs/%s/events/%d", run, seq))
		if status != http.StatusOK {
			t.Fatalf("event %d: %d", seq, status)
		}
		if strings.Contains(body, "/result\"") {
			result = seq
		}
	}
	const rules = "rules=rules:%0A++-+{name:+new,+tools:+[read_file],+then:+deny}%0A"
	for address, want := range map[string][2]string{
		"/runs/" + run + "/export":                            {"application/x-ndjson", run + ".jsonl"},
		fmt.Sprintf("/runs/%s/events/%d/result", run, result): {"text/plain", fmt.Sprintf("result-%s-%d.txt", run, result)},
		"/usage.csv?by=model&user=boss":                       {"text/csv", "usage-by-model.csv"},
		"/audit/export":                                       {"application/x-ndjson", "audit.ndjson"},
		"/audit/head":                                         {"application/json", "head.json"},
		"/policy/download":                                    {"text/plain", "toolcrib-rules.diff"},
	} {
		status, head, body := h.get(boss, address)
		if address == "/policy/download" {
			status, head, body = h.form(boss, address, rules)
		}
		kind, _, err := mime.ParseMediaType(head.Get("Content-Type"))
		how, params, wrong := mime.ParseMediaType(head.Get("Content-Disposition"))
		if status != http.StatusOK || err != nil || wrong != nil || kind != want[0] || how != "attachment" || params["filename"] != want[1] {
			t.Errorf("%s: %d, %s, %s", address, status, head.Get("Content-Type"), head.Get("Content-Disposition"))
		}
		if head.Get("X-Content-Type-Options") != "nosniff" || head.Get("X-Header") != "" || body == "" {
			t.Errorf("%s: %v, %d bytes", address, head, len(body))
		}
	}
	for _, address := range []string{
		"/usage.csv?by=run%0D%0AX-Header:%20x", "/usage.csv?by=%22x", "/runs/" + run + "%0D%0AX-Header:%20x/export",
		"/runs/..%2F" + run + "/export", "/runs/" + run + "/events/1%22/result",
	} {
		if status, head, _ := h.get(boss, address); status/100 != 4 || head.Get("Content-Disposition") != "" || head.Get("X-Header") != "" {
			t.Errorf("%s: %d %v", address, status, head)
		}
	}
}

// A stream without a sign-in ends. A page instead would be an error in the console of the browser.
func TestStreams_SignedOut(t *testing.T) {
	h := open(t, map[string]string{"default": hello}, "")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.url+"/approvals/live", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusNoContent {
		t.Errorf("%s, %q", answer.Status, answer.Header.Get("Location"))
	}
}
