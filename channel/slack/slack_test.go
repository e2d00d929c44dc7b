package slack_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib/channel"
	"github.com/toolcrib/toolcrib/channel/slack"
	"github.com/toolcrib/toolcrib/internal/chattest"
	"github.com/toolcrib/toolcrib/internal/waittest"
)

func open(t *testing.T) (*chattest.Slack, *slack.App) {
	s := chattest.NewSlack(t)
	a, err := slack.New(s.Address())
	if err != nil {
		t.Fatal(err)
	}
	return s, a
}

// An envelope is acknowledged after its message was taken; before that, the next connection gets it again.
func TestC16_Receive(t *testing.T) {
	s, a := open(t)
	s.Event(map[string]any{"type": "message", "subtype": "message_changed", "channel": "C1", "ts": "1.1"})
	s.Event(map[string]any{"type": "message", "bot_id": "B1", "user": "U2", "channel": "C1", "text": "bot", "ts": "1.2"})
	s.Event(map[string]any{
		"type": "app_mention", "user": "U1", "channel": "C1", "text": "<@U9> a &lt;b&gt; &amp;amp;", "ts": "1.3", "thread_ts": "1.0",
		"files": []any{map[string]any{"name": "a.pdf", "mimetype": "application/pdf"}},
	})
	broken := errors.New("the store is gone")
	err := a.Receive(t.Context(), "", func(context.Context, []channel.Message, string) error { return broken })
	if !errors.Is(err, broken) {
		t.Fatal(err)
	}
	waittest.Until(t, "only that of the person waits", func() bool { return s.Waiting() == 1 })
	got := make(chan channel.Message, 2)
	take := func(_ context.Context, some []channel.Message, _ string) error { got <- some[0]; return nil }
	ended := make(chan error, 1)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	go func() { ended <- a.Receive(ctx, "", take) }()
	m := <-got
	if m.ID != "1.3" || m.Thread != "1.0" || m.Sender != "U1" || m.Text != "a <b> &amp;" || len(m.Attachments) != 1 {
		t.Errorf("%+v", m)
	}
	waittest.Until(t, "it is acknowledged", func() bool { return s.Waiting() == 0 })
	s.Press(chattest.Person{ID: "U3"}, chattest.Sent{ID: "2.1", Chat: "C1", Thread: "1.0"}, "approve apr-x")
	if m := <-got; m.Press != "approve apr-x" || m.Sender != "U3" || m.Thread != "1.0" || m.Text != "" {
		t.Errorf("%+v", m)
	}
	waittest.Until(t, "it is acknowledged", func() bool { return s.Waiting() == 0 })
	s.Reconnect()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A text is sent as it is, without mentions; a rate limit says when to try again.
func TestC16_Send(t *testing.T) {
	s, a := open(t)
	if name, err := a.Account(t.Context()); name != "crib in Test" || err != nil {
		t.Errorf("%q, %v", name, err)
	}
	thread := s.Write(chattest.Person{ID: "U1"}, chattest.Message{Chat: "C1", Text: "hello"})
	reply := channel.Reply{
		Chat: "C1", Thread: thread, Text: "<!here> & *b*", Buttons: []channel.Button{{Label: "Approve", Token: "approve apr-x"}},
	}
	if _, err := a.Send(t.Context(), reply); err != nil {
		t.Fatal(err)
	}
	one := s.Sent()[0]
	if one.Text != reply.Text || one.Thread != thread || one.Buttons["Approve"] != "approve apr-x" {
		t.Errorf("%+v", one)
	}
	s.Limit(1)
	_, err := a.Send(t.Context(), reply)
	if class, after := channel.ClassOf(err); class != channel.Later || after != time.Second {
		t.Errorf("%v: %q after %s", err, class, after)
	}
	for _, part := range a.Parts(strings.Repeat("<", 5000)) {
		if n := 4 * len(part); n > 3000 {
			t.Errorf("%d characters", n)
		}
	}
	other, err := slack.New(strings.Replace(s.Address(), chattest.SlackBot, "xoxb-other", 1))
	if err != nil {
		t.Fatal(err)
	}
	_, err = other.Send(t.Context(), reply)
	if class, _ := channel.ClassOf(err); class != channel.Refused {
		t.Errorf("%v: %q", err, class)
	}
}
