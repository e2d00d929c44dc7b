package notify_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/notify"
	"github.com/toolcrib/toolcrib/internal/notify/address"
	"github.com/toolcrib/toolcrib/journal"
)

// receiver is a webhook's receiver, as Standard Webhooks describes one. It answers with
// its statuses in turn, and with the last forever.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	statuses []int
	got      []received
}

type received struct {
	id, seconds, signature string
	body                   []byte
	header                 http.Header
}

func listen(t *testing.T, statuses ...int) *receiver {
	t.Helper()
	r := &receiver{statuses: statuses}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	h := req.Header
	r.got = append(r.got, received{h.Get("Webhook-Id"), h.Get("Webhook-Timestamp"), h.Get("Webhook-Signature"), body, h})
	status := http.StatusNoContent
	if n := len(r.statuses); n > 0 {
		status = r.statuses[min(len(r.got), n)-1]
	}
	if status >= 300 && status < 400 {
		w.Header().Set("Location", r.URL+"/elsewhere")
	}
	w.WriteHeader(status)
	if status != http.StatusNoContent {
		_, _ = io.WriteString(w, "{}")
	}
}

// verify checks a signature on its own, as the receiver of a webhook does.
func (m *received) verify(key []byte) error {
	mac := hmac.New(sha256.New, key)
	_, _ = io.WriteString(mac, m.id+"."+m.seconds+"."+string(m.body))
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	if m.id == "" || m.seconds == "" || !hmac.Equal([]byte(want), []byte(m.signature)) {
		return fmt.Errorf("id %q, timestamp %q, signature %q: want %q", m.id, m.seconds, m.signature, want)
	}
	return nil
}

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" // the example of Standard Webhooks

