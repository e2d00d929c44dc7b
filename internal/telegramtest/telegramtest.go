// Package telegramtest is a server of the Telegram Bot API for tests. It refuses what the documented API refuses:
// unknown methods and fields, missing parameters, texts and buttons that are too long, two readers at once.
package telegramtest

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
	"unicode/utf16"
	"unicode/utf8"
)

// Token is the token of the bot.
const Token = "123456:AAtest-token_of_the_bot"

// Sent is a message that the bot has sent, or an answer to a press (Press).
type Sent struct {
	ID, Chat, Thread, ReplyTo int64
	Text, Press               string
	Buttons                   map[string]string // tokens by their labels
}

// Server is a server.
type Server struct {
	*httptest.Server
	// Cut reports whether a request is cut off, before (done is false) or after it has taken effect. It may be nil.
	Cut func(method string, done bool) bool

	mu       sync.Mutex
	chats    map[int64]bool
	updates  []map[string]any
	last     int64 // ID of the last update or message
	sent     []Sent
	presses  map[string]bool // that are not answered
	busy     int             // sends that are refused by the rate limit
	came     chan struct{}   // closed when there is an update
	reader   func()          // ends the request that reads updates
	problems []string
}

// New starts a server.
func New() *Server {
	s := &Server{chats: map[int64]bool{}, presses: map[string]bool{}, came: make(chan struct{})}
	s.Server = httptest.NewServer(s)
	return s
}

// Address returns the address of the bot, as a channel has it.
func (s *Server) Address() string { return strings.Replace(s.URL, "://", "://"+Token+"@", 1) }

// Person is a user as others see them.
type Person struct {
	ID   int64
	Name string
}

// Write has a person write to the bot. more are further fields of the message.
func (s *Server) Write(chat int64, from Person, text string, more map[string]any) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.chats[chat] = true
	s.last++
	m := map[string]any{
		"message_id": s.last, "date": time.Now().Unix(), "chat": map[string]any{"id": chat, "type": "private"},
		"from": user(from), "text": text,
	}
	for key, value := range more {
		m[key] = value
	}
	id := s.last
	s.add("message", m)
	return id
}

func user(p Person) map[string]any {
	return map[string]any{"id": p.ID, "is_bot": false, "first_name": p.Name}
}

// Press has a person press a button of a message, or send a token that no button has.
func (s *Server) Press(from Person, message Sent, token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	id := fmt.Sprint("q", s.last)
	s.presses[id] = true
	m := map[string]any{
		"message_id": message.ID, "date": time.Now().Unix(), "chat": map[string]any{"id": message.Chat, "type": "private"},
		"from": map[string]any{"id": 123456, "is_bot": true, "first_name": "bot"}, "text": message.Text,
	}
	s.add("callback_query", map[string]any{
		"id": id, "from": user(from), "message": m, "chat_instance": "1", "data": token,
	})
}

func (s *Server) add(kind string, value any) {
	s.last++
	s.updates = append(s.updates, map[string]any{"update_id": s.last, kind: value})
	close(s.came)
	s.came = make(chan struct{})
}

// Limit refuses the next n messages by the rate limit.
func (s *Server) Limit(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = n
}

// Sent returns what the bot has sent.
func (s *Server) Sent() []Sent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sent)
}

// Waiting returns the number of updates that are not acknowledged.
func (s *Server) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.updates)
}

// Problems returns the requests that the API does not allow.
func (s *Server) Problems() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.problems)
}

// failure is an error of the API.
type failure struct {
	code  int
	text  string
	after int
}

func bad(format string, args ...any) *failure {
	return &failure{code: 400, text: "Bad Request: " + fmt.Sprintf(format, args...)}
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token, method, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/bot"), "/")
	if s.Cut != nil && s.Cut(method, false) {
		panic(http.ErrAbortHandler)
	}
	body, _ := io.ReadAll(r.Body) // an incomplete body is not JSON
	var result any
	var failed *failure
	methods := map[string]func(context.Context, []byte) (any, *failure){
		"getMe": s.getMe, "getUpdates": s.getUpdates, "sendMessage": s.sendMessage, "answerCallbackQuery": s.answerPress,
	}
	switch do := methods[method]; {
	case token != Token:
		failed = &failure{code: 401, text: "Unauthorized"}
	case do == nil:
		failed = &failure{code: 404, text: "Not Found: method not found"}
	case r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json":
		failed = bad("this test takes POST and JSON only")
	default:
		result, failed = do(r.Context(), body)
	}
	if s.Cut != nil && s.Cut(method, true) {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	answer := map[string]any{"ok": true, "result": result}
	if failed != nil {
		if failed.code == 400 || failed.code == 404 {
			s.mu.Lock()
			s.problems = append(s.problems, method+": "+failed.text+": "+string(body))
			s.mu.Unlock()
		}
		answer = map[string]any{"ok": false, "error_code": failed.code, "description": failed.text}
		if failed.after > 0 {
			answer["parameters"] = map[string]any{"retry_after": failed.after}
		}
		w.WriteHeader(failed.code)
	}
	_ = json.NewEncoder(w).Encode(answer) // the client may have gone
}

// read decodes a body that has no unknown fields.
func read(body []byte, into any) *failure {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return bad("%v", err)
	}
	return nil
}

