package modeltest

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// Target is what an adapter under test is to be made with. The suites connect to loopback, and
// leave the proxy to the adapter's test.
type Target = wire.Options

// HTTPSubject is an adapter of an HTTP model API under test.
type HTTPSubject struct {
	Dialect Dialect
	Refuses Refusals // of the API; nil = none are known
	New     func(t *testing.T, target Target) toolcrib.Model
}

// Opened returns the model of a constructor, which must not fail, and closes it when the test ends.
func Opened[M interface {
	toolcrib.Model
	Close() error
}](t testing.TB, m M, err error) M {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// RunHTTP is the suite for adapters of HTTP model APIs: that of [Run], streamed and not, the
// recorded replies, and all that servers and networks do wrong.
func RunHTTP(t *testing.T, s HTTPSubject) {
	for name, noStream := range map[string]bool{"ModelStreams": false, "ModelAnswersWhole": true} {
		t.Run(name, func(t *testing.T) {
			Run(t, Subject{Thinking: true, Uncached: s.Dialect == Ollama, New: func(t *testing.T, replies ...toolcrib.Reply) toolcrib.Model {
				server := NewServer(s.Dialect, ServerOptions{Refuses: s.Refuses, Steps: Steps(replies...), ByTurn: true})
				return s.New(t, Target{BaseURL: server.Start(t), NoStream: noStream})
			}})
		})
	}
	t.Run("Fixtures", s.fixtures)
	t.Run("CutAtEveryByte", s.cuts)
	t.Run("ErrorClasses", s.errorClasses)
	t.Run("WordsOfTheServer", s.words)
	t.Run("TinyChunks", s.tinyChunks)
	t.Run("ErrorInStream", s.errorInStream)
	t.Run("FirstTokenTimeout", s.firstToken)
	t.Run("IdleTimeout", s.idle)
	t.Run("CancelWhileWaiting", s.cancelWaiting)
	t.Run("CancelWhileStreaming", s.cancelStreaming)
	t.Run("NeverEnds", s.neverEnds)
	t.Run("GzipBomb", s.gzipBomb)
	t.Run("Redirect", s.redirect)
	t.Run("NoConnection", s.noConnection)
	t.Run("KeyStaysSecret", s.secret)
	t.Run("HostileHistory", s.history)
	t.Run("Image", s.image)
	t.Run("NoFiles", s.noFiles)
	t.Run("StructuredAnswer", s.structured)
	t.Run("StablePrefix", s.prefix)
}

// canned answers every request with the same bytes, read in pieces of step bytes.
type canned struct {
	status int
	header http.Header
	body   []byte
	step   int
	end    error // after the body; nil = a clean end
}

func (c canned) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body) // only consumed
		_ = req.Body.Close()                 // it was only read
	}
	var body io.Reader = bytes.NewReader(c.body)
	if c.end != nil {
		body = io.MultiReader(body, iotest.ErrReader(c.end))
	}
	return &http.Response{
		StatusCode: max(c.status, http.StatusOK), Header: c.header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Body: io.NopCloser(stepReader{body, c.step}), ContentLength: -1,
	}, nil
}

// stepReader reads at most step bytes at a time; 0 = as many as there are.
type stepReader struct {
	io.Reader
	step int
}

func (r stepReader) Read(p []byte) (int, error) {
	if r.step > 0 {
		p = p[:min(r.step, len(p))]
	}
	return r.Reader.Read(p)
}

func contentType(kind string) http.Header { return http.Header{"Content-Type": {kind}} }

func (s HTTPSubject) canned(t *testing.T, c canned) toolcrib.Model {
	return s.New(t, Target{BaseURL: "http://model.test/v1", Transport: c})
}

