package env

import (
	"context"
	"errors"
	"slices"
	"unicode/utf16"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/channel"
	"github.com/toolcrib/toolcrib/channel/matrix"
	"github.com/toolcrib/toolcrib/channel/slack"
	"github.com/toolcrib/toolcrib/channel/telegram"
	"github.com/toolcrib/toolcrib/channel/webhook"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/notify"
	"github.com/toolcrib/toolcrib/internal/notify/address"
)

// OpenChannel returns the API of a configured channel. It connects to nothing. A type without replies has messages out
// only, as notifications of approvals are sent.
func (e *Env) OpenChannel(name string) (channel.Sender, error) {
	set, ok := e.Config.Channels[name]
	if !ok {
		return nil, toolcrib.Errorf(toolcrib.CodeNotFound, "there is no channel %q", name)
	}
	to, err := set.URL.Resolve(e.Resolver())
	if err != nil {
		return nil, err
	}
	if a, err := channel.ParseAddress(to, set.Type, ""); err == nil { // tokens may be in errors by themselves
		key := "channels." + name + ".url"
		e.Mask.Learn(guard.Secret{Name: key, Value: a.Password}, guard.Secret{Name: key, Value: a.User + ":" + a.Password})
		if set.Type == config.ChannelSlack {
			e.Mask.Learn(guard.Secret{Name: key, Value: a.User})
		}
	}
	var opened channel.Sender
	switch set.Type {
	case config.ChannelTelegram:
		opened, err = telegram.New(to)
	case config.ChannelSlack:
		opened, err = slack.New(to)
	case config.ChannelMatrix:
		opened, err = matrix.New(to)
	case config.ChannelWebhook:
		var key []byte
		secret, err := set.Secret.Resolve(e.Resolver())
		if err == nil {
			key, err = address.Key(secret)
		}
		if err != nil {
			return nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "channels.%s.secret: %v", name, err)
		}
		hook, err := webhook.New(to, key)
		if err != nil {
			return nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "channels.%s.url: %v", name, err)
		}
		return hook, nil
	default:
		opened, err = e.outOnly(to)
	}
	if err != nil {
		return nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "channels.%s.url: %v", name, err)
	}
	return opened, nil
}

// outOnly returns a messenger that only sends.
func (e *Env) outOnly(to string) (channel.Sender, error) {
	if !slices.Contains(address.Messengers(), address.Scheme(to)) {
		return nil, errors.New("must begin with the scheme of a messenger")
	}
	return &messenger{to: to, line: &e.line}, nil
}

// messenger is a [channel.Sender] of addresses that have the chat in them.
type messenger struct {
	to   string
	line *notify.Line
}

// maxMessage is the length that all messengers take, in characters.
const maxMessage = 1900

func (m *messenger) Chat(named string) (string, error) {
	if named != "" {
		return "", errors.New("the chat of this channel is part of its address; name none")
	}
	return "", nil
}

func (m *messenger) Send(ctx context.Context, r channel.Reply) (string, error) {
	if reason := notify.Tell(ctx, m.line, m.to, r.Text); reason != "" {
		return "", channel.Errorf(channel.Doubt, "%s", reason)
	}
	return "", nil
}

func (m *messenger) Deduplicates() bool { return false }

func (m *messenger) Parts(text string) []string {
	return channel.Split(text, maxMessage, utf16.RuneLen)
}

func (m *messenger) Account(context.Context) (string, error) {
	return address.Where(m.to) + ", for messages out only", nil
}
