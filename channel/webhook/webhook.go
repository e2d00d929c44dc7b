// Package webhook is a chat whose other side is a program: it posts messages to the server, and replies are posted to
// it, both signed as Standard Webhooks defines.
package webhook

import (
	"context"
	"crypto/hmac"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/channel"
	"github.com/toolcrib/toolcrib/channel/internal/rest"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/notify"
	"github.com/toolcrib/toolcrib/internal/notify/address"
)

const (
	// Tolerance is how far the time of a message may be from now.
	Tolerance = 5 * time.Minute

	maxText = 64 << 10 // bytes
	maxID   = 256      // bytes
)

// Hook is a webhook. It implements [channel.Channel].
type Hook struct {
	url  string
	key  []byte
	http *http.Client
	channel.Usual
}

// New returns a webhook whose replies are posted to a URL, signed with a key.
func New(to string, key []byte) (*Hook, error) {
	if problem := address.Check(to); problem != "" || !address.IsWebhook(to) {
		return nil, channel.Errorf(channel.Refused, "must be a URL such as https://example.com/replies")
	}
	a, err := channel.ParseAddress(to, "https", "")
	if err != nil {
		return nil, err
	}
	return &Hook{url: to, key: key, http: rest.NewClient(), Usual: a.Usual}, nil
}

// Posted is the body of a message to the server. The header webhook-id identifies it.
type Posted struct {
	Chat        string               `json:"chat"`
	Thread      string               `json:"thread"`
	Sender      string               `json:"sender"`
	Name        string               `json:"name"`
	Text        string               `json:"text"`
	ReplyTo     string               `json:"reply_to"`
	Forwarded   bool                 `json:"forwarded"`
	Attachments []channel.Attachment `json:"attachments"`
}

// Read checks the signature and the time of a request, and returns its message. The errors have nothing that only the
// holder of the key may know.
func (h *Hook) Read(header func(name string) string, body []byte) (m channel.Message, err error) {
	id := header("webhook-id")
	seconds, err := strconv.ParseInt(header("webhook-timestamp"), 10, 64)
	if err != nil || id == "" || len(id) > maxID {
		return m, toolcrib.Errorf(toolcrib.CodeUnauthorized, "the headers webhook-id and webhook-timestamp are needed")
	}
	at := time.Unix(seconds, 0)
	want, found := []byte(notify.Sign(h.key, id, at, body)), false
	for one := range strings.FieldsSeq(header("webhook-signature")) { // several while keys are changed
		found = hmac.Equal([]byte(one), want) || found
	}
	if !found {
		return m, toolcrib.Errorf(toolcrib.CodeUnauthorized, "webhook-signature is not that of this webhook")
	}
	if d := time.Since(at); d > Tolerance || d < -Tolerance {
		return m, toolcrib.Errorf(toolcrib.CodeUnauthorized, "webhook-timestamp is more than %s from now", Tolerance)
	}
	strict, err := guard.Canonical(body)
	var p Posted
	if err == nil {
		d := json.NewDecoder(strings.NewReader(string(strict)))
		d.DisallowUnknownFields()
		err = d.Decode(&p)
	}
	if err != nil {
		return m, toolcrib.Errorf(toolcrib.CodeBadRequest, "the body: %v", err)
	}
	if p.Chat == "" || p.Sender == "" || len(p.Chat)+len(p.Thread)+len(p.Sender) > 3*maxID {
		return m, toolcrib.Errorf(toolcrib.CodeBadRequest, "the body: chat and sender are needed, of at most %d bytes each",
			maxID)
	}
	if strings.TrimSpace(p.Text) == "" && len(p.Attachments) == 0 {
		return m, toolcrib.Errorf(toolcrib.CodeBadRequest, "the body: text is needed, unless there are attachments")
	}
	return channel.Message{
		Chat: p.Chat, Thread: p.Thread, ID: id, Sender: p.Sender, Name: p.Name, Text: p.Text, ReplyTo: p.ReplyTo,
		Forwarded: p.Forwarded, Attachments: p.Attachments, Time: at.UTC(),
	}, nil
}

// Send implements [channel.Sender].
func (h *Hook) Send(ctx context.Context, r channel.Reply) (string, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return "", channel.Errorf(channel.Refused, "the reply cannot be written: %w", err)
	}
	at := time.Now()
	err = rest.Do(ctx, h.http, rest.Request{
		URL: h.url, Body: body, Header: http.Header{
			"Webhook-Id": {r.Key}, "Webhook-Timestamp": {strconv.FormatInt(at.Unix(), 10)},
			"Webhook-Signature": {notify.Sign(h.key, r.Key, at, body)},
		},
	})
	return r.Key, err
}

// Deduplicates implements [channel.Sender]: the receiver takes one webhook-id once, as Standard Webhooks says.
func (h *Hook) Deduplicates() bool { return true }

// Parts implements [channel.Sender].
func (h *Hook) Parts(text string) []string { return channel.Split(text, maxText, utf8.RuneLen) }

// Account implements [channel.Sender].
func (h *Hook) Account(context.Context) (string, error) { return address.Where(h.url), nil }

// Receive implements [channel.Receiver]: messages come by requests to the server.
func (h *Hook) Receive(ctx context.Context, _ string, _ channel.Take) error {
	<-ctx.Done()
	return context.Cause(ctx)
}