func (s HTTPSubject) list(t *testing.T) []Fixture {
	t.Helper()
	list, err := Fixtures(s.Dialect)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func (s HTTPSubject) fixtures(t *testing.T) {
	for _, f := range s.list(t) {
		stream, whole := contentType(s.Dialect.streamType()+"; charset=utf-8"), contentType(jsonType)
		for _, step := range []int{0, 1, 7} {
			s.expect(t, fmt.Sprintf("%s/stream/%d", f.Name, step), f.Want, canned{header: stream, body: f.Stream, step: step})
			s.expect(t, fmt.Sprintf("%s/whole/%d", f.Name, step), f.Want, canned{header: whole, body: f.Whole, step: step})
		}
		s.expect(t, f.Name+"/wrong content type", f.Want, canned{header: contentType("text/plain"), body: f.Stream})
		s.expect(t, f.Name+"/no content type", f.Want, canned{header: http.Header{}, body: f.Whole})
		s.framings(t, f)
	}
}

// framings says one thing of a reply and sends another, as gateways do: its first bytes count.
func (s HTTPSubject) framings(t *testing.T, f Fixture) {
	stream, whole := contentType(s.Dialect.streamType()), contentType(jsonType)
	s.expect(t, f.Name+"/stream as JSON", f.Want, canned{header: whole, body: f.Stream})
	s.expect(t, f.Name+"/JSON as stream", f.Want, canned{header: stream, body: f.Whole, step: 1})
	if f.Whole != nil {
		s.expect(t, f.Name+"/mark and space", f.Want, canned{header: stream, body: append([]byte("\n\xEF\xBB\xBF \r\n"), f.Whole...), step: 1})
	}
	if f.Stream == nil || s.Dialect == Ollama {
		return
	}
	s.expect(t, f.Name+"/mark before the stream", f.Want, canned{header: whole, body: append([]byte("\xEF\xBB\xBF"), f.Stream...), step: 1})
	tight := bytes.ReplaceAll(f.Stream, []byte("\n\n"), []byte("\n"))
	for _, step := range []int{0, 1, 7} {
		s.expect(t, fmt.Sprintf("%s/no blank lines/%d", f.Name, step), f.Want, canned{header: stream, body: tight, step: step})
	}
	var lines []byte
	for frames := wire.NewFrameReader(bytes.NewReader(f.Stream), 0, nil); ; {
		frame, err := frames.Next()
		if err != nil {
			break
		}
		if json.Valid(frame.Data) {
			lines = append(append(lines, frame.Data...), '\n')
		}
	}
	if !f.Want.Lenient && f.Want.Error == "" {
		s.expect(t, f.Name+"/lines of JSON", f.Want, canned{header: stream, body: lines, step: 7})
	}
}

func (s HTTPSubject) expect(t *testing.T, name string, want Want, c canned) {
	if c.body != nil { // there is such a recording
		t.Run(name, func(t *testing.T) { s.compare(t, want, c) })
	}
}

func (s HTTPSubject) compare(t *testing.T, want Want, c canned) {
	t.Helper()
	r, err := Collect(t.Context(), s.canned(t, c), Request("hi"))
	if want.Error != "" {
		wantClass(t, err, want.Error)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	CompareReply(t, want, r)
}

// CompareReply fails the test where r differs from want.
func CompareReply(t *testing.T, want Want, r toolcrib.Reply) {
	t.Helper()
	var opts []cmp.Option
	if want.JSONArguments {
		opts = append(opts, JSONArguments)
	}
	if diff := cmp.Diff(want.Parts, Parts(r.Message), opts...); diff != "" {
		t.Errorf("parts differ (-want +got):\n%s", diff)
	}
	if r.Finish.Reason != want.Reason {
		t.Errorf("reason %q, want %q", r.Finish.Reason, want.Reason)
	}
	if diff := cmp.Diff(want.Usage, r.Finish.Usage); diff != "" {
		t.Errorf("usage differs (-want +got):\n%s", diff)
	}
	if r.Finish.Model != want.Model {
		t.Errorf("model %q, want %q", r.Finish.Model, want.Model)
	}
}

func wantClass(t *testing.T, err error, class toolcrib.ErrorClass) *toolcrib.ModelError {
	t.Helper()
	var e *toolcrib.ModelError
	if !errors.As(err, &e) {
		t.Fatalf("error %v, want a ModelError of class %s", err, class)
	}
	if e.Class != class {
		t.Errorf("class %s, want %s (%v)", e.Class, class, err)
	}
	if strings.ContainsAny(e.Message, "\r\n") || len(e.Message) > 500 || e.Message == "" {
		t.Errorf("message is no short line: %q", e.Message)
	}
	if len(e.Detail) > 8<<10 {
		t.Errorf("detail has %d bytes", len(e.Detail))
	}
	if e.Provider == "" {
		t.Error("the error names no provider")
	}
	return e
}

// cuts ends each recorded reply after every one of its bytes: there must be an
// error, or all that was said and why it stopped. With -short it takes every 19th
// byte, beginning with another one each time.
func (s HTTPSubject) cuts(t *testing.T) {
	first, step := 0, 1
	if testing.Short() {
		first, step = rand.IntN(19), 19
	}
	for _, f := range s.list(t) {
		if f.Want.Error != "" {
			continue
		}
		for kind, body := range map[string][]byte{s.Dialect.streamType(): f.Stream, jsonType: f.Whole} {
			for n := first; n < len(body); n += step {
				ends := []error{nil, io.ErrUnexpectedEOF}
				if f.Want.Lenient {
					ends = ends[n%2:][:1] // there are many of them
				}
				for _, end := range ends {
					r, err := Collect(t.Context(), s.canned(t, canned{header: contentType(kind), body: body[:n], end: end}), Request("hi"))
					if err != nil {
						wantClass(t, err, toolcrib.ErrNetwork)
						continue
					}
					if diff := cmp.Diff(f.Want.Parts, Parts(r.Message), JSONArguments); diff != "" || r.Finish.Reason != f.Want.Reason {
						t.Fatalf("%s %s cut after %d bytes (%v) gave a short reply as a whole one: %s %s", f.Name, kind, n, end, r.Finish.Reason, diff)
					}
				}
			}
		}
	}
}

func (s HTTPSubject) errorClasses(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	tests := []struct {
		name, kind, body string
		status           int
		header           map[string]string
		class            toolcrib.ErrorClass
		wait             time.Duration
	}{
		{name: "401", status: 401, body: s.err("authentication_error", "invalid x-api-key"), class: toolcrib.ErrAuth},
		{name: "403", status: 403, body: s.err("permission_error", "no access"), class: toolcrib.ErrAuth},
		{name: "404", status: 404, body: s.err("not_found_error", "model: nothing"), class: toolcrib.ErrBadRequest},
		{name: "400", status: 400, body: s.err("invalid_request_error", "tools.0: bad"), class: toolcrib.ErrBadRequest},
		{name: "400 prompt too long", status: 400, body: s.err("invalid_request_error", "prompt is too long: 208310 tokens > 200000 maximum"), class: toolcrib.ErrContextLength},
		{name: "400 context length", status: 400, body: `{"error":{"message":"This model's maximum context length is 4097 tokens. However, your messages resulted in 5000 tokens. Please reduce the length of the messages.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`, class: toolcrib.ErrContextLength},
		{name: "413", status: 413, body: s.err("request_too_large", "Request exceeds the maximum size"), class: toolcrib.ErrContextLength},
		{name: "429", status: 429, body: s.err("rate_limit_error", "slow down"), header: map[string]string{"Retry-After": "20"}, class: toolcrib.ErrRateLimit, wait: 20 * time.Second},
		{name: "429 ms", status: 429, body: s.err("rate_limit_error", "slow down"), header: map[string]string{"Retry-After-Ms": "1500", "Retry-After": "2"}, class: toolcrib.ErrRateLimit, wait: 1500 * time.Millisecond},
		{name: "429 reset", status: 429, body: "{}", header: map[string]string{"X-Ratelimit-Remaining-Requests": "0", "X-Ratelimit-Reset-Requests": "1m2s"}, class: toolcrib.ErrRateLimit, wait: 62 * time.Second},
		{name: "429 quota", status: 429, body: `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`, class: toolcrib.ErrAuth},
		{name: "500", status: 500, body: s.err("api_error", "Internal server error"), class: toolcrib.ErrOverloaded},
		{name: "502 html", status: 502, kind: "text/html", body: "<html><h1>Bad Gateway</h1></html>", class: toolcrib.ErrOverloaded},
		{name: "503 empty", status: 503, class: toolcrib.ErrOverloaded},
		{name: "504", status: 504, class: toolcrib.ErrTimeout},
		{name: "529", status: 529, body: s.err("overloaded_error", "Overloaded"), class: toolcrib.ErrOverloaded},
		{name: "error as text", status: 400, body: `{"error":"model not loaded"}`, class: toolcrib.ErrBadRequest},
		{name: "list of errors", status: 400, body: `[{"error":{"code":400,"message":"bad","status":"INVALID_ARGUMENT"}}]`, class: toolcrib.ErrBadRequest},
		{name: "endless message", status: 400, body: s.err("invalid_request_error", long), class: toolcrib.ErrBadRequest},
		{name: "binary", status: 400, body: "\x00\xff\xfe\r\n" + long, class: toolcrib.ErrBadRequest},
		{name: "200 html", status: 200, kind: "text/html", body: "<!doctype html><title>Login</title>", class: toolcrib.ErrOther},
		{name: "200 html as json", status: 200, kind: jsonType, body: "<!doctype html><title>Login</title>", class: toolcrib.ErrOther},
		{name: "200 html as stream", status: 200, kind: s.Dialect.streamType(), body: "<!doctype html>\n<title>Login</title>\n", class: toolcrib.ErrOther},
		{name: "200 empty", status: 200, kind: jsonType, class: toolcrib.ErrNetwork},
		{name: "200 empty stream", status: 200, kind: s.Dialect.streamType(), class: toolcrib.ErrNetwork},
		{name: "200 other json", status: 200, kind: jsonType, body: `{"hello":"world"}`, class: toolcrib.ErrOther},
		{name: "200 error as stream", status: 200, kind: s.Dialect.streamType(), body: s.err("overloaded_error", "Overloaded"), class: toolcrib.ErrOverloaded},
		{name: "200 word", status: 200, kind: jsonType, body: `"hello"`, class: toolcrib.ErrOther},
		{name: "200 deep", status: 200, kind: jsonType, body: `{"a":` + strings.Repeat("[", 100_000), class: toolcrib.ErrNetwork},
		{name: "200 deep in stream", status: 200, kind: s.Dialect.streamType(), body: string(s.Dialect.frame([]byte(`{"a":` + strings.Repeat(`{"a":`, 100_000)))), class: toolcrib.ErrNetwork},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			header := contentType(tt.kind)
			if tt.kind == "" {
				header = contentType(jsonType)
			}
			for name, value := range tt.header {
				header.Set(name, value)
			}
			_, err := Collect(t.Context(), s.canned(t, canned{status: tt.status, header: header, body: []byte(tt.body)}), Request("hi"))
			e := wantClass(t, err, tt.class)
			if tt.status != 200 && e.Status != tt.status {
				t.Errorf("status %d, want %d", e.Status, tt.status)
			}
			if e.RetryAfter != tt.wait {
				t.Errorf("retry after %s, want %s", e.RetryAfter, tt.wait)
			}
			if e.Unsent {
				t.Error("an answered request counts as unsent")
			}
		})
	}
}

