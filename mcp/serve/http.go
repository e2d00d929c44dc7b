package serve

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/service"
)

// The bounds of clients over HTTP.
const (
	maxSessions = 32  // of a user; the one that was idle for the longest makes room
	maxRequests = 256 // of a user at a time, with those that only listen
	maxDesks    = 256 // of all users
	sessionIdle = 30 * time.Minute
	deskIdle    = 10 * time.Minute
	// readFor is how long untrusted data counts that a client without a session has read.
	readFor = time.Hour
	sweep   = time.Minute
)

// HTTPOptions are what an [HTTP] stands on.
type HTTPOptions struct {
	// Service is the service of now; sessions end when it is another one.
	Service       func() *service.Service
	Pool          *service.Pool // whose bounds hold for calls
	Version, Self string
	Log           *slog.Logger
}

// HTTP serves many clients over streamable HTTP: up to 2025-11-25 in sessions, later without. What
// an answer without a session reads is known by who asks and by the agent only, so there all
// clients of a token are one.
type HTTP struct {
	HTTPOptions
	ctx context.Context // of all clients; its end leaves their runs to be resumed
	end context.CancelCauseFunc

	mu       sync.Mutex
	desks    map[string]*desk
	requests map[string]int // under way, by user
	running  sync.WaitGroup // requests, and the watch
}

// desk serves those who ask with the same rights for the same agent.
type desk struct {
	*Server
	key, user         string
	service           *service.Service
	stateful, without *sdk.StreamableHTTPHandler
	requests          int // under way; guarded by HTTP.mu, like all that follows
	listening         int // of them those that hear of changes
	last              time.Time
	rooms             map[string]*room // sessions, by their IDs
	kept              replay           // what was sent in them
}

// idle reports whether nobody asks or is asked there; HTTP.mu is held.
func (d *desk) idle() bool { return d.requests == 0 && len(d.rooms) == 0 && d.rounds.open.Load() == 0 }

// room is a session of a desk.
type room struct {
	*client
	requests, listening int // under way; listening those that hear of changes
	last                time.Time
}

// NewHTTP makes one. Close must be called.
func NewHTTP(o HTTPOptions) *HTTP {
	h := &HTTP{HTTPOptions: o, desks: map[string]*desk{}, requests: map[string]int{}}
	h.ctx, h.end = context.WithCancelCause(context.Background())
	h.running.Go(h.watch)
	return h
}

// Close ends all sessions and streams, leaves the runs of calls to be resumed, and waits for the
// requests that are under way, or until ctx ends.
func (h *HTTP) Close(ctx context.Context) error {
	h.mu.Lock()
	h.end(errGone)
	h.mu.Unlock()
	left := make(chan struct{})
	go func() {
		defer close(left)
		h.running.Wait()
		for _, d := range h.all() {
			h.shut(d)
		}
	}()
	select {
	case <-left:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Request is a request to an [HTTP], whose front end knows who asks.
type Request struct {
	Who       toolcrib.Principal
	Agent     string // "" = the default
	Workspace string
	Body      []byte
	// Still returns an error when who asked no longer may. It is called now and then while the
	// answer is under way.
	Still func() error
	// Fail writes an error of HTTP, as the front end has them.
	Fail func(status int, text string)
}

// Serve answers a request. An error means that nothing was written.
func (h *HTTP) Serve(w http.ResponseWriter, r *http.Request, q *Request) error {
	d, leave, err := h.enter(r.Context(), q)
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer context.AfterFunc(h.ctx, func() { cancel(errGone) })()
	r = r.WithContext(ctx)
	r.Body = io.NopCloser(bytes.NewReader(q.Body))
	first := peek(q.Body)
	out := newAnswer(w, func(status int, text string) {
		if !first.refuse(w, text) {
			q.Fail(status, text)
		}
	})
	out.streams = r.Method == http.MethodPost && first.ID != nil && first.Method != "initialize"

	id, with, in := r.Header.Get(sessionHeader), d.without, (*room)(nil)
	listens := r.Method == http.MethodGet || first.Method == "subscriptions/listen"
	switch old := r.Header.Get("MCP-Protocol-Version") < multiRound; {
	case old && id != "":
		if in = h.room(d, id); in == nil {
			return toolcrib.Errorf(toolcrib.CodeNotFound, "session not found; initialize a new one")
		}
		if with = d.stateful; r.Method == http.MethodDelete {
			h.close(d, id, service.Cancelled("MCP client (for "+q.Who.User+")"))
		}
	case old && r.Method == http.MethodPost && first.Method == "initialize":
		if err := h.spareRoom(d); err != nil {
			return err
		}
		with = d.stateful
		out.head = func() { h.opens(d, out.Header().Get(sessionHeader)) }
		defer func() { h.settle(d, out.Header().Get(sessionHeader)) }()
	}
	defer h.notes(d, in, listens)()
	defer out.beat(ctx, pingEvery, q.Still, cancel)()
	with.ServeHTTP(out, r)
	return nil
}

const sessionHeader = "Mcp-Session-Id"

// message is what is looked at of a message before the SDK reads it.
type message struct {
	ID     *json.RawMessage
	Method string
}

// refuse answers a call that the SDK has refused before it read it, with a text of HTTP, as JSON-RPC has
// it. false = the text is about something else.
func (m message) refuse(w http.ResponseWriter, text string) bool {
	e := jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: fmt.Sprintf("method not found: %q", m.Method)}
	switch {
	case m.ID == nil:
		return false
	case strings.HasSuffix(text, strconv.Quote(m.Method)+" unsupported"):
	case strings.HasSuffix(text, `missing required "params"`):
		e.Code, e.Message = jsonrpc.CodeInvalidParams, m.Method+": params are missing"
	default:
		return false
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"jsonrpc": "2.0", "id": m.ID, "error": e}) // who asked has gone
	return true
}

