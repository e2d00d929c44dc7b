// Package slacktest is a server of Slack's Web API and socket mode for tests. It refuses unknown methods and fields and
// wrong tokens, and delivers an envelope again, to the next connection too, until it is acknowledged.
package slacktest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// The tokens of the bot and of the app.
const (
	Bot = "xoxb-1-test"
	App = "xapp-1-test"
)

// Sent is a message that the bot has sent.
type Sent struct {
	TS, Channel, Thread, Text string
	Buttons                   map[string]string // values by their labels
}

// Server is a server.
type Server struct {
	*httptest.Server
	mu       sync.Mutex
	pending  []map[string]any // envelopes that are not acknowledged
	came     chan struct{}
	replace  chan struct{} // closed when connections are to be made again
	last     int
	sent     []Sent
	busy     int
	problems []string
}

// New starts a server.
func New() *Server {
	s := &Server{came: make(chan struct{}), replace: make(chan struct{})}
	s.Server = httptest.NewServer(s)
	return s
}

// Address returns the address of the app, as a channel has it.
func (s *Server) Address() string { return strings.Replace(s.URL, "://", "://"+Bot+":"+App+"@", 1) }

// Event has Slack deliver an event.
func (s *Server) Event(event map[string]any) {
	s.deliver("events_api", map[string]any{"type": "event_callback", "event": event})
}

// Press has a user press a button.
func (s *Server) Press(user string, of Sent, value string) {
	s.deliver("interactive", map[string]any{
		"type": "block_actions", "user": map[string]any{"id": user, "name": "any"},
		"channel": map[string]any{"id": of.Channel},
		"message": map[string]any{"ts": of.TS, "thread_ts": of.Thread},
		"actions": []any{map[string]any{"value": value, "action_ts": fmt.Sprint(time.Now().UnixNano())}},
	})
}

func (s *Server) deliver(kind string, payload any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	s.pending = append(s.pending, map[string]any{
		"type": kind, "envelope_id": fmt.Sprint("e", s.last), "payload": payload, "accepts_response_payload": false,
	})
	close(s.came)
	s.came = make(chan struct{})
}

// Reconnect has Slack ask all connections to be made again.
func (s *Server) Reconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.replace)
	s.replace = make(chan struct{})
}

// Limit refuses the next n messages by the rate limit.
func (s *Server) Limit(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = n
}

// Waiting returns the number of envelopes that are not acknowledged.
func (s *Server) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pending)
}

// Sent returns what the bot has sent.
func (s *Server) Sent() []Sent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sent)
}

// Problems returns the requests that the API does not allow.
func (s *Server) Problems() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.problems)
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/socket" {
		s.socket(w, r)
		return
	}
	body, _ := io.ReadAll(r.Body) // an incomplete body is not JSON
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	method := strings.TrimPrefix(r.URL.Path, "/api/")
	answer, wrong := map[string]any{"ok": true}, ""
	switch {
	case method == "apps.connections.open" && token == App:
		answer["url"] = strings.Replace(s.URL, "http", "ws", 1) + "/socket"
	case method == "auth.test" && token == Bot:
		answer["user"], answer["team"] = "crib", "Test"
	case method == "chat.postMessage" && token == Bot:
		if s.limited() {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		answer["ts"], wrong = s.post(body)
	case token != App && token != Bot:
		answer = map[string]any{"ok": false, "error": "invalid_auth"}
	default:
		wrong = "unknown_method"
	}
	if wrong != "" {
		s.mu.Lock()
		s.problems = append(s.problems, method+": "+wrong+": "+string(body))
		s.mu.Unlock()
		answer = map[string]any{"ok": false, "error": wrong}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // the client may have gone
}

func (s *Server) limited() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy--
	return s.busy >= 0
}

// post checks and keeps a message.
func (s *Server) post(body []byte) (ts, wrong string) {
	type plain struct{ Type, Text string }
	var q struct {
		Channel     string `json:"channel"`
		Thread      string `json:"thread_ts"`
		Text        string `json:"text"`
		Markdown    bool   `json:"mrkdwn"`
		UnfurlLinks bool   `json:"unfurl_links"`
		UnfurlMedia bool   `json:"unfurl_media"`
		Blocks      []struct {
			Type     string
			Text     *plain
			Elements []struct {
				Type     string
				ActionID string `json:"action_id"`
				Text     plain
				Value    string
			}
		} `json:"blocks"`
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&q); err != nil {
		return "", "invalid_arguments"
	}
	switch {
	case !strings.HasPrefix(q.Channel, "C"):
		return "", "channel_not_found"
	case q.Text == "":
		return "", "no_text"
	case q.UnfurlLinks || q.UnfurlMedia || q.Markdown:
		return "", "this test wants plain text"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	one := Sent{
		TS: fmt.Sprintf("9.%06d", s.last), Channel: q.Channel, Thread: q.Thread, Text: q.Text, Buttons: map[string]string{},
	}
	for _, b := range q.Blocks {
		if b.Type == "section" && (b.Text == nil || b.Text.Type != "plain_text" || len([]rune(b.Text.Text)) > 3000) {
			return "", "invalid_blocks"
		}
		for _, e := range b.Elements {
			if e.Type != "button" || e.Text.Type != "plain_text" || e.ActionID == "" || len(e.Value) > 2000 {
				return "", "invalid_blocks"
			}
			one.Buttons[e.Text.Text] = e.Value
		}
	}
	s.sent = append(s.sent, one)
	return one.TS, ""
}

// socket delivers envelopes, each again on the next connection until it is acknowledged.
func (s *Server) socket(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer func() { _ = c.CloseNow() }() // the end of the connection is all that matters
	ctx, end := context.WithCancel(r.Context())
	defer end()
	write := func(v any) bool {
		data, _ := json.Marshal(v) // maps of texts
		return c.Write(ctx, websocket.MessageText, data) == nil
	}
	if !write(map[string]any{"type": "hello"}) {
		return
	}
	go func() { // it ends with the connection
		defer end()
		for {
			_, data, err := c.Read(ctx)
			var ack map[string]string
			if err != nil || json.Unmarshal(data, &ack) != nil {
				return
			}
			s.mu.Lock()
			before := len(s.pending)
			s.pending = slices.DeleteFunc(s.pending, func(e map[string]any) bool {
				return e["envelope_id"] == ack["envelope_id"]
			})
			if len(s.pending) == before || len(ack) != 1 {
				s.problems = append(s.problems, "not an acknowledgement: "+string(data))
			}
			s.mu.Unlock()
		}
	}()
	given := map[any]bool{}
	for {
		s.mu.Lock()
		came, replace, some := s.came, s.replace, slices.Clone(s.pending)
		s.mu.Unlock()
		for _, e := range some {
			if !given[e["envelope_id"]] && !write(e) {
				return
			}
			given[e["envelope_id"]] = true
		}
		select {
		case <-came:
		case <-replace:
			write(map[string]any{"type": "disconnect", "reason": "refresh_requested"})
			return
		case <-ctx.Done():
			return
		}
	}
}
