package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"

	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

// fault is one way in which a provider fails.
type fault struct {
	name   string
	refuse bool   // nobody listens
	status int    // instead of an answer, with body
	body   string // of that status; with status 200 instead of the answer
	cut    int    // the answer ends after so many bytes; -1 = it is whole
	end    ending
}

// ending says what is at a cut.
type ending int

const (
	endClosed ending = iota // the end of the body, as if that were all
	endBroken               // the connection breaks
	endSilent               // nothing more comes
)

// faulty is the way to a server in this process, without a network, that fails at
// one request: once, or from then on.
type faulty struct {
	handler http.Handler
	at      int // the request that fails, from 0; -1 = none
	forever bool
	fault   fault

	asked  int
	bodies [][]byte // of the answers
}

// RoundTrip implements http.RoundTripper.
func (f *faulty) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer r.Body.Close()
	}
	if r.Method != http.MethodPost || strings.HasSuffix(r.URL.Path, "/api/show") {
		return f.serve(r), nil
	}
	n := f.asked
	f.asked++
	failing := n == f.at || f.forever && f.at >= 0 && n > f.at
	if failing && f.fault.refuse {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	if failing && f.fault.status != 0 {
		return plain(r, f.fault.status, f.fault.body), nil
	}
	answer := f.serve(r)
	whole, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	f.bodies = append(f.bodies, whole)
	answer.Body = io.NopCloser(bytes.NewReader(whole))
	if failing && f.fault.cut >= 0 {
		answer.Body = &cutBody{r: bytes.NewReader(whole[:min(f.fault.cut, len(whole))]), end: f.fault.end, gone: r.Context().Done()}
	}
	return answer, nil
}

func (f *faulty) serve(r *http.Request) *http.Response {
	w := httptest.NewRecorder()
	in := r.Clone(r.Context())
	if in.Body == nil {
		in.Body = http.NoBody
	}
	f.handler.ServeHTTP(w, in)
	answer := w.Result()
	answer.Request = r
	return answer
}

func plain(r *http.Request, status int, body string) *http.Response {
	kind := "application/json"
	if strings.HasPrefix(body, "<") {
		kind = "text/html"
	}
	return &http.Response{
		StatusCode: status, Status: fmt.Sprintf("%d %s", status, http.StatusText(status)), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: r,
	}
}

// cutBody is the beginning of an answer.
type cutBody struct {
	r    io.Reader
	end  ending
	gone <-chan struct{} // the client has given up
}

func (b *cutBody) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if n > 0 || err == nil {
		return n, nil
	}
	switch b.end {
	case endBroken:
		return 0, io.ErrUnexpectedEOF
	case endSilent:
		<-b.gone
		return 0, io.ErrUnexpectedEOF
	}
	return 0, io.EOF
}

func (b *cutBody) Close() error { return nil }

// faultsBefore are the faults that leave nothing of the answer.
func faultsBefore(d modeltest.Dialect) []fault {
	faults := []fault{{name: "refused", refuse: true, cut: -1}}
	shapes := map[string]string{
		"json": `{"error":{"type":"some_error","code":null,"message":"it went wrong","status":"SOME_ERROR"}}`,
		"html": "<html><body>gateway</body></html>", "empty": "",
	}
	names := []string{"json", "html", "empty"}
	for i, status := range []int{400, 401, 402, 403, 404, 408, 409, 413, 418, 422, 425, 429, 500, 502, 503, 504, 520, 529} {
		some := names[i%3 : i%3+1]
		if status == 400 || status == 401 || status == 429 || status == 500 || status == 503 {
			some = names
		}
		for _, shape := range some {
			faults = append(faults, fault{name: fmt.Sprintf("%d %s", status, shape), status: status, body: shapes[shape], cut: -1})
		}
	}
	frame := func(text string) string {
		if d == modeltest.Ollama {
			return text + "\n"
		}
		return "data: " + text + "\n\n"
	}
	for name, body := range map[string]string{
		"html": shapes["html"], "empty": "", "null": "null", "no frames": "it works!", "binary": "\x00\xff\x1f\x8b\x08\x00", "array": "[]", "object": "{}",
		"frames of nothing": strings.Repeat(frame("{}"), 3), "broken frame": frame(`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"x","function":{"name":"note","argu`),
		"frame of html": frame("<b>"), "error frame": frame(`{"error":{"type":"server_error","message":"it went wrong"}}`),
	} {
		faults = append(faults, fault{name: "200 " + name, status: 200, body: body, cut: -1})
	}
	return faults
}

// faultsWithin are the cuts of an answer: after every event, in each way, and inside
// of it, where the ways take turns.
func faultsWithin(answer []byte, d modeltest.Dialect) []fault {
	separator := []byte("\n\n")
	if d == modeltest.Ollama {
		separator = []byte("\n")
	}
	var faults []fault
	add := func(at int, where string, ends ...ending) {
		for _, end := range ends {
			faults = append(faults, fault{name: fmt.Sprintf("cut %s %d (%d)", where, at, end), cut: at, end: end})
		}
	}
	add(0, "at", endClosed, endBroken, endSilent)
	for at := 0; at < len(answer); {
		size := bytes.Index(answer[at:], separator)
		if size < 0 {
			break
		}
		next := at + size + len(separator)
		add(at+size/2, "within", ending(at%3))
		if next < len(answer) { // what ends with its last event is whole
			add(next, "after", endClosed, endBroken, endSilent)
		}
		at = next
	}
	return faults
}