// peek reads a message, or the first of several; what cannot be read is for the SDK to refuse.
func peek(body []byte) (m message) {
	if json.Unmarshal(body, &m) == nil {
		return m
	}
	var all []message
	if json.Unmarshal(body, &all) == nil && len(all) > 0 {
		return all[0]
	}
	return message{}
}

func full(text string) error {
	err := toolcrib.Errorf(toolcrib.CodeCapacityExceeded, "%s; try again later", text)
	err.RetryAfter = time.Second
	return err
}

// enter finds the desk for a request, or makes it; leave must be called.
func (h *HTTP) enter(ctx context.Context, q *Request) (d *desk, leave func(), err error) {
	s := h.Service()
	key, err := json.Marshal([]any{q.Who, q.Agent})
	if err != nil {
		return nil, nil, err
	}
	user := q.Who.User
	h.mu.Lock()
	if h.ctx.Err() != nil {
		h.mu.Unlock()
		return nil, nil, toolcrib.Errorf(toolcrib.CodeOverloaded, "the server is ending")
	}
	if h.requests[user] >= maxRequests {
		h.mu.Unlock()
		return nil, nil, full("you have as many requests under way as one user may have")
	}
	h.requests[user]++
	h.running.Add(1)
	if d = h.desks[string(key)]; d != nil && d.service == s {
		d.requests++
	} else {
		d = nil
	}
	h.mu.Unlock()
	leave = func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.requests[user]--; h.requests[user] == 0 {
			delete(h.requests, user)
		}
		if d != nil {
			d.requests--
			d.last = time.Now()
		}
		h.running.Done()
	}
	if d == nil {
		d, err = h.desk(ctx, s, string(key), q)
	}
	if err != nil {
		leave()
		return nil, nil, err
	}
	return d, leave, nil
}

// desk makes a desk, with one request.
func (h *HTTP) desk(ctx context.Context, s *service.Service, key string, q *Request) (*desk, error) {
	serving, err := s.Serve(h.ctx, q.Who, service.StartRequest{Agent: q.Agent, Workspace: q.Workspace})
	if err != nil {
		return nil, err
	}
	serving.Within(h.Pool)
	d := &desk{
		Server: New(Options{
			Serving: serving, Version: h.Version, Self: h.Self, Mask: s.Mask.Mask, Log: h.Log, ByItself: true,
		}),
		key: key, user: q.Who.User, service: s, requests: 1, rooms: map[string]*room{},
	}
	d.client = comes(h.ctx, serving)
	if err = serving.ReadBefore(ctx, time.Now().Add(-readFor)); err == nil {
		err = d.offer(ctx)
	}
	if err != nil {
		serving.Close()
		return nil, err
	}
	of := func(*http.Request) *sdk.Server { return d.sdk }
	own := &sdk.StreamableHTTPOptions{MaxRequestBodyBytes: -1, DisableLocalhostProtection: true} // the front end has both
	without, with := *own, *own
	with.EventStore = &d.kept
	d.stateful = sdk.NewStreamableHTTPHandler(of, &with)
	without.Stateless, without.PropagateRequestCancellation = true, true
	d.without = sdk.NewStreamableHTTPHandler(of, &without)

	h.mu.Lock()
	defer h.mu.Unlock()
	known := h.desks[key]
	switch {
	case known != nil && known.service == s: // another request was quicker
		known.requests++
		go h.shut(d)
		return known, nil
	case len(h.desks) >= maxDesks && !h.spare():
		go h.shut(d)
		return nil, full("as many clients are served as there can be")
	case known != nil: // what is under way there ends as it began
		known.key += rand.Text()
		h.desks[known.key] = known
	}
	h.desks[key] = d
	return d, nil
}

