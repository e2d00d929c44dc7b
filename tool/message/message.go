// Package message implements message, which writes to a configured channel.
package message

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/channel"
	"github.com/toolcrib/toolcrib/tool/internal/wire"
)

const (
	// Group is the group of the tools of this package.
	Group = "channels"
	// Name is the name of the tool.
	Name = "message"

	maxContent = 64 << 10 // bytes
	timeout    = time.Minute
)

// Options for [New].
type Options struct {
	Channels []string // names
	// Open connects to a channel.
	Open func(name string) (channel.Sender, error)
}

// New returns message.
func New(o Options) []toolcrib.Tool { return []toolcrib.Tool{&message{o}} }

type message struct{ Options }

type input struct {
	Channel string `json:"channel"`
	ChatID  string `json:"chat_id"`
	Content string `json:"content"`
}

type sent struct {
	Status  string `json:"status"`
	Channel string `json:"channel"`
	ChatID  string `json:"chat_id"`
	Length  int    `json:"content_length"`
}

// Spec describes message.
func (t *message) Spec() toolcrib.Spec {
	names, _ := wire.Marshal(t.Channels) // cannot fail for strings
	parameters := fmt.Sprintf(`{"type":"object","properties":{"channel":{"type":"string","enum":%s},`+
		`"chat_id":{"type":"string","maxLength":256,"description":"the chat; without it, the usual one of the channel"},`+
		`"content":{"type":"string","minLength":1,"description":"plain text"}},"required":["channel","content"],`+
		`"additionalProperties":false}`, names)
	s := wire.Spec(Group, Name, "Send a message to people in a chat.", parameters, toolcrib.EffectNonIdempotentWrite)
	s.Sink, s.Timeout, s.Plans.Targets = true, timeout, true
	return s
}

// Call sends a message.
func (t *message) Call(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
	return toolcrib.RunPlan(ctx, t, call)
}

// Plan implements [toolcrib.Planner]. After a crash, a message that the API takes once is sent again.
func (t *message) Plan(_ context.Context, call toolcrib.Call) (*toolcrib.Plan, error) {
	var in input
	if err := wire.Decode(call.Arguments, &in); err != nil {
		return nil, err
	}
	switch {
	case !slices.Contains(t.Channels, in.Channel):
		return nil, toolcrib.Failf(toolcrib.NotFound, "no channel %q; there is %s", in.Channel,
			strings.Join(t.Channels, ", "))
	case strings.TrimSpace(in.Content) == "" || len(in.Content) > maxContent:
		return nil, toolcrib.Failf(toolcrib.InvalidArguments, "content must have 1 to %d bytes, and not only spaces",
			maxContent)
	}
	api, err := t.Open(in.Channel)
	if err != nil {
		return nil, err
	}
	if in.ChatID, err = api.Chat(in.ChatID); err != nil {
		return nil, toolcrib.Failf(toolcrib.InvalidArguments, "chat_id: %v", err)
	}
	p := &toolcrib.Plan{
		Targets: []toolcrib.Target{{Kind: "channel", Name: in.Channel + "/" + in.ChatID, Write: true}},
		Run: func(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
			return send(ctx, api, in, string(call.Run)+" "+call.ID)
		},
	}
	if api.Deduplicates() {
		p.Prepare = func(context.Context, toolcrib.Call) (json.RawMessage, error) {
			return json.RawMessage(`{"once":true}`), nil
		}
		p.Reconcile = func(context.Context, toolcrib.Call, json.RawMessage) (toolcrib.Reconciled, error) {
			return toolcrib.Reconciled{State: toolcrib.NotHappened}, nil // or the API will know it again
		}
	}
	return p, nil
}

// send sends the parts of a message, each with a key of its own.
func send(ctx context.Context, api channel.Sender, in input, key string) (toolcrib.Output, error) {
	parts := api.Parts(in.Content)
	for i, part := range parts {
		_, err := api.Send(ctx, channel.Reply{Chat: in.ChatID, Text: part, Key: fmt.Sprintf("%s %d", key, i)})
		if err == nil {
			continue
		}
		text := "the message was not sent"
		switch class, _ := channel.ClassOf(err); {
		case class == channel.Doubt:
			text = "it is not known whether the message was sent; do not send it again without asking"
		case class == channel.Later:
			text = "the message was not sent; try again later"
		}
		if i > 0 {
			text += fmt.Sprintf("; %d of its %d parts were sent", i, len(parts))
		}
		failed := toolcrib.Failf(toolcrib.ExecutionFailed, "%s: %v", text, err)
		failed.Err = err
		return toolcrib.Output{}, failed
	}
	return wire.Output(sent{"sent", in.Channel, in.ChatID, len(in.Content)})
}
