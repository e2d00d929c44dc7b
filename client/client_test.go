package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/client"
)

// flaky is a server of one run whose streams are cut: each connection gives a few events. It counts
// how many runs have begun, by their keys.
type flaky struct {
	mu     sync.Mutex
	pieces []string        // what each stream gives, in turn; then it is cut
	keys   map[string]bool // runs that have begun
	asked  []string
}

const total = 6

func event(seq int) string {
	switch seq {
	case 1:
		return "id: 1\nevent: run_started\ndata: {\"run_id\":\"run_a\"}\n\n"
	case total:
		return fmt.Sprintf("id: %d\nevent: done\ndata: {\"status\":\"completed\"}\n\n", seq)
	}
	return fmt.Sprintf("event: token\ndata: {\"text\":\"%d\"}\n\n: ping\n\nid: %d\nevent: message\ndata: {\"text\":\"%d\"}\n\n",
		seq, seq, seq)
}

// ServeHTTP implements [http.Handler].
func (f *flaky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+r.Header.Get("Last-Event-ID")))
	if r.Method == http.MethodGet && !strings.HasSuffix(r.URL.Path, "/events") {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"id":"run_a","status":"completed","content":"6","last_seq":%d}`, total)
		return
	}
	if key := r.Header.Get("Idempotency-Key"); key != "" {
		f.keys[key] = true
	}
	piece := f.pieces[0]
	f.pieces = f.pieces[1:]
	if piece == "503" {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, `{"error":"overloaded","message":"the server is ending","retry_after_ms":1}`)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	rest, whole := strings.CutSuffix(piece, "|")
	fmt.Fprint(w, rest)
	if whole {
		return // ended properly, as a proxy does
	}
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// A stream that is cut anywhere is taken up: each kept event comes once and in order, and the run
// begins once.
func TestBegin_Cut(t *testing.T) {
	all := ""
	for seq := 1; seq <= total; seq++ {
		all += event(seq)
	}
	closed := "event: closed\ndata: {\"error\":\"overloaded\",\"message\":\"ending\"}\n\n"
	for name, pieces := range map[string][]string{
		"whole":               {all},
		"before the first":    {"", all},
		"within the first":    {event(1)[:20], all},
		"between":             {event(1) + event(2), event(3) + event(4) + event(5)[:30], event(5) + event(6)},
		"with what was given": {event(1) + event(2), event(1) + event(2) + event(3), event(3) + event(4) + event(5) + event(6)},
		"by the server":       {event(1) + closed + "|", "503", event(2) + event(3) + event(4) + event(5) + event(6)},
		"by a proxy":          {event(1) + event(2) + "|", event(3) + event(4) + event(5) + event(6) + "|"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &flaky{pieces: pieces, keys: map[string]bool{}}
			s := httptest.NewServer(f)
			defer s.Close()
			lost := 0
			c, err := client.New(client.Options{URL: s.URL, Token: "t", Lost: func(error) { lost++ }})
			if err != nil {
				t.Fatal(err)
			}
			var got []toolcrib.Seq
			run, err := c.Start(t.Context(), api.RunRequest{Input: "go"}, func(e client.Event) error {
				if e.Seq > 0 {
					got = append(got, e.Seq)
				}
				return nil
			})
			if err != nil || run.ID != "run_a" || run.Content != "6" {
				t.Fatalf("%+v, %v; asked %q", run, err, f.asked)
			}
			if want := "[1 2 3 4 5 6]"; fmt.Sprint(got) != want || len(f.keys) != 1 {
				t.Errorf("events %v, want %s; %d runs began; asked %q", got, want, len(f.keys), f.asked)
			}
			if (lost > 0) != (len(pieces) > 1) {
				t.Errorf("%d cuts were noticed", lost)
			}
		})
	}
}

// A request whose server died with it is made again with its key, although net/http has sent it again by itself and could
// not connect: the server may have begun the run.
func TestBegin_ServerDies(t *testing.T) {
	var s *httptest.Server
	asked := make(chan string, 10) // keys
	s = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"id":"run_a"}`)
			return
		}
		asked <- r.Header.Get("Idempotency-Key")
		_ = s.Listener.Close()
		panic(http.ErrAbortHandler)
	}))
	defer s.Close()
	lost := 0
	c, err := client.New(client.Options{URL: s.URL, Patience: time.Millisecond, Lost: func(error) { lost++ }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Run(t.Context(), "run_a"); err != nil { // it leaves a connection
		t.Fatal(err)
	}
	var away *client.UnreachableError
	_, err = c.Start(t.Context(), api.RunRequest{Input: "go"}, func(client.Event) error { return nil })
	if !errors.As(err, &away) || lost == 0 || len(asked) != 1 {
		t.Errorf("%v; %d interruptions noticed, %d requests", err, lost, len(asked))
	}
}

// A run that waits says nothing for long. However often its stream is cut meanwhile, it is taken up.
func TestFollow_CutWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		c, err := client.New(client.Options{URL: "http://localhost", Patience: 10 * time.Second, Transport: roundTrip(
			func(*http.Request) (*http.Response, error) {
				asked++
				last := asked == 4
				r, w := io.Pipe()
				go func() {
					if _, _ = io.WriteString(w, ": ping\n\n"); last {
						_, _ = io.WriteString(w, event(total))
					}
					time.Sleep(30 * time.Second)
					_ = w.CloseWithError(io.ErrUnexpectedEOF)
				}()
				head := http.Header{"Content-Type": {"text/event-stream"}}
				return &http.Response{StatusCode: http.StatusOK, Header: head, Body: r}, nil
			},
		)})
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		if err := c.Follow(t.Context(), "run_a", 3, client.UntilEnd, func(client.Event) error { seen++; return nil }); err != nil ||
			seen != 1 || asked != 4 {
			t.Errorf("%v; %d events over %d streams", err, seen, asked)
		}
		time.Sleep(time.Minute) // the last stream is closed
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A server that does not come back, one that nobody starts, and an error of the server itself.
func TestErrors(t *testing.T) {
	f := &flaky{pieces: append([]string{event(1)}, strings.Fields(strings.Repeat("503 ", 200))...), keys: map[string]bool{}}
	s := httptest.NewServer(f)
	c, err := client.New(client.Options{URL: s.URL, Patience: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	run, err := c.Start(t.Context(), api.RunRequest{Input: "go"}, nil)
	if toolcrib.CodeOf(err) != toolcrib.CodeOverloaded || run.ID != "run_a" {
		t.Errorf("a server that does not come back: %+v, %v", run, err)
	}
	s.Close()
	began := time.Now()
	_, err = c.Start(t.Context(), api.RunRequest{Input: "go"}, nil)
	var unreachable *client.UnreachableError
	if !errors.As(err, &unreachable) || !strings.Contains(err.Error(), "toolcrib serve") || time.Since(began) > time.Minute {
		t.Errorf("nobody listens: %v after %v", err, time.Since(began))
	}
	ended, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	cancel(stop)
	if _, err := c.Run(ended, "run_a"); !errors.Is(err, stop) {
		t.Errorf("a context that has ended: %v", err)
	}
	for body, want := range map[string]toolcrib.Code{
		`{"error":"not_found","message":"there is no run"}`: toolcrib.CodeNotFound,
		`<html>`: toolcrib.CodeInternal,
		`{}`:     toolcrib.CodeInternal,
	} {
		for _, status := range []int{404, 302, 200} {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/elsewhere" {
					t.Error("it went where it was sent")
				}
				w.Header().Set("Content-Type", "text/html")
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(status)
				fmt.Fprint(w, body)
			}))
			c, err := client.New(client.Options{URL: s.URL})
			if err != nil {
				t.Fatal(err)
			}
			_, err = c.Run(t.Context(), "run_a")
			if got := toolcrib.CodeOf(err); status != 200 && got != want || status == 200 && got != toolcrib.CodeInternal {
				t.Errorf("%d %s: %v", status, body, err)
			}
			s.Close()
		}
	}
}