// spare makes room for a desk in place of the one that nobody has used for the longest; h.mu is held.
func (h *HTTP) spare() bool {
	var oldest *desk
	for _, d := range h.desks {
		if d.idle() && (oldest == nil || d.last.Before(oldest.last)) {
			oldest = d
		}
	}
	if oldest != nil {
		delete(h.desks, oldest.key)
		go h.shut(oldest)
	}
	return oldest != nil
}

// shut ends a desk, whose runs are left to be resumed.
func (h *HTTP) shut(d *desk) {
	h.mu.Lock()
	ids := make([]string, 0, len(d.rooms))
	for id := range d.rooms {
		ids = append(ids, id)
	}
	h.mu.Unlock()
	for _, id := range ids {
		h.close(d, id, errGone)
		d.forget(id)
	}
	d.end(errGone)
	d.rounds.running.Wait()
	d.Serving.Close()
}

func (h *HTTP) all() []*desk {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]*desk, 0, len(h.desks))
	for _, d := range h.desks {
		all = append(all, d)
	}
	return all
}

// room finds a session; nil if there is no such one at this desk.
func (h *HTTP) room(d *desk, id string) *room {
	h.mu.Lock()
	defer h.mu.Unlock()
	return d.rooms[id]
}

// notes notes a request to a desk, and to a session unless that is nil, until done is called.
func (h *HTTP) notes(d *desk, in *room, listens bool) (done func()) {
	count := func(n int) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if listens {
			d.listening += n
		}
		switch {
		case in == nil:
			return
		case listens:
			in.listening += n
		default:
			in.requests += n
		}
		in.last = time.Now()
	}
	count(1)
	return func() { count(-1) }
}

// spareRoom makes room for one more session of a user.
func (h *HTTP) spareRoom(d *desk) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var oldest *room
	var at *desk
	var name string
	n := 0
	for _, other := range h.desks {
		if other.user != d.user {
			continue
		}
		n += len(other.rooms)
		for id, r := range other.rooms {
			if r.requests+r.listening == 0 && (oldest == nil || r.last.Before(oldest.last)) {
				oldest, at, name = r, other, id
			}
		}
	}
	switch {
	case n < maxSessions:
		return nil
	case oldest == nil:
		return full("you have as many sessions in use as one user may have")
	}
	h.closeLocked(at, name, errGone)
	go at.forget(name)
	return nil
}

// opens notes a session that begins, before its client hears of it.
func (h *HTTP) opens(d *desk, id string) {
	if id == "" {
		return
	}
	c := comes(d.ctx, d.Serving.Another())
	h.mu.Lock()
	defer h.mu.Unlock()
	d.rooms[id] = &room{client: &c, last: time.Now()}
	d.sessions.Store(id, &c)
}

// settle forgets a session that has not begun after all, or whose client does not know of it.
func (h *HTTP) settle(d *desk, id string) {
	if id == "" {
		return
	}
	if d.session(id) == nil || h.room(d, id) == nil {
		h.close(d, id, errGone)
		d.forget(id)
	}
}

// close ends a session, and its calls with a cause. The SDK is told by others.
func (h *HTTP) close(d *desk, id string, cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closeLocked(d, id, cause)
}

func (h *HTTP) closeLocked(d *desk, id string, cause error) {
	if r := d.rooms[id]; r != nil {
		delete(d.rooms, id)
		d.sessions.Delete(id)
		r.end(cause)
	}
}

// session is a session as the SDK has it, or nil.
func (d *desk) session(id string) *sdk.ServerSession {
	for s := range d.sdk.Sessions() {
		if s.ID() == id {
			return s
		}
	}
	return nil
}

// forget has the SDK end a session.
func (d *desk) forget(id string) {
	if s := d.session(id); s != nil {
		_ = s.Close() // its client has gone
	}
}

// watch tells clients that listen of changes, and ends what nobody has used for long.
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
		for _, d := range h.all() {
			h.mu.Lock()
			listening, stale := d.listening > 0, d.service != h.Service()
			h.mu.Unlock()
			if listening {
				if err := d.offer(h.ctx); err != nil && h.ctx.Err() == nil {
					h.Log.WarnContext(h.ctx, "the offer of tools", "error", d.Mask(err.Error()))
				}
			}
			if due || stale {
				h.sweep(d, stale)
			}
		}
	}
}

// sweep ends the sessions of a desk that were idle for long, and the desk itself.
// Under another configuration those go that are not in the middle of something.
func (h *HTTP) sweep(d *desk, stale bool) {
	h.mu.Lock()
	for id, r := range d.rooms {
		if r.requests == 0 && (stale || r.listening == 0 && time.Since(r.last) > sessionIdle) {
			h.closeLocked(d, id, errGone)
			go d.forget(id)
		}
	}
	over := d.idle() && (stale || time.Since(d.last) > deskIdle)
	if over {
		delete(h.desks, d.key)
	}
	h.mu.Unlock()
	if over {
		h.shut(d)
	}
}
