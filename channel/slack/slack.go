// Package slack is an app of Slack in socket mode.
package slack

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/toolcrib/toolcrib/channel"
	"github.com/toolcrib/toolcrib/channel/internal/rest"
)

const (
	scheme  = "slack"
	usual   = "https://slack.com"
	maxText = 3000 // characters of a text block
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
func (s *App) call(ctx context.Context, method, token string, body any) (answer, error) {
	var a answer
	err := rest.Do(ctx, s.http, rest.Request{URL: s.base + method, Token: token, Body: body, Result: &a})
	switch {
	case err != nil:
		return a, err
	case a.OK:
		return a, nil
	case a.Error == "internal_error" || a.Error == "fatal_error":
		return a, channel.Errorf(channel.Doubt, "%s: %s", method, a.Error)
	}
	return a, channel.Errorf(channel.Refused, "%s: %s", method, a.Error)
}

// answer has the fields of the answers of the methods that are called.
type answer struct {
	OK                  bool
	Error               string
	URL, TS, User, Team string
}

// Account implements [channel.Sender].
func (s *App) Account(ctx context.Context) (string, error) {
	me, err := s.call(ctx, "auth.test", s.bot, struct{}{})
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

type object map[string]any

func plain(text string) object { return object{"type": "plain_text", "text": text} }

// Send implements [channel.Sender]. The text is plain: its markup is escaped or in a block of plain text.
func (s *App) Send(ctx context.Context, r channel.Reply) (string, error) {
	body := object{
		"channel": r.Chat, "text": escaped(r.Text), "mrkdwn": false, "unfurl_links": false, "unfurl_media": false,
	}
	if r.Thread != "" {
		body["thread_ts"] = r.Thread
	}
	if len(r.Buttons) > 0 {
		var row []object
		for _, one := range r.Buttons {
			row = append(row, object{"type": "button", "action_id": one.Token, "text": plain(one.Label), "value": one.Token})
		}
		body["blocks"] = []object{{"type": "section", "text": plain(r.Text)}, {"type": "actions", "elements": row}}
	}
	sent, err := s.call(ctx, "chat.postMessage", s.bot, body)
	return sent.TS, err
}