// words are those by which servers say what is wrong, with a status of success or another one: they
// are in the error.
func (s HTTPSubject) words(t *testing.T) {
	const words = "please wait for worker 7"
	for name, body := range map[string]string{
		"error_message": `{"id":"g","choices":null,"error_type":"BadRequestError","error_message":"` + words + `"}`,
		"base_resp":     `{"base_resp":{"status_code":1008,"status_msg":"` + words + `"}}`,
		"code and msg":  `{"code":1302,"msg":"` + words + `","success":false}`,
		"errors":        `{"success":false,"errors":[{"code":7000,"message":"` + words + `"}],"result":null}`,
		"error_msg":     `{"error_code":17,"error_msg":"` + words + `"}`,
		"capitals":      `{"Response":{"Error":{"Code":"LimitExceeded","Message":"` + words + `"}}}`,
		"in a text":     `{"error":{"message":"{\"error\":{\"message\":\"` + words + `\"}}"}}`,
		"description":   `{"error":"slow","error_description":"` + words + `"}`,
		"detail":        `{"detail":"` + words + `"}`,
		"as an event":   "event: error\ndata: {\"message\":\"" + words + "\",\"code\":500}\n\n",
		"as its text":   "event: error\ndata: " + words + "\n\n",
		"text":          words,
		"list":          `[{"error":{"code":503,"message":"` + words + `"}}]`,
	} {
		for _, status := range []int{200, 400} {
			for _, kind := range []string{jsonType, s.Dialect.streamType()} {
				_, err := Collect(t.Context(), s.canned(t, canned{status: status, header: contentType(kind), body: []byte(body)}), Request("hi"))
				var e *toolcrib.ModelError
				if !errors.As(err, &e) || !strings.Contains(e.Message, words) {
					t.Errorf("%s, status %d as %s: %v, want the words of the server", name, status, kind, err)
				}
			}
		}
	}
}

