package notify_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/notify"
	"github.com/toolcrib/toolcrib/internal/notify/address"
)

// kept is a transport that keeps the last body.
type kept struct{ body []byte }

func (k *kept) RoundTrip(r *http.Request) (*http.Response, error) {
	var err error
	k.body, err = io.ReadAll(r.Body)
	return &http.Response{StatusCode: http.StatusNoContent, Body: io.NopCloser(bytes.NewReader(nil)), Request: r}, err
}

// bodyOf is what a webhook is sent of a message.
func bodyOf(t rapid.TB, m notify.Message) (body []byte, told notify.Message) {
	var k kept
	n := notify.New([]notify.Target{{Address: "https://hooks.example.com/", Key: []byte("0123456789abcdef")}}, notify.Options{Transport: &k})
	if failed := n.Send(context.Background(), m); len(failed) > 0 {
		t.Fatal(failed)
	}
	if len(k.body) > 256<<10 {
		t.Fatalf("%d bytes", len(k.body))
	}
	if err := json.Unmarshal(k.body, &told); err != nil {
		t.Fatalf("%v: %.200s", err, k.body)
	}
	return k.body, told
}

// A question, a reason or a schema that is too long is cut, and that is said; the
// approval and the commands that decide it stay whole.
func TestMessage_LongWords(t *testing.T) {
	for name, change := range map[string]func(m *notify.Message){
		"question": func(m *notify.Message) { m.Question = strings.Repeat("wörd\x00", 100<<10) },
		"reason":   func(m *notify.Message) { m.Reason = strings.Repeat("<\xff", 200<<10) },
		"schema": func(m *notify.Message) {
			m.Schema, _ = json.Marshal(map[string]string{"title": strings.Repeat("x", 300<<10)})
		},
	} {
		m := message()
		m.Digest = strings.Repeat("d", 64)
		change(&m)
		_, told := bodyOf(t, m)
		if !told.Truncated || told.ApprovalID != m.ApprovalID || told.Digest != m.Digest || len(told.Commands) != 1 || len(told.Calls) != 1 {
			t.Errorf("%s: %+v", name, told)
		}
		if told.Schema != nil && name == "schema" || len(told.Question) > 16<<10 || len(told.Reason) > 16<<10 {
			t.Errorf("%s is not cut: %d, %d, %d bytes", name, len(told.Question), len(told.Reason), len(told.Schema))
		}
	}
}

// So many calls that not even their names have room: the first ones stay.
func TestMessage_ManyCalls(t *testing.T) {
	m := message()
	for i := range 20_000 {
		m.Calls = append(m.Calls, notify.Call{ID: fmt.Sprint("call_", i+2), Name: "write_file", Arguments: json.RawMessage(`{}`)})
	}
	_, told := bodyOf(t, m)
	if !told.Truncated || len(told.Calls) == 0 || told.Calls[0].ID != "call_1" {
		t.Errorf("truncated %v, %d calls", told.Truncated, len(told.Calls))
	}
	// A message with room for everything has all of it.
	if body, told := bodyOf(t, message()); told.Truncated || bytes.Contains(body, []byte("truncated")) {
		t.Errorf("%s", body)
	}
}

// Whatever is in it: a body is JSON, and within its bound.
func TestMessage_AlwaysBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		long := rapid.Custom(func(t *rapid.T) string {
			unit := rapid.SampledFrom([]string{"x", "<", "\x00", "\xff", "ö", "\u2028", `"`, "😀"}).Draw(t, "unit")
			return strings.Repeat(unit, rapid.SampledFrom([]int{0, 1, 255, 256, 1024, 4096, 5000, 70_000}).Draw(t, "times"))
		})
		m := message()
		m.Question, m.Reason = long.Draw(t, "question"), long.Draw(t, "reason")
		m.ID = "msg_1"
		m.Schema, _ = json.Marshal(long.Draw(t, "schema"))
		for range rapid.IntRange(0, 12).Draw(t, "calls") {
			raw, _ := json.Marshal(map[string]string{"content": long.Draw(t, "content")})
			m.Calls = append(m.Calls, notify.Call{
				ID: long.Draw(t, "call"), Name: long.Draw(t, "name"), Arguments: raw,
				Preview: &toolcrib.Preview{Kind: "diff", Text: long.Draw(t, "preview")},
			})
		}
		body, _ := bodyOf(t, m)
		if !utf8.Valid(body) {
			t.Fatal("no UTF-8")
		}
	})
}

// A messenger that hangs holds one message, however often there is more to tell, and
// nothing else is sent in the meantime.
func TestMessenger_Hangs(t *testing.T) {
	var requests atomic.Int32
	let := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		requests.Add(1)
		<-let
		w.WriteHeader(http.StatusOK)
		_, _ = io.WriteString(w, "{}")
	}))
	t.Cleanup(s.Close)
	to := strings.Replace(s.URL, "http://", "ntfy://", 1) + "/topic?scheme=http"
	var line notify.Line
	send := func(total time.Duration) []notify.Failure {
		return notify.New([]notify.Target{{Address: to}}, notify.Options{Total: total, Line: &line}).Send(t.Context(), message())
	}
	if failed := send(50 * time.Millisecond); len(failed) != 1 || failed[0].Reason != "it did not answer in time" {
		t.Fatalf("%+v", failed)
	}
	before := runtime.NumGoroutine()
	for range 100 {
		if failed := send(time.Millisecond); len(failed) != 1 || failed[0].Reason != "it did not answer in time" {
			t.Fatalf("%+v", failed)
		}
	}
	if after := runtime.NumGoroutine(); after > before+50 {
		t.Errorf("%d goroutines, before %d", after, before)
	}
	if n := requests.Load(); n > 1 {
		t.Errorf("%d requests", n)
	}
	close(let)
	for len(send(time.Hour)) > 0 { // until the one that hung has ended
		runtime.Gosched()
	}
	if n := requests.Load(); n != 2 {
		t.Errorf("%d requests", n)
	}
}

// Two messages to one messenger at the same time are told one after the other.
func TestMessenger_InTurn(t *testing.T) {
	r := listen(t, http.StatusOK)
	to := notify.Target{Address: strings.Replace(r.URL, "http://", "ntfy://", 1) + "/topic?scheme=http"}
	n := notify.New([]notify.Target{to, to, to}, notify.Options{Total: time.Hour})
	if failed := n.Send(t.Context(), message()); len(failed) > 0 || len(r.got) != 3 {
		t.Errorf("%+v, got %d", failed, len(r.got))
	}
}

// Only plain http to another machine can be read on its way.
func TestAddress_IsClear(t *testing.T) {
	for text, want := range map[string]bool{
		"http://hooks.example.com/x": true, "HTTP://10.0.0.1:80": true, "http://localhost.example.com": true, "http://%zz": true,
		"https://hooks.example.com": false, "http://localhost:1/x": false, "http://127.0.0.1": false, "http://127.9.9.9:1": false,
		"http://[::1]:80/": false, "http://[::ffff:127.0.0.1]/": false, "slack://a/b/c": false, "": false,
	} {
		if got := address.IsClear(text); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}
