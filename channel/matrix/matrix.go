// Package matrix is an account of a Matrix homeserver (client-server API v3), in rooms without end-to-end encryption.
package matrix

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib/channel"
	"github.com/toolcrib/toolcrib/channel/internal/rest"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
)

const (
	scheme = "matrix"
	// maxText is the length of a text in bytes. JSON doubles it at most for usual texts, and an event has 65,536.
	maxText = 24 << 10
	poll    = 30 * time.Second
)

// Account is an account. It implements [channel.Channel].
type Account struct {
	base, token string
	http        *http.Client
	channel.Usual
}

// New returns the account of an address: matrix://:ACCESS-TOKEN@HOST/?rooms=ID. The error does not contain any of the
// address.
func New(address string) (*Account, error) {
	a, err := channel.ParseAddress(address, scheme, "")
	if err != nil {
		return nil, err
	}
	if a.User != "" || a.Password == "" {
		return nil, errors.New("has no access token: matrix://:ACCESS-TOKEN@HOST")
	}
	base := a.Base.String() + "/_matrix/client/v3"
	return &Account{base: base, token: a.Password, http: rest.NewClient(), Usual: a.Usual}, nil
}

// call sends a request, whose URL and token it adds.
func (a *Account) call(ctx context.Context, path string, r rest.Request) error {
	var problem struct {
		Code  string `json:"errcode"`
		Error string `json:"error"`
		After int64  `json:"retry_after_ms"`
	}
	r.URL, r.Token, r.Problem = a.base+path, a.token, &problem
	err := rest.Do(ctx, a.http, r)
	if problem.Code == "" {
		return err
	}
	return rest.Explained(err, problem.Code+": "+problem.Error, time.Duration(problem.After)*time.Millisecond)
}

// get gets what is at a path.
func (a *Account) get(ctx context.Context, path string, query url.Values, result any) error {
	return a.call(ctx, path+"?"+query.Encode(), rest.Request{Method: http.MethodGet, Wait: poll, Result: result})
}

// Account implements [channel.Sender].
func (a *Account) Account(ctx context.Context) (string, error) {
	var me struct {
		ID string `json:"user_id"`
	}
	err := a.get(ctx, "/account/whoami", nil, &me)
	return me.ID, err
}

// Deduplicates implements [channel.Sender]: the key is the ID of the transaction.
func (a *Account) Deduplicates() bool { return true }

// Parts implements [channel.Sender].
func (a *Account) Parts(text string) []string { return channel.Split(text, maxText, utf8.RuneLen) }

type object map[string]any

// Send implements [channel.Sender]. The text is plain, and a notice, which other bots do not answer.
func (a *Account) Send(ctx context.Context, r channel.Reply) (string, error) {
	body := object{"msgtype": "m.notice", "body": r.Text, "m.mentions": object{}} // none
	switch {
	case r.Thread != "":
		body["m.relates_to"] = object{
			"rel_type": "m.thread", "event_id": r.Thread, "is_falling_back": true, "m.in_reply_to": object{"event_id": r.Thread},
		}
	case r.To != "":
		body["m.relates_to"] = object{"m.in_reply_to": object{"event_id": r.To}}
	}
	var sent struct {
		ID string `json:"event_id"`
	}
	path := "/rooms/" + url.PathEscape(r.Chat) + "/send/m.room.message/" + url.PathEscape(r.Key)
	err := a.call(ctx, path, rest.Request{Method: http.MethodPut, Body: body, Result: &sent})
	return sent.ID, err
}

type (
	event struct {
		Type    string          `json:"type"`
		ID      string          `json:"event_id"`
		Sender  string          `json:"sender"`
		Time    int64           `json:"origin_server_ts"`
		Content json.RawMessage `json:"content"` // any JSON that its sender wants
	}
	message struct {
		Type    string `json:"msgtype"`
		Body    string `json:"body"`
		Name    string `json:"filename"`
		Relates struct {
			Type        string `json:"rel_type"`
			ID          string `json:"event_id"`
			FallingBack bool   `json:"is_falling_back"`
			InReplyTo   struct {
				ID string `json:"event_id"`
			} `json:"m.in_reply_to"`
		} `json:"m.relates_to"`
		Info struct {
			Type string `json:"mimetype"`
		} `json:"info"`
	}
	synced struct {
		Next  string `json:"next_batch"`
		Rooms struct {
			Join map[string]struct {
				Timeline struct {
					Events  []event `json:"events"`
					Limited bool    `json:"limited"`
					Before  string  `json:"prev_batch"`
				} `json:"timeline"`
			} `json:"join"`
		} `json:"rooms"`
	}
	page struct {
		Chunk []event `json:"chunk"`
		End   string  `json:"end"`
	}
)