func (s HTTPSubject) err(kind, message string) string {
	return string(s.Dialect.errorBody(kind, message))
}

// tinyChunks streams a long answer in 100 000 frames, a byte of text each; with -short in a fifth of them.
func (s HTTPSubject) tinyChunks(t *testing.T) {
	text := strings.Repeat("0123456789", 10_000)
	if testing.Short() {
		text = text[:len(text)/5]
	}
	body := bytes.Join(s.Dialect.Frames(Text(text), 1), nil)
	r, err := Collect(t.Context(), s.canned(t, canned{header: contentType(s.Dialect.streamType()), body: body, step: 4093}), Request("hi"))
	if err != nil {
		t.Fatal(err)
	}
	if r.Message.Text() != text {
		t.Errorf("%d bytes of text, want %d", len(r.Message.Text()), len(text))
	}
}

func (s HTTPSubject) errorInStream(t *testing.T) {
	for kind, class := range map[string]toolcrib.ErrorClass{
		"overloaded_error": toolcrib.ErrOverloaded, "rate_limit_error": toolcrib.ErrRateLimit, "api_error": toolcrib.ErrOverloaded, "invalid_request_error": toolcrib.ErrBadRequest,
	} {
		server := NewServer(s.Dialect, ServerOptions{Refuses: s.Refuses, Steps: []Step{{Reply: Text("half of this is said before it fails"), Status: 500, MidStream: true, ErrorType: kind, ErrorText: "sorry"}}})
		r, err := Collect(t.Context(), s.New(t, Target{BaseURL: server.Start(t)}), Request("hi"))
		wantClass(t, err, class)
		if r.Message.Text() == "" {
			t.Error("what was said before the error is lost")
		}
	}
}

