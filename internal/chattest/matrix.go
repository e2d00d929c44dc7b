package chattest

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The account and its token.
const (
	MatrixToken = "syt_test_token"
	MatrixUser  = "@bot:example.org"
)

// Matrix is a homeserver: the endpoints of the client-server API (v3) that an account needs to read and write in rooms.
type Matrix struct {
	base
	events       []Event
	transactions map[string]string // IDs of events
}

// Event is an event of a room.
type Event struct {
	Type    string         `json:"type"`
	ID      string         `json:"event_id"`
	Sender  string         `json:"sender"`
	Time    int64          `json:"origin_server_ts"`
	Content map[string]any `json:"content"`
	Room    string         `json:"-"`
}

// NewMatrix starts a server. The account is in each room that is written to.
func NewMatrix(t testing.TB) *Matrix {
	s := &Matrix{transactions: map[string]string{}}
	s.open(t, ":"+MatrixToken, s)
	return s
}

// Write implements [Chat]. The API does not show what is forwarded.
func (s *Matrix) Write(from Person, m Message) string {
	content, relates := map[string]any{"msgtype": "m.text", "body": m.Text}, map[string]any{}
	if m.File != "" {
		content = map[string]any{
			"msgtype": "m.file", "body": m.Text, "filename": m.File, "info": map[string]any{"mimetype": "application/pdf"},
		}
	}
	if m.Thread != "" {
		s.mu.Lock()
		s.known[m.Chat+" "+m.Thread] = true
		s.mu.Unlock()
		relates = map[string]any{
			"rel_type": "m.thread", "event_id": m.Thread, "is_falling_back": true,
			"m.in_reply_to": map[string]any{"event_id": m.Thread},
		}
	}
	if m.ReplyTo != "" {
		relates["m.in_reply_to"] = map[string]any{"event_id": m.ReplyTo}
		delete(relates, "is_falling_back")
	}
	if m.Edits != "" {
		relates = map[string]any{"rel_type": "m.replace", "event_id": m.Edits}
		content["m.new_content"] = map[string]any{"msgtype": "m.text", "body": m.Text}
	}
	if len(relates) > 0 {
		content["m.relates_to"] = relates
	}
	return s.Event(m.Chat, from.ID, content)
}

// Press implements [Chat]: the token is written.
func (s *Matrix) Press(from Person, of Sent, token string) {
	s.Write(from, Message{Chat: of.Chat, Thread: of.Thread, Text: token})
}

// Event has somebody send an event to a room.
func (s *Matrix) Event(room, sender string, content map[string]any) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.add(room, sender, content)
}

func (s *Matrix) add(room, sender string, content map[string]any) string {
	id := fmt.Sprint("$", len(s.events)+1)
	s.events = append(s.events, Event{"m.room.message", id, sender, time.Now().UnixMilli(), content, room})
	s.known[room], s.known[room+" "+id] = true, true
	s.arrived()
	return id
}

// Events returns the events that the account has sent.
func (s *Matrix) Events() (sent []Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		if e.Sender == MatrixUser {
			sent = append(sent, e)
		}
	}
	return sent
}

// refused is an answer that refuses a request.
func refused(status int, code, text string) answer {
	v := map[string]any{"errcode": code, "error": text}
	a := answer{status: status, body: v}
	switch status {
	case http.StatusTooManyRequests:
		v["retry_after_ms"] = 20
	case http.StatusUnauthorized:
	default:
		a.wrong = code + ": " + text
	}
	return a
}

// ServeHTTP implements [http.Handler].
func (s *Matrix) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/_matrix/client/v3")
	query := func(names ...string) bool {
		for name := range r.URL.Query() {
			if !slices.Contains(names, name) {
				return false
			}
		}
		return true
	}
	room, method := "", path
	if rest, ok := strings.CutPrefix(path, "/rooms/"); ok {
		room, method, _ = strings.Cut(rest, "/")
	}
	transaction, sends := strings.CutPrefix(method, "send/m.room.message/")
	if sends {
		method = "send"
	}
	s.serve(w, r, method, func(body []byte) answer {
		s.mu.Lock()
		defer s.mu.Unlock()
		get := r.Method == http.MethodGet
		switch {
		case r.Header.Get("Authorization") != "Bearer "+MatrixToken:
			return refused(401, "M_UNKNOWN_TOKEN", "")
		case room != "" && !s.known[room]:
			return refused(403, "M_FORBIDDEN", "not in the room "+room)
		case method == "/account/whoami" && get && query():
			return answer{body: map[string]any{"user_id": MatrixUser}}
		case method == "/sync" && get && query("since", "timeout", "filter"):
			return s.sync(r)
		case method == "messages" && get && query("dir", "from", "to", "limit", "filter"):
			return s.messages(r, room)
		case sends && r.Method == http.MethodPut && query():
			return s.send(room, transaction, body)
		}
		return refused(404, "M_UNRECOGNIZED", r.Method+" "+r.URL.String())
	})
}

