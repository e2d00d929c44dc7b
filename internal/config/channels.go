package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib/internal/lazyregexp"
	"github.com/toolcrib/toolcrib/internal/notify/address"
	"github.com/toolcrib/toolcrib/internal/yamltree"
)

// senders are the patterns of stable IDs of senders, by the type of the channel, and what they are.
var senders = map[string]struct {
	pattern *lazyregexp.Regexp
	what    string
}{
	ChannelTelegram: {lazyregexp.New(`^[0-9]{1,20}$`), "the number of a user, such as 12345 (a name can be changed)"},
	ChannelSlack:    {lazyregexp.New(`^[UW][A-Z0-9]{2,30}$`), "the member ID of a user, such as U012AB3CD"},
	ChannelMatrix:   {lazyregexp.New(`^@[^:/]+:[^/]+$`), "the whole ID of a user, such as @ann:example.org"},
	ChannelWebhook:  {lazyregexp.New(`^[^/*]+$`), "the sender that the program names, without / and *"},
}

// userPattern matches the user that a sender is mapped to.
var userPattern = lazyregexp.New(`^[A-Za-z0-9]([A-Za-z0-9._@+-]{0,62}[A-Za-z0-9])?$`)

// Sender is an entry of [Inbound.Allow].
type Sender struct {
	ID   string // without the name or type of the channel; "" if the entry is not valid
	User string // "" if the sender is not mapped to a user of the directory
}

// Senders returns the senders who may write to a channel.
func (c Channel) Senders(name string) []Sender {
	all := make([]Sender, len(c.Inbound.Allow))
	for i, id := range c.Inbound.Allow {
		user := ""
		if at := strings.LastIndexByte(id, '='); at >= 0 {
			id, user = id[:at], id[at+1:]
			if !userPattern.MatchString(user) {
				id = ""
			}
		}
		for _, prefix := range []string{c.Type, name} {
			id = strings.TrimPrefix(id, prefix+":")
		}
		all[i] = Sender{id, user}
	}
	return all
}

// checkChannel checks the settings of a channel that depend on each other.
func (d *decoder) checkChannel(c *Config, name string) {
	at, set := yamltree.JoinKey("channels", name), c.Channels[name]
	kind, receives := senders[set.Type]
	types := slices.Sorted(maps.Keys(senders))
	for _, one := range address.Messengers() {
		if !slices.Contains(types, one) {
			types = append(types, one)
		}
	}
	switch {
	case !slices.Contains(types, set.Type):
		d.at(at+".type", "%s", unknown("type", set.Type, types))
	case !receives && (set.Inbound.Agent != "" || len(set.Inbound.Allow) > 0):
		d.at(at+".inbound", "is for the types %s only: from %s nothing is received", list(slices.Sorted(maps.Keys(senders))),
			set.Type)
	}
	if set.Type != ChannelWebhook && !set.Secret.IsEmpty() {
		d.at(at+".secret", "is for the type webhook only: it signs what is sent both ways")
	}
	d.checkChannelURL(at, set, receives)
	if set.Type == ChannelWebhook && set.Secret.IsEmpty() && !d.Failed(at+".secret") {
		d.at(at+".secret", "is required: messages are signed with it")
	}
	if name == "local" { // local:NAME is a user of this machine
		d.at(at, "must have another name: local:… are the users of this machine")
	}
	if agent := set.Inbound.Agent; agent != "" && !slices.Contains(c.AgentNames(), agent) && !d.Failed("agents") {
		d.at(at+".inbound.agent", "%s", unknown("agent", agent, c.AgentNames()))
	}
	for i, s := range set.Senders(name) {
		if receives && !kind.pattern.MatchString(s.ID) {
			d.at(yamltree.JoinIndex(at+".inbound.allow", i), "must be ID or ID=USER, and the ID %s", kind.what)
		}
	}
}

// checkChannelURL checks the part of an address that is written out.
func (d *decoder) checkChannelURL(at string, set Channel, receives bool) {
	raw := set.URL.Raw()
	scheme := address.Scheme(raw)
	switch {
	case d.Failed(at + ".url"):
	case raw == "":
		d.at(at+".url", "is required")
	case strings.Contains(scheme, "$"), scheme == "" && strings.Contains(raw, "${"): // known at use only
	case set.Type == ChannelWebhook && !address.IsWebhook(raw):
		d.at(at+".url", "must begin with https:// or http://")
	case set.Type != ChannelWebhook && receives && scheme != set.Type && !address.IsWebhook(raw):
		d.at(at+".url", "must begin with %s:// or https://", set.Type)
	case set.Type != ChannelWebhook && receives && !strings.Contains(raw, "@") && !strings.Contains(raw, "${"):
		d.at(at+".url", "has no token before its host: %s://…@…", set.Type)
	case !receives && slices.Contains(address.Messengers(), set.Type) && !slices.Contains(address.Messengers(), scheme):
		d.at(at+".url", "must begin with the scheme of a messenger, such as %s://", set.Type)
	}
}
