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
	"testing"
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
	Responses Dialect = "responses" // OpenAI's Responses API, used without state on the server
)

// Step is one answer of a server. The zero value is an empty reply that stopped.
type Step struct {
	Reply toolcrib.Reply // what the model says; Finish.Reason is guessed if empty

	Latency time.Duration // before the head of the answer

	// What goes wrong, if anything.
	Status    int               // an HTTP error instead of the reply
	ErrorType string            // its type, such as overloaded_error
	ErrorText string            // its message
	MidStream bool              // the error comes inside the stream, after half the reply
	Header    map[string]string // further headers, such as Retry-After
	Hang      bool              // nothing comes until the client goes away
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

	APIKey    string              // if set, a request without it is answered 401
	Refuses   Refusals            // what the API refuses besides; nil = nothing
	OnRequest func(*http.Request) // called for each request
}

// Refusals reports what an API refuses in a request beyond what [Dialect.Check] finds, such
// as fields that exclude each other. model is what the path names, for Gemini.
type Refusals func(model string, body []byte) error

// Server plays a model API from a script and checks every request; a bad request is
// answered 400 and kept in Errors. It answers in one piece or as a stream, as the request
// asks.
type Server struct {
	dialect Dialect
	opts    ServerOptions

	mu     sync.Mutex
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
	return len(s.bodies)
}

// Errors returns what was wrong with requests so far.
func (s *Server) Errors() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.errs...)
}

// Handler serves the API, with the version in its path or without.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	answer := func(pattern, body string) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, maxRequest)) // only consumed
			if !s.authorized(r) {
				s.fail(w, http.StatusUnauthorized, "authentication_error", "invalid api key")
				return
			}
			w.Header().Set("Content-Type", jsonType)
			_, _ = io.WriteString(w, body) // the client notices
		})
	}
	models := `{"object":"list","data":[{"id":"model-a","object":"model","type":"model"},` +
		`{"id":"model-b","object":"model","type":"model"}],"has_more":false}`
	switch s.dialect {
	case Gemini:
		models = `{"models":[{"name":"models/model-a","supportedGenerationMethods":["generateContent","countTokens"]},` +
			`{"name":"models/model-b","supportedGenerationMethods":["generateContent"]},` +
			`{"name":"models/embedding","supportedGenerationMethods":["embedContent"]}]}`
	case Ollama:
		answer("GET /api/tags",
			`{"models":[{"name":"model-a","model":"model-a","size":1},{"name":"model-b","model":"model-b","size":2}]}`)
		answer("POST /api/show", OllamaShow("completion", "tools", "vision", "thinking"))
	case LlamaCpp:
		answer("GET /health", `{"status":"ok"}`)
		answer("GET /props", LlamaCppProps(true))
	}
	for _, version := range []string{"", "/v1", "/v1beta"} {
		mux.HandleFunc("POST "+version+apis[s.dialect].path, s.serve)
		answer("GET "+version+"/models", models)
	}
	return mux
}

// Start serves on a loopback address until the test ends, and fails the test if
// a request was bad. It returns the base URL, with /v1.
func (s *Server) Start(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("model server: %v", err)
	}
	server := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // until Close
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
func Start(t testing.TB, d Dialect, replies ...toolcrib.Reply) (*Server, string) {
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
		Finish: toolcrib.Finish{
			Reason: toolcrib.FinishStop,
			Usage:  toolcrib.TokenUsage{InputTokens: 10, OutputTokens: 5, Reported: true},
		},
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
		Finish: toolcrib.Finish{
			Reason: toolcrib.FinishToolCalls,
			Usage:  toolcrib.TokenUsage{InputTokens: 10, OutputTokens: 5, Reported: true},
		},
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
	if s.dialect == Gemini && !geminiMethod(r) {
		s.fail(w, http.StatusNotFound, "not_found_error", "no such method: "+r.URL.Path)
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
	header, before, _ := strings.Cut(apis[s.dialect].key, " ")
	return s.opts.APIKey == "" || r.Header.Get(header) == before+s.opts.APIKey
}

// accept counts a request and checks it.
func (s *Server) accept(r *http.Request, body []byte) (n int, err error) {
	err = s.check(r, body)
	s.mu.Lock()
	defer s.mu.Unlock()
	n = len(s.bodies)
	s.bodies = append(s.bodies, body)
	if err != nil {
		err = fmt.Errorf("request %d: %w", n, err)
		s.errs = append(s.errs, err)
	}
	return n, err
}

func (s *Server) check(r *http.Request, body []byte) error {
	if got := r.Header.Get("Content-Type"); !strings.HasPrefix(got, jsonType) {
		return fmt.Errorf("content-type %q", got)
	}
	if s.dialect == Anthropic && r.Header.Get("Anthropic-Version") == "" {
		return errors.New("anthropic-version: header is missing")
	}
	err := s.dialect.Check(body)
	if err == nil && s.opts.Refuses != nil {
		model, _ := geminiCall(r)
		err = s.opts.Refuses(model, body)
	}
	return err
}

func (s *Server) step(n int, body []byte) Step {
	if s.opts.Next != nil {
		return s.opts.Next(n, body)
	}
	if len(s.opts.Steps) == 0 {
		return Step{}
	}
	if s.opts.ByTurn {
		n = s.dialect.turns(body)
	}
	return s.opts.Steps[min(n, len(s.opts.Steps)-1)]
}

// turns counts the turns of the assistant in a request; in the Responses API each is a row of items.
func (d Dialect) turns(body []byte) (n int) {
	var doc struct {
		Messages, Contents, Input []struct{ Role, Type string }
	}
	if json.Unmarshal(body, &doc) != nil {
		return 0
	}
	before := false
	for _, item := range slices.Concat(doc.Messages, doc.Contents, doc.Input) {
		own := item.Role == "assistant" || item.Role == "model" || item.Type == "reasoning" || item.Type == "function_call"
		if own && (d != Responses || !before) {
			n++
		}
		before = own
	}
	return n
}

// fail answers with an HTTP error in the shape of the dialect.
func (s *Server) fail(w http.ResponseWriter, status int, kind, message string) {
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(status)
	_, _ = w.Write(s.dialect.errorBody(kind, message)) // the client notices
}

// encode encodes maps of plain values, which cannot fail.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		return []byte("null")
	}
	return b
}