const (
	// maxMissed bounds the messages of a room that are read again after an outage; older ones are left out.
	maxMissed = 1024
	maxPages  = 100

	// filter keeps an answer within its bound, if many rooms have long messages: missed reads what it leaves out.
	filter = `{"presence":{"types":[]},"account_data":{"types":[]},"room":{"account_data":{"types":[]},` +
		`"ephemeral":{"types":[]},"state":{"types":[]},"timeline":{"types":["m.room.message"],"limit":10}}}`
)

// Receive implements [channel.Receiver]. The cursor is the token of the last sync; without one, it begins now.
func (a *Account) Receive(ctx context.Context, cursor string, take channel.Take) error {
	me, err := a.Account(ctx)
	if err != nil {
		return err
	}
	for {
		query := url.Values{"filter": {filter}, "timeout": {"0"}}
		if cursor != "" {
			query.Set("since", cursor)
			query.Set("timeout", "30000")
		}
		var s synced
		if err := a.get(ctx, "/sync", query, &s); err != nil {
			return err
		}
		var messages []channel.Message
		for room, r := range s.Rooms.Join {
			events := r.Timeline.Events
			if r.Timeline.Limited && cursor != "" {
				missed, err := a.missed(ctx, room, r.Timeline.Before, cursor)
				if err != nil {
					return err
				}
				events = append(missed, events...)
			}
			for i := range events {
				if m, ok := events[i].read(room, me); ok && cursor != "" {
					messages = append(messages, m)
				}
			}
		}
		if cursor == s.Next && len(messages) == 0 {
			continue
		}
		if err := take(ctx, messages, s.Next); err != nil {
			return err
		}
		cursor = s.Next
	}
}

// missed returns the messages of a room between two tokens, oldest first.
func (a *Account) missed(ctx context.Context, room, from, to string) (events []event, err error) {
	for pages := 0; from != "" && pages < maxPages && len(events) < maxMissed; pages++ {
		query := url.Values{
			"dir": {"b"}, "from": {from}, "to": {to}, "limit": {"100"}, "filter": {`{"types":["m.room.message"]}`},
		}
		var p page
		if err := a.get(ctx, "/rooms/"+url.PathEscape(room)+"/messages", query, &p); err != nil {
			return nil, err
		}
		events = append(events, p.Chunk...)
		from = p.End // a page can be empty, and others follow
	}
	slices.Reverse(events)
	return events, nil
}

// read returns the message of an event, by a person other than the account itself.
func (e *event) read(room, me string) (m channel.Message, ok bool) {
	var c message
	if e.Type != "m.room.message" || e.ID == "" || e.Sender == "" || e.Sender == me ||
		json.Unmarshal(e.Content, &c) != nil {
		return m, false
	}
	m = channel.Message{Chat: room, ID: e.ID, Sender: e.Sender, Time: time.UnixMilli(e.Time).UTC()}
	switch c.Relates.Type {
	case "m.replace": // a change of a message
		return m, false
	case "m.thread":
		m.Thread = c.Relates.ID
	}
	if !c.Relates.FallingBack {
		m.ReplyTo = c.Relates.InReplyTo.ID
	}
	switch c.Type {
	case "m.text":
		m.Text = c.Body
		if m.ReplyTo != "" {
			m.Text = quote.ReplaceAllString(m.Text, "")
		}
	case "m.file", "m.image", "m.audio", "m.video":
		m.Attachments = []channel.Attachment{{Name: c.Body, Type: c.Info.Type}}
		if c.Name != "" && c.Name != c.Body {
			m.Attachments[0].Name, m.Text = c.Name, c.Body
		}
	}
	return m, m.Text != "" || len(m.Attachments) > 0
}

// quote matches the quote of the message that a text answers, which older clients put before it.
var quote = lazyregexp.New(`^(> .*\n)+\n?`)
