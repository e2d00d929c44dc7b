// Package slack is an app of Slack in socket mode.
package slack

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib/channel"
	"github.com/toolcrib/toolcrib/channel/internal/rest"
)

const (
	scheme  = "slack"
	usual   = "https://slack.com"
	maxText = 3000 // characters of a text block
	timeout = 30 * time.Second
)

// App is an app. It implements [channel.Channel].
type App struct {
	base          string
	bot, appLevel string // tokens
	http          *http.Client
	channel.Usual
}

// New returns the app of an address: slack://BOT-TOKEN:APP-TOKEN@slack?chats=ID. The app token is needed to receive.
// The error does not contain any of the address.
func New(address string) (*App, error) {
	a, err := channel.ParseAddress(address, scheme, usual)
	if err != nil {
		return nil, err
	}
	if a.User == "" || a.Password == "" {
		return nil, errors.New("has not both tokens: slack://xoxb-…:xapp-…@slack, that of the bot and that of the app")
	}
	return &App{
		base: a.Base.String() + "/api/", bot: a.User, appLevel: a.Password, http: rest.NewClient(), Usual: a.Usual,
	}, nil
}

// call calls a method of the API.
func (s *App) call(ctx context.Context, method, token string, body, result any) error {
	_, data, err := rest.Do(ctx, s.http, rest.Request{
		Method: http.MethodPost, URL: s.base + method, Body: body, Timeout: timeout,
		Header: http.Header{"Authorization": {"Bearer " + token}},
	})
	if err != nil {
		return err
	}
	var answer struct {
		OK    bool   `json:"ok"`
		Error string `json:"error"`
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return channel.Errorf(channel.Doubt, "%s: the answer is not one of Slack: %w", method, err)
	}
	switch {
	case !answer.OK && (answer.Error == "internal_error" || answer.Error == "fatal_error"):
		return channel.Errorf(channel.Doubt, "%s: %s", method, answer.Error)
	case !answer.OK:
		return channel.Errorf(channel.Refused, "%s: %s", method, answer.Error)
	}
	if err := json.Unmarshal(data, result); err != nil {
		return channel.Errorf(channel.Doubt, "%s: the answer is not one of Slack: %w", method, err)
	}
	return nil
}

// Account implements [channel.Sender].
func (s *App) Account(ctx context.Context) (string, error) {
	var me struct{ User, Team string }
	err := s.call(ctx, "auth.test", s.bot, struct{}{}, &me)
	return me.User + " in " + me.Team, err
}

// Deduplicates implements [channel.Sender]: the API has no keys.
func (s *App) Deduplicates() bool { return false }

// Parts implements [channel.Sender].
func (s *App) Parts(text string) []string {
	return channel.Split(text, maxText, func(r rune) int { return len([]rune(escaped(string(r)))) })
}

// escaped returns a text in which Slack reads no mention or link of its markup.
func escaped(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text)
}

type (
	postMessage struct {
		Channel     string `json:"channel"`
		ThreadTS    string `json:"thread_ts,omitempty"`
		Text        string `json:"text"`
		Markdown    bool   `json:"mrkdwn"`
		UnfurlLinks bool   `json:"unfurl_links"`
		UnfurlMedia bool   `json:"unfurl_media"`
		Blocks      []any  `json:"blocks,omitempty"`
	}
	plainText struct {
		Type string `json:"type"` // plain_text
		Text string `json:"text"`
	}
	section struct {
		Type string    `json:"type"` // section
		Text plainText `json:"text"`
	}
	actions struct {
		Type     string   `json:"type"` // actions
		Elements []button `json:"elements"`
	}
	button struct {
		Type     string    `json:"type"` // button
		ActionID string    `json:"action_id"`
		Text     plainText `json:"text"`
		Value    string    `json:"value"`
	}
)

// Send implements [channel.Sender]. The text is plain: its markup is escaped or in a block of plain text.
func (s *App) Send(ctx context.Context, r channel.Reply) (string, error) {
	body := postMessage{Channel: r.Chat, ThreadTS: r.Thread, Text: escaped(r.Text)}
	if len(r.Buttons) > 0 {
		row := actions{Type: "actions"}
		for _, one := range r.Buttons {
			row.Elements = append(row.Elements, button{
				Type: "button", ActionID: one.Token, Text: plainText{"plain_text", one.Label}, Value: one.Token,
			})
		}
		body.Blocks = []any{section{"section", plainText{"plain_text", r.Text}}, row}
	}
	var sent struct{ TS string }
	err := s.call(ctx, "chat.postMessage", s.bot, body, &sent)
	return sent.TS, err
}
