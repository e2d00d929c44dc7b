package config

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/hosts"
	"github.com/toolcrib/toolcrib/internal/notify/address"
	"github.com/toolcrib/toolcrib/internal/providers"
	"github.com/toolcrib/toolcrib/internal/yamltree"
)

// maxShellTimeout is the longest timeout of exec_shell.
const maxShellTimeout = 300 * time.Second

// check adds the errors that depend on several keys. It ignores keys that have an error already.
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
	d.checkCommands(c)
	d.checkNotify(c)
	for _, name := range slices.Sorted(maps.Keys(c.Channels)) {
		d.checkChannel(c, name)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Team.Panels)) {
		d.checkPanel(c, name)
	}
	d.checkBound(c)
	d.checkOffers(c)
	d.checkServer(c)
}

func (d *decoder) checkPanel(c *Config, name string) {
	at, panel := yamltree.JoinKey("team.panels", name), c.Team.Panels[name]
	named := map[string]string{"proposer": panel.Proposer, "synthesizer": panel.Synthesizer}
	for i, agent := range panel.Agents {
		named[yamltree.JoinIndex("agents", i)] = agent
	}
	for _, key := range slices.Sorted(maps.Keys(named)) {
		if _, known := c.Agents[named[key]]; !known && named[key] != "" && !d.Failed("agents") {
			d.at(at+"."+key, "%s", unknown("agent", named[key], c.AgentNames()))
		}
	}
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
	// The vendor's API needs a key, so the usual variable is the default. The key must not be sent to
	// another server, which base_url names.
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
	if !t.OnBus && (p.Node != "" || !p.Token.IsEmpty()) {
		d.at(at, "node and token are only for type bus")
	}
	if t.OnBus && !p.BaseURL.IsEmpty() {
		d.at(yamltree.JoinKey(at, "base_url"), "is not for type bus, which calls the model of a node of the bus")
	}
	if !t.HasReasoning && p.Reasoning != "" {
		d.at(yamltree.JoinKey(at, "reasoning"), "is only for type %s",
			list(providers.Names(func(t providers.Type) bool { return t.HasReasoning })))
	}
	if !t.HasAPI && p.API != "" {
		d.at(yamltree.JoinKey(at, "api"), "is only for type %s",
			list(providers.Names(func(t providers.Type) bool { return t.HasAPI })))
	}
}

func (d *decoder) checkModel(c *Config, name string) {
	at := yamltree.JoinKey("models", name)
	provider := c.Models[name].Provider
	if provider == "" || d.hasError(yamltree.JoinKey("providers", provider)) {
		return
	}
	if _, ok := c.provider(provider); !ok {
		d.at(yamltree.JoinKey(at, "provider"), "%s", c.unknownProvider(provider))
	}
}