// What would send a token where everybody can read it, and what is no address, is refused.
func TestNew(t *testing.T) {
	for address, good := range map[string]bool{
		"https://tools.example.com": true, "https://tools.example.com/crib/": true, "http://127.0.0.1:8420": true,
		"http://localhost:8420": true, "http://[::1]:8420": true, "http://a.localhost": true,
		"http://tools.example.com": false, "http://10.0.0.1": false, "http://127.0.0.1.example.com": false,
		"http://localhost.example.com": false, "ftp://localhost": false, "localhost:8420": false, "": false,
		"https://ann:pw@example.com": false, "https://example.com?x=1": false, "https://": false,
	} {
		if _, err := client.New(client.Options{URL: address}); (err == nil) != good {
			t.Errorf("%q: %v", address, err)
		}
	}
	if _, err := client.New(client.Options{URL: "http://tools.example.com", PlainHTTP: true}); err != nil {
		t.Error(err)
	}
}

// A name is never another route, and the token is sent to this server only.
func TestPath(t *testing.T) {
	for _, tt := range [][2]string{
		{"run_a", "/api/runs/run_a"}, {"..", "/api/runs/%2E%2E"}, {"a/../b", "/api/runs/a%2F..%2Fb"}, {"?x", "/api/runs/%3Fx"},
	} {
		if got := client.Path("runs", tt[0]); got != tt[1] {
			t.Errorf("%q: %s", tt[0], got)
		}
	}
	var seen bytes.Buffer
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(&seen, r.URL.EscapedPath(), r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusNotFound)
	}))
	defer s.Close()
	c, err := client.New(client.Options{URL: s.URL + "/crib", Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = c.Run(t.Context(), "..")
	if got := seen.String(); got != "/crib/api/runs/%2E%2E Bearer secret\n" {
		t.Errorf("asked %q", got)
	}
}
