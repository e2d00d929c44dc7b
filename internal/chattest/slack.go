package chattest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"
)

// The tokens of the bot and of the app.
const (
	SlackBot = "xoxb-1-test"
	SlackApp = "xapp-1-test"
)

// Slack is a server of the Web API and of socket mode. It delivers an envelope again, to the next connection too, until
// it is acknowledged.
type Slack struct {
	base
	pending []map[string]any // envelopes that are not acknowledged
	replace chan struct{}    // closed when connections are to be made again
}

// NewSlack starts a server. The IDs of chats begin with C, those of people with U; a thread has the ID of its first
// message.
func NewSlack(t testing.TB) *Slack {
	s := &Slack{replace: make(chan struct{})}
	s.open(t, SlackBot+":"+SlackApp, s)
	return s
}

func (s *Slack) ts() string { return fmt.Sprintf("1700000000.%06d", s.next()) }

// Write implements [Chat]. A message to a new thread has the thread as its first message.
func (s *Slack) Write(from Person, m Message) string {
	s.mu.Lock()
	ts := s.ts()
	s.known[m.Chat], s.known[m.Chat+" "+ts] = true, true
	v := map[string]any{"type": "message", "channel": m.Chat, "user": from.ID, "text": escape(m.Text), "ts": ts}
	if m.ReplyTo != "" && m.Thread == "" {
		m.Thread = m.ReplyTo // to answer a message is to write to its thread
	}
	if m.Thread != "" {
		s.known[m.Chat+" "+m.Thread] = true
		v["thread_ts"] = m.Thread
	}
	if m.Forwarded {
		v["text"] = ""
		v["attachments"] = []any{map[string]any{"is_share": true, "text": escape(m.Text), "author_id": "U9"}}
	}
	if m.File != "" {
		v["subtype"] = "file_share"
		v["files"] = []any{map[string]any{"name": m.File, "mimetype": "application/pdf"}}
	}
	if m.Edits != "" {
		v["ts"] = m.Edits
		v = map[string]any{"type": "message", "subtype": "message_changed", "channel": m.Chat, "ts": ts, "message": v}
	}
	s.mu.Unlock()
	s.Event(v)
	return ts
}

func escape(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text)
}

// Event has Slack deliver an event.
func (s *Slack) Event(event map[string]any) {
	s.deliver("events_api", map[string]any{"type": "event_callback", "event": event})
}

// Press implements [Chat].
func (s *Slack) Press(from Person, of Sent, token string) {
	s.mu.Lock()
	at := s.ts()
	s.mu.Unlock()
	s.deliver("interactive", map[string]any{
		"type": "block_actions", "user": map[string]any{"id": from.ID, "name": from.Name},
		"channel": map[string]any{"id": of.Chat},
		"message": map[string]any{"ts": of.ID, "thread_ts": of.Thread},
		"actions": []any{map[string]any{"value": token, "action_ts": at}},
	})
}

func (s *Slack) deliver(kind string, payload any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = append(s.pending, map[string]any{
		"type": kind, "envelope_id": fmt.Sprint("e", s.next()), "payload": payload, "accepts_response_payload": false,
	})
	s.arrived()
}

// Reconnect has Slack ask all connections to be made again.
func (s *Slack) Reconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.replace)
	s.replace = make(chan struct{})
}

// Waiting returns the number of envelopes that are not acknowledged.
func (s *Slack) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pending)
}

// ServeHTTP implements [http.Handler].
func (s *Slack) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/socket" {
		s.socket(w, r)
		return
	}
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	method := strings.TrimPrefix(r.URL.Path, "/api/")
	s.serve(w, r, method, func(body []byte) answer {
		ok := map[string]any{"ok": true}
		a := answer{body: ok}
		switch {
		case method == "apps.connections.open" && token == SlackApp:
			ok["url"] = strings.Replace(s.URL, "http", "ws", 1) + "/socket"
		case method == "auth.test" && token == SlackBot:
			ok["user"], ok["team"] = "crib", "Test"
		case method == "chat.postMessage" && token == SlackBot:
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.limited() {
				return answer{status: http.StatusTooManyRequests, after: 1}
			}
			ok["ts"], a.wrong = s.postMessage(body)
		case token != SlackApp && token != SlackBot:
			a.body = map[string]any{"ok": false, "error": "invalid_auth"}
		default:
			a.wrong = "unknown_method"
		}
		if a.wrong != "" {
			a.body = map[string]any{"ok": false, "error": a.wrong}
		}
		return a
	})
}

// postMessage checks and keeps a message. The server is locked.
func (s *Slack) postMessage(body []byte) (ts, wrong string) {
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
	switch err := read(body, &q); {
	case err != nil:
		return "", "invalid_arguments"
	case !s.known[q.Channel]:
		return "", "channel_not_found"
	case q.Thread != "" && !s.known[q.Channel+" "+q.Thread]:
		return "", "thread_not_found"
	case q.Text == "":
		return "", "no_text"
	case q.UnfurlLinks || q.UnfurlMedia || q.Markdown:
		return "", "this test wants plain text"
	}
	text := strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&").Replace(q.Text)
	if escape(text) != q.Text {
		return "", "this test wants text without mentions and links"
	}
	one := Sent{ID: s.ts(), Chat: q.Channel, Thread: q.Thread, Text: text, Buttons: map[string]string{}}
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
	s.keep(one)
	return one.ID, ""
}

// socket delivers envelopes, each again on the next connection until it is acknowledged.
func (s *Slack) socket(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer func() { _ = c.CloseNow() }() // the end of the connection is all that matters
	ctx, end := context.WithCancel(r.Context())
	defer end()
	s.mu.Lock()
	s.reads(1)
	s.mu.Unlock()
	defer func() { s.mu.Lock(); s.reads(-1); s.mu.Unlock() }()
	write := func(v any) bool {
		data, _ := json.Marshal(v) // maps of texts
		return c.Write(ctx, websocket.MessageText, data) == nil
	}
	if !write(map[string]any{"type": "hello"}) {
		return
	}
	go func() { // it ends with the connection
		defer end()
		for s.acknowledged(ctx, c) {
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

// acknowledged reads an acknowledgement. It reports whether there can be another one.
func (s *Slack) acknowledged(ctx context.Context, c *websocket.Conn) bool {
	_, data, err := c.Read(ctx)
	var ack map[string]string
	if err != nil || json.Unmarshal(data, &ack) != nil || s.cuts("acknowledge", false) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.pending)
	s.pending = slices.DeleteFunc(s.pending, func(e map[string]any) bool { return e["envelope_id"] == ack["envelope_id"] })
	if len(s.pending) == before || len(ack) != 1 {
		s.problems = append(s.problems, "not an acknowledgement: "+string(data))
	}
	return true
}
