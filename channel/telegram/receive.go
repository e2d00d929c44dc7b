package telegram

import (
	"cmp"
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib/channel"
)

type (
	update struct {
		ID      int64    `json:"update_id"`
		Message *message `json:"message"`
		Press   *press   `json:"callback_query"`
	}
	user struct {
		ID       int64  `json:"id"`
		Bot      bool   `json:"is_bot"`
		First    string `json:"first_name"`
		Last     string `json:"last_name"`
		Username string `json:"username"`
	}
	press struct {
		ID      string   `json:"id"`
		From    *user    `json:"from"`
		Message *message `json:"message"`
		Data    string   `json:"data"`
	}
	file struct {
		Name string `json:"file_name"`
		Type string `json:"mime_type"`
	}
	message struct {
		ID       int64 `json:"message_id"`
		ThreadID int64 `json:"message_thread_id"`
		InTopic  bool  `json:"is_topic_message"`
		From     *user `json:"from"`
		// SenderChat is set if a chat writes and not a person: From is then an account that many share.
		SenderChat json.RawMessage `json:"sender_chat"`
		Date       int64           `json:"date"`
		Chat       struct {
			ID int64 `json:"id"`
		} `json:"chat"`
		Forward  json.RawMessage `json:"forward_origin"`
		ReplyTo  *message        `json:"reply_to_message"`
		Text     string          `json:"text"`
		Caption  string          `json:"caption"`
		Document *file           `json:"document"`
		Audio    *file           `json:"audio"`
		Video    *file           `json:"video"`
		Voice    *file           `json:"voice"`
		Photo    json.RawMessage `json:"photo"`
	}
)

// Receive implements [channel.Receiver]. The cursor is the offset of the next update: those before it are acknowledged
// by the next request.
func (b *Bot) Receive(ctx context.Context, cursor string, take channel.Take) error {
	next, _ := strconv.ParseInt(cmp.Or(cursor, "0"), 10, 64) // it was formatted here
	for {
		var raw []json.RawMessage
		err := b.call(ctx, "getUpdates", poll, object{
			"offset": next, "limit": batch, "timeout": poll / time.Second,
			"allowed_updates": []string{"message", "callback_query"},
		}, &raw)
		if err != nil {
			return err
		}
		var messages []channel.Message
		for _, one := range raw {
			var u update
			if json.Unmarshal(one, &u) != nil {
				u = update{ID: u.ID} // it is skipped, which needs only its number
			}
			if u.ID == 0 {
				return channel.Errorf(channel.Refused, "getUpdates: the answer is not one of the Bot API")
			}
			next = max(next, u.ID+1)
			if m, ok := u.read(); ok {
				messages = append(messages, m)
			}
		}
		if len(raw) == 0 {
			continue
		}
		if err := take(ctx, messages, strconv.FormatInt(next, 10)); err != nil {
			return err
		}
	}
}

// read returns the message of an update by a person.
func (u *update) read() (m channel.Message, ok bool) {
	switch {
	case u.Press != nil && u.Press.From != nil && u.Press.Message != nil && !u.Press.From.Bot:
		m = u.Press.Message.read()
		m.ID, m.Press, m.PressID = "press "+u.Press.ID, u.Press.Data, u.Press.ID
		m.Text, m.Forwarded, m.Attachments, m.ReplyTo = "", false, nil, ""
		m.Sender, m.Name = u.Press.From.who()
		return m, true
	case u.Message != nil && u.Message.From != nil && !u.Message.From.Bot && u.Message.SenderChat == nil:
		m = u.Message.read()
		m.Sender, m.Name = u.Message.From.who()
		return m, m.Text != "" || len(m.Attachments) > 0
	}
	return m, false
}

func (u *user) who() (id, name string) {
	name = strings.TrimSpace(u.First + " " + u.Last)
	if u.Username != "" {
		name += " @" + u.Username
	}
	return strconv.FormatInt(u.ID, 10), strings.TrimSpace(name)
}

func (t *message) read() channel.Message {
	m := channel.Message{
		Chat: strconv.FormatInt(t.Chat.ID, 10), ID: strconv.FormatInt(t.ID, 10), Text: cmp.Or(t.Text, t.Caption),
		Forwarded: t.Forward != nil, Time: time.Unix(t.Date, 0).UTC(),
	}
	if t.InTopic {
		m.Thread = strconv.FormatInt(t.ThreadID, 10)
	}
	if t.ReplyTo != nil {
		m.ReplyTo = strconv.FormatInt(t.ReplyTo.ID, 10)
	}
	for kind, f := range map[string]*file{"document": t.Document, "audio": t.Audio, "video": t.Video, "voice": t.Voice} {
		if f != nil {
			m.Attachments = append(m.Attachments, channel.Attachment{Name: f.Name, Type: cmp.Or(f.Type, kind)})
		}
	}
	if t.Photo != nil {
		m.Attachments = append(m.Attachments, channel.Attachment{Type: "photo"})
	}
	return m
}
