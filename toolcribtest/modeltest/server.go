package modeltest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
)

// Dialect is the API that a server speaks.
type Dialect string

const (
	OpenAI    Dialect = "openai"    // Chat Completions
	Anthropic Dialect = "anthropic" // Messages
	Ollama    Dialect = "ollama"    // Ollama's own chat API
	Gemini    Dialect = "gemini"    // Generative Language API
	LlamaCpp  Dialect = "llamacpp"  // Chat Completions as llama-server takes them
)

// Step is one answer of a server. The zero value is an empty reply that stopped.
type Step struct {
	Reply toolcrib.Reply // what the model says; Finish.Reason is guessed if empty

	Latency   time.Duration // before the head of the answer
	TokenTime time.Duration // between two pieces of a stream

	// What goes wrong, if anything.
	Status      int               // an HTTP error instead of the reply
	ErrorType   string            // its type, such as overloaded_error
	ErrorText   string            // its message
	MidStream   bool              // the error comes inside the stream, after half the reply
	Header      map[string]string // further headers, such as Retry-After
	Raw         []byte            // sent as it is instead of the reply
	ContentType string            // of Raw; "" = text/event-stream
	Cut         int               // the connection ends after so many bytes of the body; 0 = it does not
	Hang        bool              // nothing comes until the client goes away
}

// ServerOptions say what a server answers. Steps are played one a request and
// the last is repeated; Next wins over them.
type ServerOptions struct {
	Steps []Step
	// Next chooses the answer to the n-th request, from 0. It must be safe for
	// use by many at once.
	Next func(n int, body []byte) Step
	// ByTurn chooses the step by the number of assistant turns in the request
	// instead of by the number of requests: many runs can share the server.
	ByTurn bool

	APIKey      string              // if set, a request without it is answered 401
	Lenient     bool                // do not check requests
	AllowFields []string            // top-level fields that the checker need not know (extra)
	OnError     func(error)         // told of each bad request, besides Errors
	OnRequest   func(*http.Request) // told of each request
	ChunkBytes  int                 // of text in one piece of a stream; 0 = 16
	KeepBodies  int                 // how many request bodies Requests returns; 0 = all, -1 = none
}

// Server plays a model API from a script and checks every request as strictly as
// the real one does; a bad request is answered 400 and kept in Errors. It
// answers in one piece or as a stream, as the request asks.
type Server struct {
	dialect Dialect
	opts    ServerOptions

	mu     sync.Mutex
	count  int
	bodies [][]byte
	errs   []error
}

// NewServer plays the API of d.
func NewServer(d Dialect, o ServerOptions) *Server { return &Server{dialect: d, opts: o} }

// Requests returns the bodies of the requests so far, in order.
func (s *Server) Requests() [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.bodies)
}

// Count is the number of requests so far.
func (s *Server) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// Errors returns what was wrong with requests so far.
func (s *Server) Errors() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.errs...)
}

// Handler serves the API.
func (s *Server) Handler() http.Handler {
	if s.dialect == Gemini {
		return s.geminiHandler()
	}
	mux := http.NewServeMux()
	path := "/chat/completions"
	if s.dialect == Anthropic {
		path = "/messages"
	}
	if s.dialect == Ollama {
		path = "/api/chat"
	}
	s.localRoutes(mux)
	if s.dialect == Responses {
		path = "/responses"
	}
	mux.HandleFunc("POST /v1"+path, s.serve)
	mux.HandleFunc("POST "+path, s.serve)
	mux.HandleFunc("GET /v1/models", s.models)
	mux.HandleFunc("GET /models", s.models)
	return mux
}

// TB is what Start needs of a testing.TB.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// Start serves on a loopback address until the test ends, and fails the test if
// a request was bad. It returns the base URL, with /v1.
func (s *Server) Start(t TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("model server: %v", err)
	}
	server := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
		if err := s.Errors(); err != nil {
			t.Errorf("model server: %v", err)
		}
	})
	return "http://" + listener.Addr().String() + "/v1"
}

// Start starts a server of the API of d that plays replies. It returns the base URL too.
func Start(t TB, d Dialect, replies ...toolcrib.Reply) (*Server, string) {
	t.Helper()
	s := NewServer(d, ServerOptions{Steps: Steps(replies...)})
	return s, s.Start(t)
}

// Steps makes a step of each reply.
func Steps(replies ...toolcrib.Reply) []Step {
	steps := make([]Step, len(replies))
	for i := range replies {
		steps[i].Reply = replies[i]
	}
	return steps
}

// Text is a reply of text only.
func Text(text string) toolcrib.Reply {
	return toolcrib.Reply{
		Message: toolcrib.TextMessage(toolcrib.RoleAssistant, text),
		Finish:  toolcrib.Finish{Reason: toolcrib.FinishStop, Usage: toolcrib.TokenUsage{InputTokens: 10, OutputTokens: 5, Reported: true}},
	}
}