func (s HTTPSubject) firstToken(t *testing.T) {
	server := NewServer(s.Dialect, ServerOptions{Refuses: s.Refuses, Steps: []Step{{Hang: true}}})
	_, err := Collect(t.Context(), s.New(t, Target{BaseURL: server.Start(t), FirstTokenTimeout: 20 * time.Millisecond}), Request("hi"))
	if e := wantClass(t, err, toolcrib.ErrTimeout); !strings.Contains(e.Message, "first_token_timeout") || e.Unsent {
		t.Errorf("message %q, unsent %t", e.Message, e.Unsent)
	}
}

// stall answers with the start of a stream and then nothing, or only comments,
// until the client goes away.
func (s HTTPSubject) stall(t *testing.T, frames int) string {
	t.Helper()
	all := s.Dialect.Frames(Text("one two three"), 4)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only consumed
		w.Header().Set("Content-Type", s.Dialect.streamType())
		for _, f := range all[:frames] {
			_, _ = w.Write(f) // the client notices
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func (s HTTPSubject) idle(t *testing.T) {
	_, err := Collect(t.Context(), s.New(t, Target{BaseURL: s.stall(t, 4), IdleTimeout: 20 * time.Millisecond}), Request("hi"))
	if e := wantClass(t, err, toolcrib.ErrTimeout); !strings.Contains(e.Message, "idle_timeout") {
		t.Errorf("message %q", e.Message)
	}
}

func (s HTTPSubject) cancelWaiting(t *testing.T) {
	arrived := make(chan struct{}, 1)
	server := NewServer(s.Dialect, ServerOptions{Refuses: s.Refuses, Steps: []Step{{Hang: true}}, OnRequest: func(*http.Request) { arrived <- struct{}{} }})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	model := s.New(t, Target{BaseURL: server.Start(t)})
	done := make(chan error, 1)
	go func() {
		_, err := Collect(ctx, model, Request("hi"))
		done <- err
	}()
	<-arrived
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
}

func (s HTTPSubject) cancelStreaming(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	for d, err := range s.New(t, Target{BaseURL: s.stall(t, 4)}).Stream(ctx, Request("hi")) {
		if d.Text != "" {
			cancel()
		}
		last = err
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("error %v, want %v", last, context.Canceled)
	}
}

// neverEnds sends text without end: the bound of the reply ends it.
func (s HTTPSubject) neverEnds(t *testing.T) {
	frames := s.Dialect.Frames(Text("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), 8)
	for _, tail := range s.Dialect.endless(frames[3], 400_000) {
		body := append(bytes.Join(frames[:3], nil), tail...)
		model := s.New(t, Target{BaseURL: "http://model.test/v1", MaxReplyBytes: 200_000, Transport: canned{header: contentType(s.Dialect.streamType()), body: body, step: 5000}})
		_, err := Collect(t.Context(), model, Request("hi"))
		wantClass(t, err, toolcrib.ErrOther)
	}
	big := canned{header: contentType(jsonType), body: append([]byte(`{"a":"`), bytes.Repeat([]byte("a"), 400_000)...)}
	_, err := Collect(t.Context(), s.New(t, Target{BaseURL: "http://model.test/v1", MaxReplyBytes: 200_000, Transport: big}), Request("hi"))
	wantClass(t, err, toolcrib.ErrOther)
}

// gzipBomb sends few bytes that unpack to many: what counts is what comes out.
func (s HTTPSubject) gzipBomb(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed) // into a buffer, which never fails
	_, _ = z.Write([]byte(`{"a":"`))
	_, _ = z.Write(bytes.Repeat([]byte("a"), 8<<20))
	_ = z.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only consumed
		w.Header().Set("Content-Type", jsonType)
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(packed.Bytes())
	}))
	t.Cleanup(server.Close)
	_, err := Collect(t.Context(), s.New(t, Target{BaseURL: server.URL, MaxReplyBytes: 1 << 20}), Request("hi"))
	wantClass(t, err, toolcrib.ErrOther)
}

