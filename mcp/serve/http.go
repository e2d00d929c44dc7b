package serve

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/mcp/internal/rpc"
	"github.com/toolcrib/toolcrib/service"
)

// Bounds of clients over HTTP.
const (
	maxSessions  = 32   // sessions of a user; a new one replaces the one that was idle for the longest
	maxRequests  = 256  // requests of a user at a time, including those that only listen
	maxEndpoints = 1024 // endpoints of all users, including their sessions
	sessionIdle  = 30 * time.Minute
	endpointIdle = 10 * time.Minute
	// readFor is how long a client without a session remains marked by untrusted data that it has read.
	readFor = time.Hour
	sweep   = time.Minute
)

// HTTPOptions are the options of an [HTTP].
type HTTPOptions struct {
	// Service returns the current service. Sessions end when it returns another one.
	Service       func() *service.Service
	Pool          *service.Pool // its bounds apply to calls
	Version, Self string
	Log           *slog.Logger
}

// HTTP serves many clients over streamable HTTP: up to 2025-11-25 in sessions, later without. Without a session, the
// data that an answer reads can be attributed only to the principal and the agent, so all clients of a token are
// treated as one.
type HTTP struct {
	HTTPOptions
	ctx context.Context // context of all clients; its end leaves their runs to be resumed
	end context.CancelCauseFunc

	mu        sync.Mutex
	endpoints map[string]*endpoint // by their keys
	requests  map[string]int       // in-flight requests, by user
	running   sync.WaitGroup       // requests, the watch, and endpoints that are ending
}

// endpoint serves a session, or all clients without a session that have the same rights for the same agent.
type endpoint struct {
	*Server
	key       string // ID of the session, or the principal, agent and configuration
	of        string // principal and agent
	user      string
	session   bool
	service   *service.Service
	handler   *sdk.StreamableHTTPHandler
	requests  int // in-flight requests; guarded by HTTP.mu, like the fields below
	listening int // of these the ones that listen for changes
	last      time.Time
}

// busy reports whether a request or a question is open there, even if its connection broke; HTTP.mu is held.
func (e *endpoint) busy() bool {
	return e.requests > e.listening || e.calls.Load() > 0 || e.rounds.open.Load() > 0
}

// NewHTTP returns an [HTTP]. Close must be called.
func NewHTTP(o HTTPOptions) *HTTP {
	h := &HTTP{HTTPOptions: o, endpoints: map[string]*endpoint{}, requests: map[string]int{}}
	h.ctx, h.end = context.WithCancelCause(context.Background())
	h.running.Go(h.watch)
	return h
}

// Close ends all sessions and streams, leaves the runs of calls to be resumed, and waits for the requests that are
// in flight, or until ctx ends.
func (h *HTTP) Close(ctx context.Context) error {
	h.mu.Lock()
	h.end(errGone)
	h.mu.Unlock()
	left := make(chan struct{})
	go func() {
		defer close(left)
		h.running.Wait()
		for _, e := range h.all() {
			e.shut()
		}
	}()
	select {
	case <-left:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Request is a request to an [HTTP] whose front end has authenticated the principal.
type Request struct {
	Who       toolcrib.Principal
	Agent     string // "" means the default
	Workspace string
	Body      []byte
	// Fail writes an HTTP error in the format of the front end.
	Fail func(status int, text string)
}

// Serve answers a request. An error means that nothing was written.
func (h *HTTP) Serve(w http.ResponseWriter, r *http.Request, q *Request) error {
	first, body := peek(q.Body)
	id, begins, old := "", false, r.Header.Get("MCP-Protocol-Version") < multiRound
	if old {
		id = r.Header.Get(sessionHeader)
		begins = id == "" && r.Method == http.MethodPost && first.Method == "initialize"
	}
	e, leave, err := h.enter(r, q, id, begins, r.Method == http.MethodGet || first.Method == "subscriptions/listen")
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer context.AfterFunc(h.ctx, func() { cancel(errGone) })()
	r = r.WithContext(ctx)
	r.Body = io.NopCloser(bytes.NewReader(body))
	out := newAnswer(w, q.Fail)
	out.streams = r.Method == http.MethodPost && first.ID != nil && first.Method != "initialize"
	switch {
	case id != "" && r.Method == http.MethodDelete:
		e.end(service.Cancelled("MCP client (for " + q.Who.User + ")"))
		defer h.drop(e)
	case begins:
		defer func() { // the session did not begin, or its client does not know of it
			if !out.begun || out.header.Get(sessionHeader) == "" || len(slices.Collect(e.sdk.Sessions())) == 0 {
				h.drop(e)
			}
		}()
	}
	if old && first.ID != nil && !first.known() { // the SDK would refuse it with a plain HTTP error
		e := jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: fmt.Sprintf("method not found: %q", first.Method)}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"jsonrpc": "2.0", "id": first.ID, "error": e}) // client has gone
		return nil
	}
	defer out.beat(ctx, pingEvery, cancel)()
	e.handler.ServeHTTP(out, r)
	return nil
}

