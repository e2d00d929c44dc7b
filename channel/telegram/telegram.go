// Package telegram is a bot of the Telegram Bot API, by long polling.
package telegram

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/toolcrib/toolcrib/channel"
	"github.com/toolcrib/toolcrib/channel/internal/rest"
)

const (
	scheme = "telegram"
	usual  = "https://api.telegram.org"

	// maxText is the length of a message, in units of UTF-16.
	maxText = 4096
	// maxToast is the length of the answer to a press, in characters.
	maxToast = 200

	batch   = 100 // updates of one answer
	poll    = 50 * time.Second
	timeout = 30 * time.Second
)

// Bot is a bot. It implements [channel.Channel].
type Bot struct {
	base string // with the token
	http *http.Client
	channel.Usual
}

// New returns the bot of an address: telegram://TOKEN@telegram?chats=ID, or https://TOKEN@HOST for a Bot API server of
// one's own. The error does not contain any of the address.
func New(address string) (*Bot, error) {
	a, err := channel.ParseAddress(address, scheme, usual)
	if err != nil {
		return nil, err
	}
	if a.User == "" || a.Password == "" {
		return nil, errors.New("has no token: telegram://TOKEN@telegram, with the token that @BotFather gives")
	}
	base := a.Base.String() + "/bot" + a.User + ":" + a.Password + "/"
	return &Bot{base: base, http: rest.NewClient(), Usual: a.Usual}, nil
}

// answer is the form of all answers.
type answer struct {
	OK          bool            `json:"ok"`
	Result      json.RawMessage `json:"result"`
	Description string          `json:"description"`
	Parameters  struct {
		RetryAfter int `json:"retry_after"`
	} `json:"parameters"`
}

// call calls a method of the API.
func (b *Bot) call(ctx context.Context, method string, within time.Duration, body, result any) error {
	_, data, err := rest.Do(ctx, b.http, rest.Request{
		Method: http.MethodPost, URL: b.base + method, Header: http.Header{}, Body: body, Timeout: within,
	})
	var a answer
	read := json.Unmarshal(data, &a)
	var failed *channel.Error
	switch {
	case errors.As(err, &failed) && data != nil && read == nil:
		failed.Err = errors.New(method + ": " + a.Description)
		if n := a.Parameters.RetryAfter; n > 0 {
			failed.After = time.Duration(n) * time.Second
		}
		return failed
	case err != nil:
		return err
	case read != nil || !a.OK:
		return channel.Errorf(channel.Doubt, "%s: the answer is not one of the Bot API", method)
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(a.Result, result); err != nil {
		return channel.Errorf(channel.Doubt, "%s: the answer is not one of the Bot API: %w", method, err)
	}
	return nil
}

// Account implements [channel.Sender].
func (b *Bot) Account(ctx context.Context) (string, error) {
	var me user
	err := b.call(ctx, "getMe", timeout, struct{}{}, &me)
	return "@" + me.Username, err
}

// Deduplicates implements [channel.Sender]: the API has no keys.
func (b *Bot) Deduplicates() bool { return false }

// Parts implements [channel.Sender].
func (b *Bot) Parts(text string) []string { return channel.Split(text, maxText, channel.UTF16) }

type (
	sendMessage struct {
		ChatID   json.RawMessage `json:"chat_id"`
		ThreadID int64           `json:"message_thread_id,omitempty"`
		Text     string          `json:"text"`
		Preview  preview         `json:"link_preview_options"`
		Reply    *replyTo        `json:"reply_parameters,omitempty"`
		Markup   *markup         `json:"reply_markup,omitempty"`
	}
	preview struct {
		Disabled bool `json:"is_disabled"`
	}
	replyTo struct {
		ID        int64 `json:"message_id"`
		OrWithout bool  `json:"allow_sending_without_reply"`
	}
	markup struct {
		Keyboard [][]button `json:"inline_keyboard"`
	}
	button struct {
		Text string `json:"text"`
		Data string `json:"callback_data"`
	}
	answerPress struct {
		ID    string `json:"callback_query_id"`
		Text  string `json:"text"`
		Alert bool   `json:"show_alert"`
	}
)

// Send implements [channel.Sender]. Without a parse_mode, the text is plain.
func (b *Bot) Send(ctx context.Context, r channel.Reply) (string, error) {
	if r.PressID != "" {
		text := []rune(r.Text)
		return "", b.call(ctx, "answerCallbackQuery", timeout, answerPress{
			ID: r.PressID, Text: string(text[:min(len(text), maxToast)]), Alert: true,
		}, nil)
	}
	body := sendMessage{ChatID: chatID(r.Chat), Text: r.Text, Preview: preview{true}}
	body.ThreadID, _ = strconv.ParseInt(r.Thread, 10, 64) // "" is none
	if id, err := strconv.ParseInt(r.To, 10, 64); err == nil {
		body.Reply = &replyTo{id, true}
	}
	if len(r.Buttons) > 0 {
		row := make([]button, len(r.Buttons))
		for i, one := range r.Buttons {
			row[i] = button{one.Label, one.Token}
		}
		body.Markup = &markup{[][]button{row}}
	}
	var sent message
	err := b.call(ctx, "sendMessage", timeout, body, &sent)
	return strconv.FormatInt(sent.ID, 10), err
}

// chatID returns the ID of a chat as the API wants it: a number, or the @name of a public channel.
func chatID(chat string) json.RawMessage {
	if _, err := strconv.ParseInt(chat, 10, 64); err == nil {
		return json.RawMessage(chat)
	}
	text, _ := json.Marshal(chat) // cannot fail for a string
	return text
}
