package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/internal/notify/address"
	"github.com/toolcrib/toolcrib/internal/providers"
	"github.com/toolcrib/toolcrib/internal/yamltree"
)

// maxShellTimeout is the longest that exec_shell may run (contract §2).
const maxShellTimeout = 300 * time.Second

// check finds what is only wrong in its context. It passes over what could not be
// read, which has its error already.
func (d *decoder) check(c *Config) {
	for _, name := range slices.Sorted(maps.Keys(c.Providers)) {
		d.checkProvider(c, name)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Models)) {
		d.checkModel(c, name)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Agents)) {
		d.checkAgent(c, name)
	}
	d.checkBudgets(c)
	d.checkRules(c)
	for _, name := range slices.Sorted(maps.Keys(c.MCPServers)) {
		d.checkMCPServer(c, name)
	}
	d.checkTools(c)
	d.checkNotify(c)
	d.checkServer(c)
}

// checkNotify refuses a secret for an address whose messages are not signed.
func (d *decoder) checkNotify(c *Config) {
	for i, n := range c.Approvals.Notify {
		scheme := address.Scheme(n.URL.Raw())
		if !n.Secret.IsEmpty() && scheme != "" && !strings.Contains(scheme, "$") && !address.IsWebhook(n.URL.Raw()) {
			d.at(yamltree.JoinIndex("approvals.notify", i)+".secret",
				"is for https://… only: what messengers are sent is not signed")
		}
	}
}

func (d *decoder) checkProvider(c *Config, name string) {
	at := yamltree.JoinKey("providers", name)
	p := c.Providers[name]
	if p.Type == "" {
		if !slices.Contains(providers.Names(nil), name) {
			d.at(yamltree.JoinKey(at, "type"), "is required: one of %s", list(providers.Names(nil)))
			return
		}
		p.Type = name
	}
	// The vendor's own API takes nothing without a key. Another server, which base_url
	// names, must not be sent the vendor's.
	written := d.nodes[yamltree.JoinKey(at, "api_key")] != nil
	t, _ := providers.Of(p.Type)
	if !written && p.BaseURL.IsEmpty() && len(p.Headers) == 0 {
		if key := usualKey(t, at); !key.IsEmpty() {
			p.APIKey = key
		}
	}
	c.Providers[name] = p
	if t.HasFile && p.File.IsEmpty() {
		d.at(yamltree.JoinKey(at, "file"), "is required for type %s: the file with the replies", p.Type)
	}
	if !t.HasFile && !p.File.IsEmpty() {
		d.at(yamltree.JoinKey(at, "file"), "is only for type %s",
			list(providers.Names(func(t providers.Type) bool { return t.HasFile })))
	}
	if !t.HasAPI && p.API != "" {
		d.at(yamltree.JoinKey(at, "api"), "is only for type %s",
			list(providers.Names(func(t providers.Type) bool { return t.HasAPI })))
	}
}

func (d *decoder) checkModel(c *Config, name string) {
	at := yamltree.JoinKey("models", name)
	provider := c.Models[name].Provider
	if provider == "" || d.Failed("providers") || d.Failed(yamltree.JoinKey("providers", provider)) {
		return
	}
	if _, ok := c.provider(provider); !ok {
		d.at(yamltree.JoinKey(at, "provider"), "%s", c.unknownProvider(provider))
	}
}

func (d *decoder) checkAgent(c *Config, name string) {
	at := yamltree.JoinKey("agents", name)
	agent := c.Agents[name]
	d.checkModelRef(c, yamltree.JoinKey(at, "model"), agent.Model)
	for i, ref := range agent.Fallback {
		d.checkModelRef(c, yamltree.JoinIndex(yamltree.JoinKey(at, "fallback"), i), ref)
	}
	choice := agent.ToolChoice
	if agent.Tools != nil && len(agent.Tools) == 0 &&
		(choice.Mode == toolcrib.ChoiceRequired || choice.Mode == toolcrib.ChoiceName) {
		d.at(yamltree.JoinKey(at, "tool_choice"), "asks for a tool, but tools is []: the agent has none")
	}
}