// Calls is a reply that asks for tools. Arguments are sent as they are.
func Calls(calls ...toolcrib.ToolCall) toolcrib.Reply {
	m := toolcrib.Message{Role: toolcrib.RoleAssistant}
	for i := range calls {
		m.Parts = append(m.Parts, toolcrib.Part{ToolCall: &calls[i]})
	}
	return toolcrib.Reply{
		Message: m,
		Finish:  toolcrib.Finish{Reason: toolcrib.FinishToolCalls, Usage: toolcrib.TokenUsage{InputTokens: 10, OutputTokens: 5, Reported: true}},
	}
}

const maxRequest = 64 << 20

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if s.opts.OnRequest != nil {
		s.opts.OnRequest(r)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		return // the client went away
	}
	if !s.authorized(r) {
		s.fail(w, http.StatusUnauthorized, "authentication_error", "invalid api key")
		return
	}
	n, err := s.accept(r, body)
	if err != nil {
		s.fail(w, http.StatusBadRequest, "invalid_request_error", err.Error())
		return
	}
	s.play(w, r, s.step(n, body), body)
}

func (s *Server) authorized(r *http.Request) bool {
	if s.opts.APIKey == "" {
		return true
	}
	if s.dialect == Anthropic {
		return r.Header.Get("X-Api-Key") == s.opts.APIKey
	}
	if s.dialect == Gemini {
		return r.Header.Get("X-Goog-Api-Key") == s.opts.APIKey
	}
	return r.Header.Get("Authorization") == "Bearer "+s.opts.APIKey
}

// accept counts a request and checks it.
func (s *Server) accept(r *http.Request, body []byte) (n int, err error) {
	if !s.opts.Lenient {
		err = s.check(r, body)
	}
	s.mu.Lock()
	n = s.count
	s.count++
	if keep := s.opts.KeepBodies; keep == 0 || len(s.bodies) < keep {
		s.bodies = append(s.bodies, body)
	}
	if err != nil {
		err = fmt.Errorf("request %d: %w", n, err)
		s.errs = append(s.errs, err)
	}
	s.mu.Unlock()
	if err != nil && s.opts.OnError != nil {
		s.opts.OnError(err)
	}
	return n, err
}

func (s *Server) check(r *http.Request, body []byte) error {
	if got := r.Header.Get("Content-Type"); !strings.HasPrefix(got, "application/json") {
		return fmt.Errorf("content-type %q", got)
	}
	if s.dialect == Anthropic && r.Header.Get("Anthropic-Version") == "" {
		return errors.New("anthropic-version: header is missing")
	}
	if len(s.opts.AllowFields) > 0 {
		var doc map[string]json.RawMessage
		if err := json.Unmarshal(body, &doc); err != nil {
			return err
		}
		for _, name := range s.opts.AllowFields {
			delete(doc, name)
		}
		body, _ = json.Marshal(doc)
	}
	model, _ := geminiCall(r)
	return s.dialect.Check(model, body)
}

func (s *Server) step(n int, body []byte) Step {
	if s.opts.Next != nil {
		return s.opts.Next(n, body)
	}
	if len(s.opts.Steps) == 0 {
		return Step{}
	}
	if s.opts.ByTurn {
		if n = assistantTurns(body); s.dialect == Responses {
			n = responsesTurns(body)
		}
	}
	if s.opts.ByTurn && s.dialect == Gemini {
		n = geminiTurns(body)
	}
	return s.opts.Steps[min(n, len(s.opts.Steps)-1)]
}

func assistantTurns(body []byte) (n int) {
	var doc struct {
		Messages []struct {
			Role string `json:"role"`
		} `json:"messages"`
	}
	if json.Unmarshal(body, &doc) != nil {
		return 0
	}
	for _, m := range doc.Messages {
		if m.Role == "assistant" {
			n++
		}
	}
	return n
}

func (s *Server) models(w http.ResponseWriter, r *http.Request) {
	if !s.authorized(r) {
		s.fail(w, http.StatusUnauthorized, "authentication_error", "invalid api key")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"model-a","object":"model","type":"model"},{"id":"model-b","object":"model","type":"model"}],"has_more":false}`)
}

// fail answers with an HTTP error in the shape of the dialect.
func (s *Server) fail(w http.ResponseWriter, status int, kind, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(s.dialect.errorBody(kind, message))
}

func (d Dialect) errorBody(kind, message string) []byte {
	inner := map[string]any{"type": kind, "message": message}
	if d == Anthropic {
		return encode(map[string]any{"type": "error", "error": inner, "request_id": "req_test"})
	}
	if d == Ollama || d == LlamaCpp {
		return localError(d, kind, message)
	}
	if d == Gemini {
		return geminiError(kind, message)
	}
	inner["param"], inner["code"] = nil, nil
	return encode(map[string]any{"error": inner})
}

// encode encodes maps of plain values, which cannot fail.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		return []byte("null")
	}
	return b
}
