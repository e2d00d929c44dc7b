package matrix_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib/channel"
	"github.com/toolcrib/toolcrib/channel/matrix"
	"github.com/toolcrib/toolcrib/internal/chattest"
)

const room = "!room:example.org"

func open(t *testing.T) (*chattest.Matrix, *matrix.Account) {
	s := chattest.NewMatrix(t)
	a, err := matrix.New(s.Address() + "/?rooms=" + room)
	if err != nil {
		t.Fatal(err)
	}
	return s, a
}

// receive returns the first messages after a cursor, until there are n.
func receive(t *testing.T, a *matrix.Account, cursor string, n int) (all []channel.Message, next string) {
	t.Helper()
	enough := errors.New("enough")
	err := a.Receive(t.Context(), cursor, func(_ context.Context, some []channel.Message, cursor string) error {
		if all, next = append(all, some...), cursor; len(all) >= n {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		t.Fatal(err)
	}
	return all, next
}

func text(body string) map[string]any { return map[string]any{"msgtype": "m.text", "body": body} }

// What was written before the first sync is not for the account. After an outage all is read, also what a sync leaves
// out; what the account has sent itself, changes and other bots are not.
func TestC16_Receive(t *testing.T) {
	s, a := open(t)
	s.Event(room, "@ann:example.org", text("before"))
	_, cursor := receive(t, a, "", 0)
	for i := range 8 {
		s.Event(room, "@ann:example.org", text(fmt.Sprint(i)))
	}
	s.Event(room, chattest.MatrixUser, text("own"))
	s.Event(room, "@ann:example.org", map[string]any{"msgtype": "m.text", "body": 5}) // senders choose the content
	s.Event(room, "@ann:example.org", map[string]any{"msgtype": "m.text", "body": "odd", "m.relates_to": "x"})
	s.Event(room, "@other:example.org", map[string]any{"msgtype": "m.notice", "body": "bot"})
	changed := text("* changed")
	changed["m.relates_to"] = map[string]any{"rel_type": "m.replace", "event_id": "$2"}
	s.Event(room, "@ann:example.org", changed)
	inThread := text("> <@ann:example.org> quoted\n\nlast")
	inThread["m.relates_to"] = map[string]any{
		"rel_type": "m.thread", "event_id": "$2", "m.in_reply_to": map[string]any{"event_id": "$3"},
	}
	id := s.Event(room, "@ann:example.org", inThread)
	all, next := receive(t, a, cursor, 9)
	var texts []string
	for _, m := range all {
		texts = append(texts, m.Text)
	}
	if got := strings.Join(texts, " "); got != "0 1 2 3 4 5 6 7 last" {
		t.Errorf("%q", got)
	}
	if m := all[8]; m.ID != id || m.Thread != "$2" || m.ReplyTo != "$3" || m.Sender != "@ann:example.org" || m.Chat != room {
		t.Errorf("%+v", m)
	}
	s.Event(room, "@ann:example.org", map[string]any{"msgtype": "m.file", "body": "a.pdf", "info": map[string]any{"mimetype": "application/pdf"}})
	if all, _ := receive(t, a, next, 1); len(all) != 1 || all[0].Attachments[0].Type != "application/pdf" {
		t.Errorf("%+v", all)
	}
}

// A reply with the same key is sent once; a rate limit says when to try again; a token that is not good is refused.
func TestC16_Send(t *testing.T) {
	s, a := open(t)
	for range 2 {
		s.Event(room, "@ann:example.org", text("hello"))
	}
	reply := channel.Reply{Chat: room, Thread: "$1", To: "$2", Text: "<b>*hello*</b> @room", Key: "k1"}
	for range 2 {
		if _, err := a.Send(t.Context(), reply); err != nil {
			t.Fatal(err)
		}
	}
	sent := s.Sent()
	if len(sent) != 1 || sent[0].Text != reply.Text || sent[0].Thread != "$1" {
		t.Fatalf("%+v", sent)
	}
	s.Limit(1)
	reply.Key = "k2"
	_, err := a.Send(t.Context(), reply)
	if class, after := channel.ClassOf(err); class != channel.Later || after != 20*time.Millisecond {
		t.Errorf("%v: %q after %s", err, class, after)
	}
	other, err := matrix.New(strings.Replace(s.Address(), chattest.MatrixToken, "syt_other", 1))
	if err != nil {
		t.Fatal(err)
	}
	_, err = other.Send(t.Context(), reply)
	if class, _ := channel.ClassOf(err); class != channel.Refused || strings.Contains(err.Error(), "syt_other") {
		t.Errorf("%v: %q", err, class)
	}
	s.Close()
	_, err = a.Send(t.Context(), reply)
	if class, _ := channel.ClassOf(err); class != channel.Later || strings.Contains(err.Error(), chattest.MatrixToken) {
		t.Errorf("%v: %q", err, class)
	}
}