func (d *decoder) checkModelRef(c *Config, at, ref string) {
	if ref == "" || d.Failed("models") || d.Failed("providers") || d.Failed(yamltree.JoinKey("models", ref)) {
		return
	}
	// A model or provider with an error of its own is named there.
	provider, _, _ := strings.Cut(ref, "/")
	for _, e := range d.Errors {
		path := e.Key
		if strings.HasPrefix(path, yamltree.JoinKey("models", ref)+".") || path == yamltree.JoinKey("providers", provider) ||
			strings.HasPrefix(path, yamltree.JoinKey("providers", provider)+".") {
			return
		}
	}
	if _, err := c.ResolveModel(ref); err != nil {
		d.at(at, "%s", err)
	}
}

func (d *decoder) checkBudgets(c *Config) {
	first := map[string]int{}
	for i, b := range c.Budgets {
		at := yamltree.JoinIndex("budgets", i) + ".user"
		before, known := first[b.User]
		problem := badUser(b.User)
		switch {
		case known:
			d.at(at, "%s has its budget in budgets[%d] already", yamltree.Quote(b.User), before)
			continue
		case b.User != "*" && strings.ContainsAny(b.User, "*?["):
			d.at(at, "must be a name, or * for each user without an entry, not %s", yamltree.Quote(b.User))
		case problem != "":
			d.at(at, "%s", problem)
		}
		first[b.User] = i
	}
}

// badUser explains why no user can have a name; "" if one can.
func badUser(name string) string {
	if name == "*" || name == "anonymous" || strings.HasPrefix(name, "local:") {
		return ""
	}
	normal, err := access.CheckName(name)
	switch {
	case err != nil:
		return "no user can be called so: " + err.Error()
	case normal != name:
		return fmt.Sprintf("no user is called %s, but %q in the normal form of names; write it so", yamltree.Quote(name),
			normal)
	}
	return ""
}

func (d *decoder) checkRules(c *Config) {
	first := map[string]int{}
	for i, r := range c.Rules {
		if before, ok := first[r.Name]; ok && r.Name != "" {
			d.at(yamltree.JoinIndex("rules", i)+".name", "%s is the name of rules[%d] already", yamltree.Quote(r.Name), before)
			continue
		}
		first[r.Name] = i
	}
}

func (d *decoder) checkMCPServer(c *Config, name string) {
	at := yamltree.JoinKey("mcpServers", name)
	s := c.MCPServers[name]
	program, remote := !s.Command.IsEmpty(), !s.URL.IsEmpty()
	switch {
	case program && remote:
		d.at(yamltree.JoinKey(at, "url"), "cannot be combined with command: a server is a program or an address")
	case !program && !remote:
		d.at(at, "needs command (a program) or url (an address)")
	case program && cmp.Or(s.Type, "stdio") != "stdio":
		d.at(yamltree.JoinKey(at, "type"), "must be stdio for a server with command")
	case remote && s.Type == "stdio":
		d.at(yamltree.JoinKey(at, "type"), "must be http, streamable-http or sse for a server with url")
	case remote && len(s.Args)+len(s.Env) > 0:
		d.at(yamltree.JoinKey(at, "url"), "a server with url has no args and no env")
	case program && len(s.Headers) > 0:
		d.at(yamltree.JoinKey(at, "headers"), "are only for a server with url")
	}
}

func (d *decoder) checkTools(c *Config) {
	if s, ok := c.Tools.Settings["exec_shell"]; ok && s.Timeout != nil && s.Timeout.Std() > maxShellTimeout {
		d.at("tools.settings.exec_shell.timeout", "must be at most 300s")
	}
}

func (d *decoder) checkServer(c *Config) {
	if c.Server.TLS.Cert.IsEmpty() != c.Server.TLS.Key.IsEmpty() {
		d.at("server.tls", "needs both cert and key, or neither")
	}
	if c.Server.Auth != "none" || d.Failed("listen") {
		return
	}
	if refPattern.MatchString(c.Listen.Raw()) {
		d.at("server.auth", "none needs a listen address that is written out, so that it is known to be loopback")
	} else if !isLoopback(c.Listen.Raw()) {
		d.at("server.auth", "none is refused unless listen is loopback, such as 127.0.0.1:8420")
	}
}

// unknown is an error text: no such name, the nearest one, and the known ones.
func unknown(what, name string, names []string) string {
	have := "none is configured"
	if len(names) > 0 {
		have = "valid: " + list(names)
	}
	return fmt.Sprintf("unknown %s %s%s (%s)", what, yamltree.Quote(name), yamltree.DidYouMean(name, names), have)
}