func (s *Server) getMe(context.Context, []byte) (any, *failure) {
	return map[string]any{"id": 123456, "is_bot": true, "first_name": "Test", "username": "test_bot"}, nil
}

func (s *Server) getUpdates(ctx context.Context, body []byte) (any, *failure) {
	var q struct {
		Offset  int64    `json:"offset"`
		Limit   int      `json:"limit"`
		Timeout int      `json:"timeout"`
		Allowed []string `json:"allowed_updates"`
	}
	if failed := read(body, &q); failed != nil {
		return nil, failed
	}
	if q.Limit < 1 || q.Limit > 100 {
		return nil, bad("limit must be 1 to 100")
	}
	ctx, end := context.WithTimeout(ctx, time.Duration(q.Timeout)*time.Second)
	defer end()
	s.mu.Lock()
	if s.reader != nil {
		s.reader()
	}
	taken := false
	s.reader = func() { taken = true; end() }
	s.updates = slices.DeleteFunc(s.updates, func(u map[string]any) bool { return u["update_id"].(int64) < q.Offset })
	for len(s.updates) == 0 && ctx.Err() == nil {
		came := s.came
		s.mu.Unlock()
		select {
		case <-came:
		case <-ctx.Done():
		}
		s.mu.Lock()
	}
	defer s.mu.Unlock()
	if taken {
		return nil, &failure{code: 409, text: "Conflict: terminated by other getUpdates request"}
	}
	s.reader = nil
	return slices.Clone(s.updates[:min(len(s.updates), q.Limit)]), nil
}

func (s *Server) sendMessage(_ context.Context, body []byte) (any, *failure) {
	var q struct {
		Chat    int64  `json:"chat_id"`
		Thread  int64  `json:"message_thread_id"`
		Text    string `json:"text"`
		Preview struct {
			Off bool `json:"is_disabled"`
		} `json:"link_preview_options"`
		Reply *struct {
			ID        int64 `json:"message_id"`
			OrWithout bool  `json:"allow_sending_without_reply"`
		} `json:"reply_parameters"`
		Markup *struct {
			Keyboard [][]struct {
				Text string `json:"text"`
				Data string `json:"callback_data"`
			} `json:"inline_keyboard"`
		} `json:"reply_markup"`
	}
	if failed := read(body, &q); failed != nil {
		return nil, failed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch n := len(utf16.Encode([]rune(q.Text))); {
	case s.busy > 0:
		s.busy--
		return nil, &failure{code: 429, text: "Too Many Requests: retry after 1", after: 1}
	case !s.chats[q.Chat]:
		return nil, bad("chat not found")
	case strings.TrimSpace(q.Text) == "":
		return nil, bad("message text is empty")
	case n > 4096:
		return nil, bad("message is too long")
	case !q.Preview.Off:
		return nil, bad("this test wants no previews of links")
	}
	s.last++
	sent := Sent{ID: s.last, Chat: q.Chat, Thread: q.Thread, Text: q.Text, Buttons: map[string]string{}}
	if q.Reply != nil {
		sent.ReplyTo = q.Reply.ID
	}
	if q.Markup != nil {
		for _, b := range slices.Concat(q.Markup.Keyboard...) {
			if len(b.Data) < 1 || len(b.Data) > 64 {
				return nil, bad("BUTTON_DATA_INVALID")
			}
			sent.Buttons[b.Text] = b.Data
		}
	}
	s.sent = append(s.sent, sent)
	return map[string]any{
		"message_id": sent.ID, "date": time.Now().Unix(), "chat": map[string]any{"id": q.Chat}, "text": q.Text,
	}, nil
}

func (s *Server) answerPress(_ context.Context, body []byte) (any, *failure) {
	var q struct {
		ID    string `json:"callback_query_id"`
		Text  string `json:"text"`
		Alert bool   `json:"show_alert"`
	}
	if failed := read(body, &q); failed != nil {
		return nil, failed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.presses[q.ID] {
		return nil, bad("query is too old and response timeout expired or query ID is invalid")
	}
	if utf8.RuneCountInString(q.Text) > 200 {
		return nil, bad("MESSAGE_TOO_LONG")
	}
	delete(s.presses, q.ID)
	s.sent = append(s.sent, Sent{Press: q.ID, Text: q.Text})
	return true, nil
}
