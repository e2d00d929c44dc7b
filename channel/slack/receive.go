package slack

import (
	"cmp"
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/toolcrib/toolcrib/channel"
	"github.com/toolcrib/toolcrib/channel/internal/rest"
)

const (
	maxEnvelope = rest.MaxAnswer
	// idle is how long nothing may arrive, after which the connection is made again: Slack replaces it within hours.
	idle = 15 * time.Minute
)

type (
	envelope struct {
		Type    string          `json:"type"`
		ID      string          `json:"envelope_id"`
		Payload json.RawMessage `json:"payload"`
	}
	event struct {
		Type     string `json:"type"`
		Subtype  string `json:"subtype"`
		Channel  string `json:"channel"`
		User     string `json:"user"`
		BotID    string `json:"bot_id"`
		Text     string `json:"text"`
		TS       string `json:"ts"`
		ThreadTS string `json:"thread_ts"`
		Files    []struct {
			Name string `json:"name"`
			Type string `json:"mimetype"`
		} `json:"files"`
		Attachments []struct{ Text string } `json:"attachments"` // shared messages of others
	}
	interaction struct {
		Type    string                    `json:"type"`
		User    struct{ ID, Name string } `json:"user"`
		Channel struct{ ID string }       `json:"channel"`
		Message event                     `json:"message"`
		Actions []struct {
			Value string `json:"value"`
			TS    string `json:"action_ts"`
		} `json:"actions"`
	}
)

// Receive implements [channel.Receiver]. Slack delivers an envelope again that is not acknowledged, so there is no
// cursor. It returns when Slack replaces the connection.
func (s *App) Receive(ctx context.Context, _ string, take channel.Take) error {
	open, err := s.call(ctx, "apps.connections.open", s.appLevel, struct{}{})
	if err != nil {
		return err
	}
	c, _, err := websocket.Dial(ctx, open.URL, &websocket.DialOptions{HTTPClient: s.http})
	if err != nil {
		return channel.Errorf(channel.Later, "the connection cannot be opened")
	}
	defer func() { _ = c.CloseNow() }() // the end of the connection is all that matters
	c.SetReadLimit(maxEnvelope)
	for {
		reading, cancel := context.WithTimeout(ctx, idle)
		_, data, err := c.Read(reading)
		cancel()
		if err != nil {
			return channel.Errorf(channel.Later, "the connection has ended")
		}
		var e envelope
		if err := json.Unmarshal(data, &e); err != nil {
			return channel.Errorf(channel.Later, "an envelope is not JSON: %w", err)
		}
		if e.Type == "disconnect" {
			return nil
		}
		if e.ID == "" {
			continue
		}
		if m, ok := e.read(); ok {
			if err := take(ctx, []channel.Message{m}, ""); err != nil {
				return err
			}
		}
		ack, _ := json.Marshal(map[string]string{"envelope_id": e.ID}) // cannot fail for strings
		if err := c.Write(ctx, websocket.MessageText, ack); err != nil {
			return channel.Errorf(channel.Later, "the connection has ended")
		}
	}
}

// read returns the message of an envelope, by a person. What cannot be read is acknowledged, as it will not get better.
func (e *envelope) read() (m channel.Message, ok bool) {
	switch e.Type {
	case "events_api":
		var p struct{ Event event }
		if json.Unmarshal(e.Payload, &p) != nil {
			return m, false
		}
		return p.Event.message()
	case "interactive":
		var p interaction
		if json.Unmarshal(e.Payload, &p) != nil || p.Type != "block_actions" || len(p.Actions) == 0 || p.User.ID == "" {
			return m, false
		}
		one := p.Actions[0]
		return channel.Message{
			Chat: p.Channel.ID, Thread: p.Message.ThreadTS, ID: "press " + one.TS, Sender: p.User.ID, Name: p.User.Name,
			Press: one.Value, Time: timeOf(one.TS),
		}, true
	}
	return m, false
}

func (v *event) message() (m channel.Message, ok bool) {
	switch {
	case v.Type != "message" && v.Type != "app_mention", v.User == "" || v.BotID != "",
		v.Subtype != "" && v.Subtype != "file_share" && v.Subtype != "thread_broadcast":
		return m, false // changes, joins, what bots write
	}
	m = channel.Message{
		Chat: v.Channel, Thread: v.ThreadTS, ID: v.TS, Sender: v.User, Text: unescaped(v.Text), Time: timeOf(v.TS),
		Forwarded: len(v.Attachments) > 0,
	}
	if v.Type == "app_mention" && strings.HasPrefix(m.Text, "<@") { // of the app itself
		_, m.Text, _ = strings.Cut(m.Text, ">")
		m.Text = strings.TrimSpace(m.Text)
	}
	for _, shared := range v.Attachments {
		m.Text = strings.TrimSpace(m.Text + "\n" + unescaped(shared.Text))
	}
	if v.ThreadTS != v.TS { // the first message of the thread is the question that it answers
		m.ReplyTo = v.ThreadTS
	}
	for _, f := range v.Files {
		m.Attachments = append(m.Attachments, channel.Attachment{Name: f.Name, Type: cmp.Or(f.Type, "file")})
	}
	return m, m.Text != "" || len(m.Attachments) > 0
}

func unescaped(text string) string {
	return strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&").Replace(text)
}

// timeOf returns the time of a timestamp, which is an ID too.
func timeOf(ts string) time.Time {
	seconds, _, _ := strings.Cut(ts, ".")
	n, _ := strconv.ParseInt(seconds, 10, 64) // 0 if unknown
	return time.Unix(n, 0).UTC()
}