const (
	// perSync is how many events of a room a sync has; older ones are left out, as "limited" says.
	perSync = 3
	// perPage is how many events a page is made from; those of other rooms are not in it, so it can be empty.
	perPage = 10
)

// sync answers with the events after since, which is their number, and waits for them.
func (s *Matrix) sync(r *http.Request) answer {
	q := r.URL.Query()
	since, _ := strconv.Atoi(strings.TrimPrefix(q.Get("since"), "s")) // "" is 0
	wait, err := strconv.Atoi(q.Get("timeout"))
	if err != nil || !strings.Contains(q.Get("filter"), `"m.room.message"`) || since > len(s.events) {
		return refused(400, "M_BAD_JSON", r.URL.String())
	}
	if q.Has("since") { // else it only learns where it begins
		s.reads(1)
		defer s.reads(-1)
	}
	end := time.NewTimer(time.Duration(wait) * time.Millisecond)
	defer end.Stop()
	for waits := true; waits && len(s.events) == since; {
		came := s.came
		s.mu.Unlock()
		select {
		case <-came:
		case <-end.C:
			waits = false
		case <-r.Context().Done():
			waits = false
		}
		s.mu.Lock()
	}
	rooms := map[string]any{}
	for _, e := range s.events[since:] {
		some, at := []Event{}, []int{}
		for i, other := range s.events[since:] {
			if other.Room == e.Room {
				some, at = append(some, other), append(at, since+i)
			}
		}
		from := max(0, len(some)-perSync)
		rooms[e.Room] = map[string]any{"timeline": map[string]any{
			"events": some[from:], "limited": from > 0, "prev_batch": fmt.Sprint("s", at[from]),
		}}
	}
	next := fmt.Sprint("s", len(s.events))
	return answer{body: map[string]any{"next_batch": next, "rooms": map[string]any{"join": rooms}}}
}

// messages answers with the events of a room before from, newest first, not before to.
func (s *Matrix) messages(r *http.Request, room string) answer {
	q := r.URL.Query()
	from, err := strconv.Atoi(strings.TrimPrefix(q.Get("from"), "s"))
	to, failed := strconv.Atoi(strings.TrimPrefix(q.Get("to"), "s"))
	if err != nil || failed != nil || q.Get("dir") != "b" || from > len(s.events) {
		return refused(400, "M_INVALID_PARAM", r.URL.String())
	}
	low, chunk := max(to, from-perPage), []Event{}
	for _, e := range slices.Backward(s.events[low:from]) {
		if e.Room == room {
			chunk = append(chunk, e)
		}
	}
	page := map[string]any{"chunk": chunk, "start": q.Get("from")}
	if low > to {
		page["end"] = fmt.Sprint("s", low)
	}
	return answer{body: page}
}

func (s *Matrix) send(room, transaction string, body []byte) answer {
	if s.limited() {
		return refused(429, "M_LIMIT_EXCEEDED", "Too Many Requests")
	}
	if id := s.transactions[transaction]; id != "" {
		return answer{body: map[string]any{"event_id": id}}
	}
	type related struct {
		ID string `json:"event_id"`
	}
	var q struct {
		Type     string    `json:"msgtype"`
		Body     string    `json:"body"`
		Mentions *struct{} `json:"m.mentions"`
		Relates  struct {
			Type        string  `json:"rel_type"`
			ID          string  `json:"event_id"`
			FallingBack bool    `json:"is_falling_back"`
			InReplyTo   related `json:"m.in_reply_to"`
		} `json:"m.relates_to"`
	}
	err := read(body, &q)
	in := func(id string) bool { return id == "" || s.known[room+" "+id] }
	if err != nil || q.Type != "m.notice" || q.Body == "" || len(body) > 60_000 || q.Mentions == nil ||
		!in(q.Relates.ID) || !in(q.Relates.InReplyTo.ID) || (q.Relates.Type == "m.thread") != (q.Relates.ID != "") {
		return refused(400, "M_BAD_JSON", string(body))
	}
	content := map[string]any{"body": q.Body, "relates": q.Relates}
	id := s.add(room, MatrixUser, content)
	s.transactions[transaction] = id
	one := Sent{ID: id, Chat: room, Thread: q.Relates.ID, ReplyTo: q.Relates.InReplyTo.ID, Text: q.Body}
	if one.ReplyTo == one.Thread {
		one.ReplyTo = ""
	}
	s.keep(one)
	return answer{body: map[string]any{"event_id": id}}
}