// hasError reports whether there is an error about a key, or about a key above or below it.
func (d *decoder) hasError(key string) bool {
	return slices.ContainsFunc(d.Errors, func(e Error) bool { return About(e, key) })
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
	// An error about the model or the provider itself is sufficient.
	provider, _, _ := strings.Cut(ref, "/")
	if ref == "" || d.hasError(yamltree.JoinKey("models", ref)) || d.hasError(yamltree.JoinKey("providers", provider)) {
		return
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

// badUser returns why no user can have this name, or "".
func badUser(name string) string {
	if name == "*" || name == "anonymous" || strings.HasPrefix(name, "local:") {
		return ""
	}
	if err := access.CheckName(name); err != nil {
		return "no user can be called so: " + err.Error()
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
	case d.Failed(yamltree.JoinKey(at, "url")), d.Failed(yamltree.JoinKey(at, "command")):
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
	for _, name := range []string{"HOME", "PATH", "TMPDIR"} {
		if _, set := c.Tools.Shell.Env[name]; set {
			d.at(yamltree.JoinKey("tools.shell.env", name), "cannot be set: HOME and TMPDIR are new for each call, PATH is "+
				"tools.shell.path")
		}
	}
	for i, name := range c.Tools.Shell.Unconfined {
		problem := badUser(name)
		if group, is := strings.CutPrefix(name, "group:"); is {
			problem = badUser(group)
		}
		if strings.Contains(name, "*") {
			problem = "must be the name of a user, or group:NAME, not a pattern"
		}
		if problem != "" {
			d.at(yamltree.JoinIndex("tools.shell.unconfined", i), "%s", problem)
		}
	}
}

func (d *decoder) checkOIDC(o *OIDC) {
	switch {
	case o.Issuer == "":
	case o.ClientID.IsEmpty():
		d.at("server.oidc.client_id", "is needed with an issuer")
	case o.GroupsClaim == "" && (len(o.Roles) > 0 || len(o.Admins) > 0):
		d.at("server.oidc.groups_claim", "is needed for roles and admins, which depend on it")
	}
}

func (d *decoder) checkServer(c *Config) {
	for key, pair := range map[string]TLS{"server.tls": c.Server.TLS, "bus.tls": c.Bus.TLS} {
		if pair.Cert.IsEmpty() != pair.Key.IsEmpty() {
			d.at(key, "needs both cert and key, or neither")
		}
	}
	d.checkOIDC(&c.Server.OIDC)
	if c.Server.Auth != "none" || d.Failed("listen") {
		return
	}
	if refPattern.MatchString(c.Listen.Raw()) {
		d.at("server.auth", "none needs a listen address that is written out, so that it is known to be loopback")
	} else if !isLoopback(c.Listen.Raw()) {
		d.at("server.auth", "none is refused unless listen is loopback, such as 127.0.0.1:8420")
	}
}

// unknown returns the text of an error for an unknown name, with the nearest and all valid names.
func unknown(what, name string, names []string) string {
	have := "none is configured"
	if len(names) > 0 {
		have = "valid: " + list(names)
	}
	return fmt.Sprintf("unknown %s %s%s (%s)", what, yamltree.Quote(name), guard.DidYouMean(name, names), have)
}

// MaxBytes is the maximum size of a configuration file.
const MaxBytes = 1 << 20

// limits returns the limits of a configuration file.
func limits() yamltree.Limits { return yamltree.Limits{Bytes: MaxBytes, Tokens: 30_000, Depth: 32} }

// Types with a DecodeYAML method.
type (
	// Duration is a duration, written like 30s, 15m, 72h or 90d, or as the number 0.
	Duration = yamltree.Duration
	// JSON is a JSON object as it was written, with its keys in order; nil for null.
	// References in it are not resolved.
	JSON = yamltree.JSON
	// ToolChoice is written auto, none, required or {name: TOOL}.
	ToolChoice toolcrib.ToolChoice
	// Network is written false, ask, or as a list of hosts.
	Network struct {
		Ask   bool
		Hosts []string
	}
)

// decoder fills a Config from the tree of a file.
type decoder struct {
	yamltree.Decoder
	nodes map[string]*yamltree.Node // by key path
}

func newDecoder(file string) *decoder {
	here, _ := os.Getwd() // determined once, not at each use
	return &decoder{
		Decoder: yamltree.Decoder{File: file, Folders: map[string]string{"": here}, Check: checkWritten, Keys: checkKey},
		nodes:   map[string]*yamltree.Node{},
	}
}

// index adds n and the nodes below it to d.nodes.
func (d *decoder) index(n *yamltree.Node) {
	d.nodes[n.Path] = n
	for _, item := range n.Items {
		d.index(item)
	}
	for _, e := range n.Entries {
		d.index(e.Value)
	}
}

// nearest returns the node of a key path, or of the nearest key above it that is written, or nil.
func nearest(nodes map[string]*yamltree.Node, path string) *yamltree.Node {
	for ; path != ""; path = yamltree.Parent(path) {
		if n := nodes[path]; n != nil {
			return n
		}
	}
	return nil
}

// at adds an error about a key path, on the line of the nearest key that is written, unless the
// key or one above it has an error already.
func (d *decoder) at(path, format string, args ...any) {
	for p := path; p != ""; p = yamltree.Parent(p) {
		if d.Failed(p) {
			return
		}
	}
	e := Error{Line: 1, Key: path, Message: fmt.Sprintf(format, args...)}
	if n := nearest(d.nodes, path); n != nil {
		e.File, e.Line, e.Column = n.File, n.Line, n.Column
	}
	d.Add(e)
}

// checkWritten returns the problem with a text that must not contain references, or "".
func checkWritten(f yamltree.Field, text string) string {
	switch {
	case f.Format == "schema":
		return gate.SchemaProblem([]byte(text))
	case f.Format != "object" && refPattern.MatchString(text):
		return "cannot hold a reference such as ${env:NAME}; write the value itself"
	}
	return checkFormat(f.Format, text)
}

// DecodeYAML decodes a text that may contain references.
func (v *Value) DecodeYAML(d *yamltree.Decoder, n *yamltree.Node, f yamltree.Field) {
	if !d.IsText(n, f) {
		return
	}
	out := Value{raw: n.Text, at: Error{Key: n.Path}, format: f.Format, secret: f.Secret}
	if !n.Default {
		out.at.File, out.at.Line, out.base = n.File, n.Line, d.Folders[n.File]
	} else if f.Format == "path" && filepath.IsLocal(n.Text) {
		out.base = d.Folders[""]
	}
	if problem := out.check(); problem != "" {
		d.Errorf(n, "%s", problem)
		return
	}
	if out.raw == "" && (f.Min != "" || f.Required) {
		d.Errorf(n, "must not be empty")
		return
	}
	*v = out
}

var choiceModes = []string{toolcrib.ChoiceAuto, toolcrib.ChoiceNone, toolcrib.ChoiceRequired}

// DecodeYAML decodes auto, none, required or {name: TOOL}.
func (c *ToolChoice) DecodeYAML(d *yamltree.Decoder, n *yamltree.Node, _ yamltree.Field) {
	switch {
	case n.Kind == yamltree.Text && slices.Contains(choiceModes, n.Text):
		*c = ToolChoice{Mode: n.Text}
	case n.Kind == yamltree.Map && len(n.Entries) == 1 && n.Entries[0].Key == "name" &&
		n.Entries[0].Value.Kind == yamltree.Text && toolPattern.MatchString(n.Entries[0].Value.Text):
		*c = ToolChoice{Mode: toolcrib.ChoiceName, Name: n.Entries[0].Value.Text}
	default:
		d.Errorf(n, "must be auto, none, required or {name: TOOL}")
	}
}

// maxNetwork bounds the hosts of tools.shell.network.
const maxNetwork = 1000

// DecodeYAML decodes false, ask, or a list of hosts.
func (w *Network) DecodeYAML(d *yamltree.Decoder, n *yamltree.Node, _ yamltree.Field) {
	*w = Network{}
	switch {
	case n.Kind == yamltree.Bool && !n.IsTrue():
	case n.Kind == yamltree.Text && n.Text == "ask":
		w.Ask = true
	case n.Kind == yamltree.List && len(n.Items) <= maxNetwork:
		w.Hosts = []string{}
		for _, item := range n.Items {
			problem := "must be a text"
			if item.Kind == yamltree.Text {
				problem = hosts.CheckHost(item.Text)
			}
			if problem != "" {
				d.Errorf(item, "%s", problem)
			}
			w.Hosts = append(w.Hosts, item.Text)
		}
	default:
		d.Errorf(n, "must be false, ask, or a list of at most %d hosts, such as [registry.npmjs.org]", maxNetwork)
	}
}

// Error is an error in a configuration.
type Error = yamltree.Error

// About reports whether the error is about a key, or about a key above or below it.
func About(e Error, key string) bool {
	for a, b := range map[string]string{e.Key: key, key: e.Key} {
		if rest, ok := strings.CutPrefix(a, b); ok && (rest == "" || b != "" && strings.ContainsAny(rest[:1], ".[")) {
			return true
		}
	}
	return false
}

// Errors are all errors in a configuration, by file and line.
type Errors []Error

// Error returns one line for each error.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i := range e {
		lines[i] = e[i].Error()
	}
	return strings.Join(lines, "\n")
}

// maxErrors bounds the errors that are reported for one file.
const maxErrors = 200

// Sorted returns the errors by line, without duplicates and at most maxErrors.
func (e Errors) Sorted() Errors {
	slices.SortStableFunc(e, func(a, b Error) int { return cmp.Or(strings.Compare(a.File, b.File), a.Line-b.Line) })
	e = slices.Compact(e)
	if len(e) > maxErrors {
		e = append(e[:maxErrors:maxErrors], Error{File: e[0].File, Message: fmt.Sprintf("%d more errors", len(e)-maxErrors)})
	}
	return e
}

// list joins names for a message, at most 20 of them.
func list(names []string) string {
	if len(names) > 20 {
		return strings.Join(names[:20], ", ") + ", …"
	}
	return strings.Join(names, ", ")
}

// NeedRestart returns the keys that differ in next and that a process reads only when it starts.
func (c *Config) NeedRestart(next *Config) (keys []string) {
	now, then := written(reflect.ValueOf(c).Elem(), Value.Raw), written(reflect.ValueOf(next).Elem(), Value.Raw)
	for _, key := range []string{
		"bus.ca_file", "bus.credentials", "bus.name", "bus.tls", "bus.url", "data_dir", "database", "keys", "listen",
		"log.file", "log.format", "log.level", "server.max_runs", "server.tls.cert", "server.tls.key", "telemetry.content",
		"telemetry.otlp",
	} {
		a, b := now, then
		for part := range strings.SplitSeq(key, ".") {
			a, b = entryOf(a, part), entryOf(b, part)
		}
		if !bytes.Equal(a.JSON(), b.JSON()) {
			keys = append(keys, key)
		}
	}
	return keys
}