func keyOf(t *testing.T, text string) []byte {
	t.Helper()
	key, err := address.Key(text)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func at(second int64) func() time.Time {
	return func() time.Time { second++; return time.Unix(second, 0) }
}

func noWait(ctx context.Context, _ time.Duration) error { return ctx.Err() }

func message() notify.Message {
	return notify.Message{
		ID: "msg_apr_1", Type: notify.TypeApproval, Time: time.Unix(1700000000, 0).UTC(), ApprovalID: "apr_1", Digest: "d1", Run: "run_1",
		Agent: "default", User: "alice", Kind: journal.ApprovalCall, Reason: "write_file writes",
		Calls: []notify.Call{{
			ID: "call_1", Name: "write_file", Effect: toolcrib.EffectIdempotentWrite, Arguments: json.RawMessage(`{"path":"a.txt"}`),
			Preview: &toolcrib.Preview{Kind: "diff", Text: "+1"},
		}},
		Commands: []string{"toolcrib approvals show apr_1"},
	}
}

// The address of the page stays whole, unlike addresses in what a model wrote.
func TestText_URL(t *testing.T) {
	m := message()
	m.URL, m.Calls[0].Arguments = "https://tools.example/approvals/apr_1", json.RawMessage(`{"path":"https://attacker.example/x"}`)
	if text := m.Text(); !strings.Contains(text, "\nhttps://tools.example/approvals/apr_1\n") || strings.Contains(text, "https://attacker") {
		t.Error(text)
	}
}

// The signature of the specification's own example.
func TestSign_Specification(t *testing.T) {
	got := notify.Sign(keyOf(t, secret), "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestWebhook_SignedAndWhole(t *testing.T) {
	r := listen(t)
	key := keyOf(t, secret)
	n := notify.New([]notify.Target{{Address: r.URL + "/hook", Key: key}}, notify.Options{UserAgent: "toolcrib/test", Now: at(1700000000)})
	if failed := n.Send(t.Context(), message()); len(failed) > 0 {
		t.Fatal(failed)
	}
	if len(r.got) != 1 {
		t.Fatalf("%d messages", len(r.got))
	}
	m := r.got[0]
	if err := m.verify(key); err != nil {
		t.Error(err)
	}
	if m.id != "msg_apr_1" || m.seconds != "1700000001" || m.header.Get("Content-Type") != "application/json" || m.header.Get("User-Agent") != "toolcrib/test" {
		t.Errorf("%+v", m)
	}
	const want = `{"type":"approval.required","time":"2023-11-14T22:13:20Z","approval_id":"apr_1","digest":"d1","run_id":"run_1","agent":"default",` +
		`"user":"alice","kind":"approval","reason":"write_file writes","expires_at":null,"calls":[{"id":"call_1","name":"write_file",` +
		`"effect":"idempotent_write","arguments":{"path":"a.txt"},"preview":{"kind":"diff","text":"+1"}}],"commands":["toolcrib approvals show apr_1"]}`
	if string(m.body) != want {
		t.Errorf("got  %s\nwant %s", m.body, want)
	}
	if err := m.verify([]byte("another key altogether")); err == nil {
		t.Error("any key verifies")
	}
}

// A try that may help is made again, with the same ID and a time and signature of its
// own; what cannot help is not.
func TestWebhook_TriesAgain(t *testing.T) {
	key := keyOf(t, "a plain text as the key")
	for _, c := range []struct {
		statuses []int
		tries    int
		reason   string
	}{
		{[]int{500, 503, 200}, 3, ""},
		{[]int{429, 202}, 2, ""},
		{[]int{500}, 3, "it answered 500"},
		{[]int{400}, 1, "it answered 400"},
		{[]int{410}, 1, "it answered 410"},
		{[]int{302}, 1, "it answered with a redirect (302), which is not followed"},
		{[]int{307}, 1, "it answered with a redirect (307), which is not followed"},
	} {
		r := listen(t, c.statuses...)
		n := notify.New([]notify.Target{{Address: r.URL, Key: key}}, notify.Options{Wait: noWait, Now: at(1)})
		reason := ""
		for _, f := range n.Send(t.Context(), message()) {
			reason = f.Reason
		}
		if reason != c.reason || len(r.got) != c.tries {
			t.Errorf("%v: %q after %d tries", c.statuses, reason, len(r.got))
		}
		var seconds []string
		for _, m := range r.got {
			if err := m.verify(key); err != nil || m.id != "msg_apr_1" || slices.Contains(seconds, m.seconds) {
				t.Errorf("%v: %v %+v", c.statuses, err, m)
			}
			seconds = append(seconds, m.seconds)
		}
	}
}

// One that hangs, one that nobody knows, one whose certificate nobody trusts: each is
// told, without the address, and none keeps the others from being told.
func TestWebhook_Failures(t *testing.T) {
	good := listen(t)
	strange := httptest.NewUnstartedServer(http.NotFoundHandler())
	strange.Config.ErrorLog = log.New(io.Discard, "", 0)
	strange.StartTLS()
	t.Cleanup(strange.Close)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := closed.Addr().String()
	_ = closed.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	const private = "/s3cr3t-path?token=s3cr3t"
	key := keyOf(t, secret)
	n := notify.New([]notify.Target{
		{Address: strange.URL + private, Key: key},
		{Address: "http://" + gone + private, Key: key},
		{Address: good.URL + private, Key: key},
		{Address: "http://" + silent.Addr().String() + private, Key: key},
		{Address: "gopher://s3cr3t"},
		{Address: "s3cr3t"},
		{Address: "http://s3cr3t:s3cr3t@" + gone, Key: key},
		{Address: "slack://s3cr3t"},
	}, notify.Options{Wait: noWait, Attempt: 2 * time.Second, Total: time.Minute})
	var reasons []string
	for _, f := range n.Send(t.Context(), message()) {
		reasons = append(reasons, fmt.Sprintf("%d %s", f.Target, f.Reason))
		if text := fmt.Sprint(f); strings.Contains(text, "s3cr3t") {
			t.Errorf("an address is told: %s", text)
		}
	}
	want := []string{
		"0 its certificate is not good", "1 it refuses connections", "3 it did not answer in time",
		"4 the address has a scheme", "5 the address must begin with", "6 the address has a user name", "7 slack does not know the address",
	}
	for i, w := range want {
		if i >= len(reasons) || !strings.HasPrefix(reasons[i], w) {
			t.Errorf("%d: want %q in %q", i, w, reasons)
		}
	}
	if len(good.got) != 1 {
		t.Errorf("the good one got %d", len(good.got))
	}
}

// A proxy of the environment is none of a webhook's.
func TestWebhook_NoProxy(t *testing.T) {
	proxy, target := listen(t), listen(t)
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"} {
		t.Setenv(name, proxy.URL)
	}
	t.Setenv("NO_PROXY", "")
	n := notify.New([]notify.Target{{Address: strings.Replace(target.URL, "127.0.0.1", "localhost", 1), Key: keyOf(t, secret)}}, notify.Options{})
	if failed := n.Send(t.Context(), message()); len(failed) > 0 || len(proxy.got) > 0 || len(target.got) != 1 {
		t.Errorf("%v: the proxy got %d, the target %d", failed, len(proxy.got), len(target.got))
	}
}

// An answer without an end holds nobody up.
func TestWebhook_EndlessAnswer(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := w.Write(make([]byte, 32<<10)); err != nil {
				return
			}
		}
	}))
	t.Cleanup(s.Close)
	n := notify.New([]notify.Target{{Address: s.URL, Key: keyOf(t, secret)}}, notify.Options{Attempt: time.Minute, Total: time.Minute})
	if failed := n.Send(t.Context(), message()); len(failed) > 0 {
		t.Error(failed)
	}
}