const sessionHeader = "Mcp-Session-Id"

// message has the parts of a message that are read before the SDK reads it.
type message struct {
	Version string           `json:"jsonrpc"`
	ID      *json.RawMessage `json:"id,omitempty"` // nil if absent or null
	Method  string           `json:"method"`
	Params  json.RawMessage  `json:"params,omitempty"`
}

// takes has the methods that the SDK accepts from a client, and whether they need parameters.
var takes = map[string]bool{
	"completion/complete": true, "initialize": true, "logging/setLevel": true, "ping": false,
	"prompts/get": true, "prompts/list": false, "resources/list": false, "resources/read": true,
	"resources/subscribe": true, "resources/templates/list": false, "resources/unsubscribe": true,
	"server/discover": false, "subscriptions/listen": true, "tools/call": true, "tools/list": false,
	"notifications/cancelled": false, "notifications/initialized": false, "notifications/progress": true,
	"notifications/roots/list_changed": false, unknown: false,
}

// unknown replaces the methods that are not known.
const unknown = "unknown"

// known reports whether a message is an answer or has a known method.
func (m *message) known() bool {
	_, ok := takes[m.Method]
	return m.Method == "" || ok && strings.HasPrefix(m.Method, "notifications/") == (m.ID == nil)
}

// peek reads a message, or the first of a batch as clients of 2025-03-26 send it. A message that the SDK would
// refuse before reading it, and with it a whole batch, is changed so that the SDK answers it under its ID. A message
// that cannot be read is left for the SDK to refuse.
func peek(body []byte) (first message, sent []byte) {
	single := !bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("["))
	var rest []json.RawMessage
	for _, text := range rpc.Split(body) {
		var m message
		err := json.Unmarshal(text, &m)
		if err == nil && !m.known() {
			_, err = rpc.Decode(text)
		}
		if err != nil {
			return message{}, body
		}
		switch known := m.known(); {
		case !known && m.ID == nil && !single: // it expects no answer
			continue
		case !known && !single:
			m.Method, m.Params = unknown, nil
			text, _ = json.Marshal(m) // decoded from JSON
		case known && takes[m.Method] && m.Params == nil:
			m.Params = json.RawMessage("{}")
			text, _ = json.Marshal(m) // decoded from JSON
		}
		if len(rest) == 0 {
			first = m
		}
		rest = append(rest, text)
	}
	switch {
	case len(rest) == 0:
		return first, body
	case single:
		return first, rest[0]
	}
	sent, _ = json.Marshal(rest) // decoded from JSON
	return first, sent
}

func full(text string) error {
	err := toolcrib.Errorf(toolcrib.CodeCapacityExceeded, "%s; try again later", text)
	err.RetryAfter = time.Second
	return err
}

// enter returns the endpoint for a request, and makes it if needed. id is that of a session, or "". The function
// that it returns must be called when the request is answered.
func (h *HTTP) enter(r *http.Request, q *Request, id string, begins, listens bool) (*endpoint, func(), error) {
	s, user := h.Service(), q.Who.User
	of, err := json.Marshal([]any{q.Who, q.Agent})
	if err != nil {
		return nil, nil, err
	}
	key := id
	if begins {
		key = rand.Text()
	} else if id == "" {
		key = fmt.Sprintf("%s %p", of, s)
	}
	h.mu.Lock()
	e := h.endpoints[key]
	switch {
	case h.ctx.Err() != nil:
		err = toolcrib.Errorf(toolcrib.CodeOverloaded, "the server is ending")
	case id != "" && (e == nil || e.of != string(of) || e.service != s):
		err = toolcrib.Errorf(toolcrib.CodeNotFound, "session not found; initialize a new one")
	case h.requests[user] >= maxRequests:
		err = full("you have as many requests under way as one user may have")
	}
	if err != nil {
		h.mu.Unlock()
		return nil, nil, err
	}
	h.requests[user]++
	h.running.Add(1)
	count := func(n int) { // h.mu is held
		if e == nil {
			return
		}
		e.requests += n
		if e.last = time.Now(); listens {
			e.listening += n
		}
	}
	count(1)
	h.mu.Unlock()
	leave := func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.requests[user]--; h.requests[user] == 0 {
			delete(h.requests, user)
		}
		count(-1)
		h.running.Done()
	}
	if e != nil {
		return e, leave, nil
	}
	made, err := h.open(r.Context(), s, q, &endpoint{key: key, of: string(of), user: user, session: begins, service: s})
	if err == nil {
		h.mu.Lock()
		if e, err = h.add(made); err == nil {
			count(1)
		}
		h.mu.Unlock()
	}
	if made != nil && made != e {
		made.shut()
	}
	if err != nil {
		leave()
		return nil, nil, err
	}
	return e, leave, nil
}

