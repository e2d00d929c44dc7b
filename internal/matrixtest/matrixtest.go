// Package matrixtest is a homeserver of Matrix for tests: the few endpoints of the client-server API (v3) that an
// account needs to read and write in rooms. It refuses unknown parameters, tokens and rooms, and recognizes
// transactions.
package matrixtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The account, its token and its room.
const (
	Token = "syt_test_token"
	User  = "@bot:example.org"
	Room  = "!room:example.org"
)

// Event is an event of the room.
type Event struct {
	Type    string         `json:"type"`
	ID      string         `json:"event_id"`
	Sender  string         `json:"sender"`
	Time    int64          `json:"origin_server_ts"`
	Content map[string]any `json:"content"`
}

// Server is a homeserver.
type Server struct {
	*httptest.Server
	mu       sync.Mutex
	events   []Event
	known    map[string]string // IDs of events by their transactions
	busy     int
	problems []string
}

// New starts a server.
func New() *Server {
	s := &Server{known: map[string]string{}}
	s.Server = httptest.NewServer(s)
	return s
}

// Address returns the address of the account, as a channel has it.
func (s *Server) Address() string { return strings.Replace(s.URL, "://", "://:"+Token+"@", 1) }

// Write has a person write to the room.
func (s *Server) Write(sender string, content map[string]any) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.add(sender, content)
}

func (s *Server) add(sender string, content map[string]any) string {
	id := fmt.Sprint("$", len(s.events)+1)
	s.events = append(s.events, Event{"m.room.message", id, sender, time.Now().UnixMilli(), content})
	return id
}

// Limit refuses the next n messages by the rate limit.
func (s *Server) Limit(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = n
}

// Sent returns the events that the account has sent.
func (s *Server) Sent() (sent []Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		if e.Sender == User {
			sent = append(sent, e)
		}
	}
	return sent
}

// Problems returns the requests that the API does not allow.
func (s *Server) Problems() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.problems)
}

// perSync is how many events a sync has; older ones are left out, as "limited" says.
const perSync = 3

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // an incomplete body is not JSON
	s.mu.Lock()
	defer s.mu.Unlock()
	path := strings.TrimPrefix(r.URL.Path, "/_matrix/client/v3")
	send, sends := strings.CutPrefix(path, "/rooms/"+Room+"/send/m.room.message/")
	query := func(names ...string) bool {
		for name := range r.URL.Query() {
			if !slices.Contains(names, name) {
				return false
			}
		}
		return true
	}
	switch {
	case r.Header.Get("Authorization") != "Bearer "+Token:
		s.fail(w, 401, "M_UNKNOWN_TOKEN", "")
	case path == "/account/whoami" && r.Method == http.MethodGet && query():
		answer(w, map[string]any{"user_id": User})
	case path == "/sync" && r.Method == http.MethodGet && query("since", "timeout", "filter"):
		s.sync(w, r)
	case path == "/rooms/"+Room+"/messages" && r.Method == http.MethodGet && query("dir", "from", "to", "limit", "filter"):
		s.messages(w, r)
	case sends && r.Method == http.MethodPut && query():
		s.send(w, send, body)
	default:
		s.fail(w, 404, "M_UNRECOGNIZED", r.Method+" "+r.URL.String())
	}
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client may have gone
}

func (s *Server) fail(w http.ResponseWriter, status int, code, text string) {
	if status != 429 && status != 401 {
		s.problems = append(s.problems, code+": "+text)
	}
	v := map[string]any{"errcode": code, "error": text}
	if status == 429 {
		v["retry_after_ms"] = 20
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // as above
}

// sync answers with the events after since, which is their number. It does not wait.
func (s *Server) sync(w http.ResponseWriter, r *http.Request) {
	since, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Query().Get("since"), "s"))
	if !json.Valid([]byte(r.URL.Query().Get("filter"))) {
		s.fail(w, 400, "M_BAD_JSON", "filter")
		return
	}
	some := s.events[since:]
	from := max(0, len(some)-perSync)
	timeline := map[string]any{
		"events": some[from:], "limited": from > 0, "prev_batch": fmt.Sprint("s", since+from),
	}
	answer(w, map[string]any{
		"next_batch": fmt.Sprint("s", len(s.events)), "rooms": map[string]any{"join": map[string]any{
			Room: map[string]any{"timeline": timeline},
		}},
	})
}

// messages answers with the events before from, newest first, not before to.
func (s *Server) messages(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	from, err := strconv.Atoi(strings.TrimPrefix(q.Get("from"), "s"))
	to, failed := strconv.Atoi(strings.TrimPrefix(q.Get("to"), "s"))
	if err != nil || failed != nil || q.Get("dir") != "b" || from > len(s.events) {
		s.fail(w, 400, "M_INVALID_PARAM", r.URL.String())
		return
	}
	low := max(to, from-2)
	chunk := slices.Clone(s.events[low:from])
	slices.Reverse(chunk)
	page := map[string]any{"chunk": chunk, "start": q.Get("from")}
	if low > to {
		page["end"] = fmt.Sprint("s", low)
	}
	answer(w, page)
}

func (s *Server) send(w http.ResponseWriter, transaction string, body []byte) {
	if s.busy > 0 {
		s.busy--
		s.fail(w, 429, "M_LIMIT_EXCEEDED", "Too Many Requests")
		return
	}
	if id := s.known[transaction]; id != "" {
		answer(w, map[string]any{"event_id": id})
		return
	}
	var content map[string]any
	d := json.NewDecoder(bytes.NewReader(body))
	if err := d.Decode(&content); err != nil || content["msgtype"] != "m.notice" || content["body"] == "" ||
		len(body) > 60_000 || content["m.mentions"] == nil {
		s.fail(w, 400, "M_BAD_JSON", string(body))
		return
	}
	s.known[transaction] = s.add(User, content)
	answer(w, map[string]any{"event_id": s.known[transaction]})
}
