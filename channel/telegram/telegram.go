// Package telegram is a bot of the Telegram Bot API, by long polling.
package telegram

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"
	"unicode/utf16"

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

	batch = 100 // updates of one answer
	poll  = 50 * time.Second
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

// call calls a method of the API, which may wait before it answers.
func (b *Bot) call(ctx context.Context, method string, wait time.Duration, body, result any) error {
	var problem struct {
		Description string `json:"description"`
		Parameters  struct {
			RetryAfter int `json:"retry_after"`
		} `json:"parameters"`
	}
	answer := struct {
		OK     bool `json:"ok"`
		Result any  `json:"result"`
	}{Result: result}
	err := rest.Do(ctx, b.http, rest.Request{
		URL: b.base + method, Body: body, Wait: wait, Result: &answer, Problem: &problem,
	})
	if err == nil && !answer.OK {
		return channel.Errorf(channel.Doubt, "%s: the answer is not one of the Bot API", method)
	}
	return rest.Explained(err, problem.Description, time.Duration(problem.Parameters.RetryAfter)*time.Second)
}

// Account implements [channel.Sender].
func (b *Bot) Account(ctx context.Context) (string, error) {
	var me user
	err := b.call(ctx, "getMe", 0, struct{}{}, &me)
	return "@" + me.Username, err
}

// Deduplicates implements [channel.Sender]: the API has no keys.
func (b *Bot) Deduplicates() bool { return false }

// Parts implements [channel.Sender].
func (b *Bot) Parts(text string) []string { return channel.Split(text, maxText, utf16.RuneLen) }

type object map[string]any

// Send implements [channel.Sender]. Without a parse_mode, the text is plain.
func (b *Bot) Send(ctx context.Context, r channel.Reply) (string, error) {
	if r.PressID != "" {
		text := []rune(r.Text)
		return "", b.call(ctx, "answerCallbackQuery", 0, object{
			"callback_query_id": r.PressID, "text": string(text[:min(len(text), maxToast)]), "show_alert": true,
		}, nil)
	}
	body := object{"chat_id": r.Chat, "text": r.Text, "link_preview_options": object{"is_disabled": true}}
	if r.Thread != "" {
		body["message_thread_id"] = json.Number(r.Thread)
	}
	if r.To != "" {
		body["reply_parameters"] = object{"message_id": json.Number(r.To), "allow_sending_without_reply": true}
	}
	if len(r.Buttons) > 0 {
		var row []object
		for _, one := range r.Buttons {
			row = append(row, object{"text": one.Label, "callback_data": one.Token})
		}
		body["reply_markup"] = object{"inline_keyboard": [][]object{row}}
	}
	var sent message
	err := b.call(ctx, "sendMessage", 0, body, &sent)
	return strconv.FormatInt(sent.ID, 10), err
}