// Nobody is told after the run's context has ended.
func TestWebhook_BrokenOff(t *testing.T) {
	r := listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	n := notify.New([]notify.Target{{Address: r.URL, Key: keyOf(t, secret)}, {Address: "ntfy://127.0.0.1:1/x?scheme=http"}}, notify.Options{})
	if failed := n.Send(ctx, message()); len(failed) != 2 || len(r.got) > 0 {
		t.Errorf("%v, got %d", failed, len(r.got))
	}
}

// Large arguments are left out, and that is said.
func TestMessage_Bounded(t *testing.T) {
	r := listen(t)
	m := message()
	for i := range 8 {
		raw, _ := json.Marshal(map[string]string{"content": strings.Repeat("x", 100<<10)})
		m.Calls = append(m.Calls, notify.Call{ID: fmt.Sprint("call_", i+2), Name: "write_file", Arguments: raw})
	}
	n := notify.New([]notify.Target{{Address: r.URL, Key: keyOf(t, secret)}}, notify.Options{})
	if failed := n.Send(t.Context(), m); len(failed) > 0 {
		t.Fatal(failed)
	}
	if len(r.got[0].body) > 256<<10 {
		t.Errorf("%d bytes", len(r.got[0].body))
	}
	var got notify.Message
	if err := json.Unmarshal(r.got[0].body, &got); err != nil {
		t.Fatal(err)
	}
	if c := got.Calls; len(c) != 9 || c[0].Truncated || string(c[0].Arguments) != `{"path":"a.txt"}` || !c[8].Truncated {
		t.Errorf("%+v", c)
	}
}

// A messenger gets a few lines, in which nothing that a model chose is a mention, a
// link or a mark.
func TestMessenger_Ntfy(t *testing.T) {
	r := listen(t, http.StatusOK)
	m := message()
	m.Calls[0].Arguments = json.RawMessage(`{"path":"@everyone <!channel> [x](https://evil.example) ` + "`" + strings.Repeat("y", 5000) + `"}`)
	n := notify.New([]notify.Target{{Address: strings.Replace(r.URL, "http://", "ntfy://", 1) + "/topic?scheme=http"}}, notify.Options{})
	if failed := n.Send(t.Context(), m); len(failed) > 0 {
		t.Fatal(failed)
	}
	text := string(r.got[0].body)
	if !strings.Contains(text, "toolcrib: a run of agent default for alice waits for an approval") || !strings.Contains(text, "write_file (idempotent_write)") ||
		!strings.Contains(text, "toolcrib approvals show apr_1") {
		t.Errorf("%s", text)
	}
	if strings.ContainsAny(text, "@<>[]`") || strings.Contains(text, "://") || len(text) > 2000 {
		t.Errorf("%s", text)
	}
}

func TestMessenger_Fails(t *testing.T) {
	r := listen(t, http.StatusForbidden)
	n := notify.New([]notify.Target{{Address: strings.Replace(r.URL, "http://", "ntfy://", 1) + "/topic?scheme=http"}}, notify.Options{})
	failed := n.Send(t.Context(), message())
	if len(failed) != 1 || failed[0].Where != "ntfy" || failed[0].Reason != "it did not take the message" {
		t.Errorf("%+v", failed)
	}
}

// Every scheme that may be configured is one that the library has.
func TestMessengers_AreKnown(t *testing.T) {
	if known := notify.Schemes(); !slices.Equal(known, address.Messengers()) {
		t.Errorf("%q are made, and %q accepted", known, address.Messengers())
	}
}
