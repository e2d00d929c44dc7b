package chattest

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// TelegramToken is the token of the bot.
const TelegramToken = "123456:AAtest-token_of_the_bot"

// Telegram is a server of the Bot API.
type Telegram struct {
	base
	updates []map[string]any
	presses map[string]bool
	reader  func() // ends the request that reads updates
}

// NewTelegram starts a server. Chats, threads and people have numbers as their IDs.
func NewTelegram(t testing.TB) *Telegram {
	s := &Telegram{presses: map[string]bool{}}
	s.open(t, TelegramToken, s)
	return s
}

func number(id string) int64 {
	n, _ := strconv.ParseInt(id, 10, 64) // "" is 0
	return n
}

func id(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// user is a person as the API describes them.
func (p Person) user() map[string]any {
	return map[string]any{"id": number(p.ID), "is_bot": false, "first_name": p.Name}
}

// Write implements [Chat].
func (s *Telegram) Write(from Person, m Message) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, kind := int64(s.next()), "message"
	chat := map[string]any{"id": number(m.Chat), "type": "private"}
	v := map[string]any{"message_id": n, "date": time.Now().Unix(), "chat": chat, "from": from.user(), "text": m.Text}
	s.known[m.Chat], s.known[m.Chat+"/"+m.Thread], s.known[m.Chat+" "+id(n)] = true, true, true
	if m.Thread != "" {
		v["is_topic_message"], v["message_thread_id"] = true, number(m.Thread)
	}
	if m.ReplyTo != "" {
		v["reply_to_message"] = map[string]any{"message_id": number(m.ReplyTo), "chat": chat}
	}
	if m.Forwarded {
		v["forward_origin"] = map[string]any{"type": "hidden_user", "sender_user_name": "Somebody"}
	}
	if m.File != "" {
		v["document"] = map[string]any{"file_name": m.File, "mime_type": "application/pdf"}
	}
	if m.Edits != "" {
		kind, v["message_id"], v["edit_date"] = "edited_message", number(m.Edits), time.Now().Unix()
	}
	s.add(kind, v)
	return id(n)
}

// Press implements [Chat].
func (s *Telegram) Press(from Person, of Sent, token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	press := "q" + strconv.Itoa(s.next())
	s.presses[press] = true
	m := map[string]any{
		"message_id": number(of.ID), "date": time.Now().Unix(),
		"chat": map[string]any{"id": number(of.Chat), "type": "private"},
		"from": map[string]any{"id": 123456, "is_bot": true, "first_name": "bot"}, "text": of.Text,
	}
	if of.Thread != "" {
		m["is_topic_message"], m["message_thread_id"] = true, number(of.Thread)
	}
	s.add("callback_query", map[string]any{
		"id": press, "from": from.user(), "message": m, "chat_instance": "1", "data": token,
	})
}

func (s *Telegram) add(kind string, value any) {
	s.updates = append(s.updates, map[string]any{"update_id": int64(s.next()), kind: value})
	s.arrived()
}

// failed is an answer that refuses a request.
func failed(code int, text string) answer {
	a := answer{status: code, body: map[string]any{"ok": false, "error_code": code, "description": text}}
	if code == 400 || code == 404 {
		a.wrong = text
	}
	return a
}

func result(v any) answer { return answer{body: map[string]any{"ok": true, "result": v}} }

// ServeHTTP implements [http.Handler].
func (s *Telegram) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token, method, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/bot"), "/")
	s.serve(w, r, method, func(body []byte) answer {
		switch {
		case token != TelegramToken:
			return failed(401, "Unauthorized")
		case r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json":
			return failed(400, "Bad Request: this test takes POST and JSON only")
		}
		switch method {
		case "getMe":
			return result(map[string]any{"id": 123456, "is_bot": true, "first_name": "Test", "username": "test_bot"})
		case "getUpdates":
			return s.getUpdates(r.Context(), body)
		case "sendMessage":
			return s.sendMessage(body)
		case "answerCallbackQuery":
			return s.answerPress(body)
		}
		return failed(404, "Not Found: method not found")
	})
}