// open adds the server and the handler to a new endpoint.
func (h *HTTP) open(ctx context.Context, s *service.Service, q *Request, e *endpoint) (*endpoint, error) {
	serving, err := s.Serve(h.ctx, q.Who, service.StartRequest{Agent: q.Agent, Workspace: q.Workspace})
	if err != nil {
		return nil, err
	}
	serving.Within(h.Pool)
	e.Server = New(Options{
		Serving: serving, Version: h.Version, Self: h.Self, Mask: s.Env.Mask.Mask, Log: h.Log, ByItself: true, Session: e.key,
	})
	e.begin(h.ctx)
	err = sdk.AddReceivingCustomMethod(e.sdk, unknown,
		func(context.Context, *sdk.ServerSession, *sdk.ParamsBase) (*sdk.ResultBase, error) {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound}
		})
	if err == nil && !e.session {
		err = serving.ReadBefore(ctx, time.Now().Add(-readFor))
	}
	if err == nil {
		err = e.offer(ctx)
	}
	if err != nil {
		e.shut()
		return nil, err
	}
	o := &sdk.StreamableHTTPOptions{
		MaxRequestBodyBytes: -1, DisableLocalhostProtection: true, // the front end does both
		Stateless: !e.session, PropagateRequestCancellation: !e.session,
	}
	if e.session {
		o.EventStore = &replay{next: map[string]int{}}
	}
	e.handler = sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return e.sdk }, o)
	return e, nil
}

// add adds an endpoint, or returns the one that another request has made meanwhile; h.mu is held.
func (h *HTTP) add(e *endpoint) (*endpoint, error) {
	own := func(other *endpoint) bool { return other.session && other.user == e.user }
	n := 0
	for _, other := range h.endpoints {
		if own(other) {
			n++
		}
	}
	switch known := h.endpoints[e.key]; {
	case known != nil:
		return known, nil
	case e.session && n >= maxSessions && !h.evict(own):
		return nil, full("you have as many sessions in use as one user may have")
	case len(h.endpoints) >= maxEndpoints && !h.evict(func(*endpoint) bool { return true }):
		return nil, full("as many clients are served as there can be")
	}
	h.endpoints[e.key] = e
	return e, nil
}

// evict drops the longest idle endpoint of those for which of returns true, and reports whether there was one; h.mu
// is held.
func (h *HTTP) evict(of func(*endpoint) bool) bool {
	var oldest *endpoint
	for _, e := range h.endpoints {
		if of(e) && e.requests == 0 && !e.busy() && (oldest == nil || e.last.Before(oldest.last)) {
			oldest = e
		}
	}
	if oldest != nil {
		h.dropLocked(oldest)
	}
	return oldest != nil
}

// drop ends an endpoint.
func (h *HTTP) drop(e *endpoint) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dropLocked(e)
}

func (h *HTTP) dropLocked(e *endpoint) {
	if h.endpoints[e.key] == e {
		delete(h.endpoints, e.key)
		h.running.Go(e.shut)
	}
}

// shut ends the session and the calls of an endpoint. Runs of calls that were not cancelled are left to be resumed.
func (e *endpoint) shut() {
	e.end(errGone)
	for s := range e.sdk.Sessions() {
		_ = s.Close() // its client has gone
	}
	e.rounds.running.Wait()
	e.Serving.Close()
}

func (h *HTTP) all() []*endpoint {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Values(h.endpoints))
}

// watch notifies clients that listen of changes, and drops endpoints that were idle for long.
func (h *HTTP) watch() {
	tick := time.NewTicker(offerEvery)
	defer tick.Stop()
	for swept := time.Now(); ; {
		select {
		case <-h.ctx.Done():
			return
		case <-tick.C:
		}
		due := time.Since(swept) >= sweep
		if due {
			swept = time.Now()
		}
		for _, e := range h.all() {
			h.mu.Lock()
			listening, stale := e.listening > 0, e.service != h.Service()
			h.mu.Unlock()
			if listening {
				if err := e.offer(h.ctx); err != nil && h.ctx.Err() == nil {
					h.Log.WarnContext(h.ctx, "the offer of tools", "error", e.Mask(err.Error()))
				}
			}
			if due || stale {
				h.sweep(e, stale)
			}
		}
	}
}

// sweep drops an idle endpoint. If stale is set, it drops a session that is not busy, even if its client listens.
func (h *HTTP) sweep(e *endpoint, stale bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	idle := endpointIdle
	if e.session {
		idle = sessionIdle
	}
	if !e.busy() && (stale && e.session || e.requests == 0 && (stale || time.Since(e.last) > idle)) {
		h.dropLocked(e)
	}
}