// redirect must not carry the key to another host.
func (s HTTPSubject) redirect(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("the redirect was followed")
	}))
	t.Cleanup(other.Close)
	server := httptest.NewServer(http.RedirectHandler(other.URL+"/v1?secret=1", http.StatusTemporaryRedirect))
	t.Cleanup(server.Close)
	_, err := Collect(t.Context(), s.New(t, Target{BaseURL: server.URL, APIKey: "secret-key-123"}), Request("hi"))
	if e := wantClass(t, err, toolcrib.ErrBadRequest); !strings.Contains(e.Message, "base_url") || strings.Contains(e.Message, "secret=1") {
		t.Errorf("message %q", e.Message)
	}
}

func (s HTTPSubject) noConnection(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	host := strings.TrimPrefix(server.URL, "http://")
	server.Close()
	_, err := Collect(t.Context(), s.New(t, Target{BaseURL: "http://" + host}), Request("hi"))
	if e := wantClass(t, err, toolcrib.ErrNetwork); !e.Unsent || !strings.Contains(e.Message, host) {
		t.Errorf("unsent %t, message %q", e.Unsent, e.Message)
	}
	_, err = Collect(t.Context(), s.New(t, Target{BaseURL: "http://no-such-host.invalid/v1"}), Request("hi"))
	if e := wantClass(t, err, toolcrib.ErrNetwork); !e.Unsent || !strings.Contains(e.Message, "no-such-host.invalid") {
		t.Errorf("unsent %t, message %q", e.Unsent, e.Message)
	}
}

// secret: some APIs repeat the key that they refuse.
func (s HTTPSubject) secret(t *testing.T) {
	const key = "my-very-secret-key-0123456789"
	body := s.err("authentication_error", "Incorrect API key provided: "+key+". Also sk-proj-abcdefgh12345.")
	model := s.New(t, Target{BaseURL: "http://model.test/v1", APIKey: key, Transport: canned{status: 401, header: contentType(jsonType), body: []byte(body)}})
	_, err := Collect(t.Context(), model, Request("hi"))
	e := wantClass(t, err, toolcrib.ErrAuth)
	if strings.Contains(e.Message+e.Detail+e.Error(), key) || strings.Contains(e.Message, "sk-proj") {
		t.Errorf("the key shows: %q %q", e.Message, e.Detail)
	}
}