func (s *Telegram) getUpdates(ctx context.Context, body []byte) answer {
	var q struct {
		Offset  int64    `json:"offset"`
		Limit   int      `json:"limit"`
		Timeout int      `json:"timeout"`
		Allowed []string `json:"allowed_updates"`
	}
	if err := read(body, &q); err != nil || q.Limit < 1 || q.Limit > 100 {
		return failed(400, "Bad Request: limit must be 1 to 100, and all parameters known")
	}
	ctx, end := context.WithTimeout(ctx, time.Duration(q.Timeout)*time.Second)
	defer end()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads(1)
	defer s.reads(-1)
	if s.reader != nil {
		s.reader()
	}
	taken := false
	s.reader = func() { taken = true; end() }
	s.updates = slices.DeleteFunc(s.updates, func(u map[string]any) bool { return u["update_id"].(int64) < q.Offset })
	wanted := func() (some []map[string]any) {
		for _, u := range s.updates {
			if slices.ContainsFunc(q.Allowed, func(kind string) bool { return u[kind] != nil }) && len(some) < q.Limit {
				some = append(some, u)
			}
		}
		return some
	}
	for len(wanted()) == 0 && ctx.Err() == nil {
		came := s.came
		s.mu.Unlock()
		select {
		case <-came:
		case <-ctx.Done():
		}
		s.mu.Lock()
	}
	if taken {
		return failed(409, "Conflict: terminated by other getUpdates request")
	}
	s.reader = nil
	return result(append([]map[string]any{}, wanted()...))
}

func (s *Telegram) sendMessage(body []byte) answer {
	var q struct {
		Chat    int64  `json:"chat_id,string"`
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
	if err := read(body, &q); err != nil {
		return failed(400, "Bad Request: "+err.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	one := Sent{Chat: id(q.Chat), Thread: id(q.Thread), Text: q.Text, Buttons: map[string]string{}}
	if q.Reply != nil {
		one.ReplyTo = id(q.Reply.ID)
	}
	switch n := len(utf16.Encode([]rune(q.Text))); {
	case s.limited():
		a := failed(429, "Too Many Requests: retry after 1")
		a.body.(map[string]any)["parameters"] = map[string]any{"retry_after": 1}
		return a
	case !s.known[one.Chat]:
		return failed(400, "Bad Request: chat not found")
	case one.Thread != "" && !s.known[one.Chat+"/"+one.Thread]:
		return failed(400, "Bad Request: message thread not found")
	case one.ReplyTo != "" && !s.known[one.Chat+" "+one.ReplyTo]:
		return failed(400, "Bad Request: message to be replied not found")
	case strings.TrimSpace(q.Text) == "":
		return failed(400, "Bad Request: message text is empty")
	case n > 4096:
		return failed(400, "Bad Request: message is too long")
	case !q.Preview.Off:
		return failed(400, "Bad Request: this test wants no previews of links")
	}
	if q.Markup != nil {
		for _, b := range slices.Concat(q.Markup.Keyboard...) {
			if len(b.Data) < 1 || len(b.Data) > 64 {
				return failed(400, "Bad Request: BUTTON_DATA_INVALID")
			}
			one.Buttons[b.Text] = b.Data
		}
	}
	n := int64(s.next())
	one.ID = id(n)
	s.keep(one)
	return result(map[string]any{
		"message_id": n, "date": time.Now().Unix(), "chat": map[string]any{"id": q.Chat, "type": "private"}, "text": q.Text,
	})
}

func (s *Telegram) answerPress(body []byte) answer {
	var q struct {
		ID    string `json:"callback_query_id"`
		Text  string `json:"text"`
		Alert bool   `json:"show_alert"`
	}
	err := read(body, &q)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
		return failed(400, "Bad Request: "+err.Error())
	case !s.presses[q.ID]:
		return failed(400, "Bad Request: query is too old and response timeout expired or query ID is invalid")
	case utf8.RuneCountInString(q.Text) > 200:
		return failed(400, "Bad Request: MESSAGE_TOO_LONG")
	}
	s.keep(Sent{Text: q.Text, Toast: true})
	return result(true)
}
