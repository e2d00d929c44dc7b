package config

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/hosts"
	"github.com/toolcrib/toolcrib/internal/yamltree"
)

// The tag layers says how the value of a key in the user's configuration and in that of a project
// are combined. Without the tag, mappings merge by key, and of other values the project's applies.
// A key that is not written, or is null without a meaning of its own, is not stated.
const (
	layerNearest = "nearest" // the project's
	layerKeys    = "keys"    // by key
	layerUser    = "user"    // a project cannot set it
	layerWhole   = "whole"   // an entry comes from one file, so that no credential is sent to an address of the other
	layerLeast   = "least"   // the smaller number
	layerCap     = "cap"     // the smaller number; 0 means no cap
	layerAll     = "all"     // the entries of both lists
	layerBoth    = "both"    // patterns for what both lists match; null matches everything
	layerWidens  = "widens"  // the project's; more entries allow more
	layerCommand = "command" // whole; each of the project's is a program that it may run
	layerNetwork = "network" // the strictest of false, ask and hosts; of two lists the hosts of both
	layerRules   = "rules"
	layerBudgets = "budgets"
	// Any other tag has the values from the weakest to the strictest, separated by |. The strictest
	// applies. An empty first value stands for the setting of another key.
)

// layerRule returns how the values of a key are combined.
func layerRule(f yamltree.Field) string {
	_, own := reflect.New(f.Type).Interface().(yamltree.Decodable)
	switch {
	case (f.Layers == layerWhole || f.Layers == layerCommand) && f.Type.Kind() == reflect.Map:
		return layerKeys // of entries, which are whole
	case f.Layers != "":
		return f.Layers
	case !own && (f.Type.Kind() == reflect.Struct || f.Type.Kind() == reflect.Map):
		return layerKeys
	}
	return layerNearest
}

// How a project's configuration differs from the user's, in the texts of [Config.Changes].
const (
	changeReplaces = "replaces"
	changeWidens   = "widens"     // allows more than the user's value or than a default
	changeKeeps    = "keeps your" // the user's value applies, because it is stricter
)

// merger combines the user's configuration and a project's.
type merger struct {
	changes []string
	errs    Errors
}

func (m *merger) change(what string, n *yamltree.Node, format string, args ...any) {
	m.changes = append(m.changes, what+" "+n.Path+": "+fmt.Sprintf(format, args...))
}

// keeps records that the user's value applies, and returns it.
func (m *merger) keeps(user, project *yamltree.Node) *yamltree.Node {
	m.change(changeKeeps, project, "%s; %s is weaker", said(user), said(project))
	return user
}

// at returns the position of a node.
func at(n *yamltree.Node) string { return yamltree.Position(n.File, n.Line) }

// said returns a scalar or a list of scalars, and its line. Keys with secrets must not be shown.
func said(n *yamltree.Node) string {
	return fmt.Sprintf("%s (line %d)", guard.Clip(inline(n), 80), n.Line)
}

// stated reports whether a value is written.
func stated(n *yamltree.Node, f yamltree.Field) bool {
	_, own := reflect.New(f.Type).Interface().(yamltree.Decodable)
	ordered := strings.Contains(f.Layers, "|") // null is then that of a pointer
	return n != nil && (n.Kind != yamltree.Null || (f.Null || own) && !ordered)
}

// merge returns the value of a key. user and project are nil where they do not have the key.
func (m *merger) merge(user, project *yamltree.Node, f yamltree.Field) *yamltree.Node {
	if !stated(project, f) {
		return user
	}
	mine := stated(user, f)
	rule := layerRule(f)
	switch rule {
	case layerUser:
		m.errs = append(m.errs, project.Errorf("cannot be set in the configuration of a folder; write it into your own, "+
			"or name this file with --config"))
		return user
	case layerKeys:
		return m.keys(user, project, f)
	case layerRules:
		return m.rules(user, project)
	case layerBudgets:
		return m.budgets(user, project, f)
	case layerNearest, layerWidens, layerWhole, layerCommand:
		switch rule {
		case layerWidens:
			m.widens(user, project, f)
		case layerCommand:
			m.change(changeWidens, project, "runs %s", ran(project))
		}
		if mine && !bytes.Equal(user.JSON(), project.JSON()) {
			m.replaces(user, project, f)
		}
		if mine && (rule == layerWhole || rule == layerCommand) {
			return m.whole(user, project, f)
		}
		return project
	case layerAll, layerBoth:
		if !mine || user.Kind == yamltree.Null {
			return project
		}
		return m.lists(user, project, rule)
	}
	if rule == layerNetwork && mine && user.Kind == yamltree.List && project.Kind == yamltree.List {
		return m.lists(user, project, rule)
	}
	least := f.DefaultNode()
	if mine {
		least = user
	}
	switch {
	case least == nil || strictness(project, f) >= strictness(least, f):
		return project
	case mine:
		return m.keeps(user, project)
	}
	if least.Text == "" {
		least.Text = "the general setting"
	}
	m.change(changeWidens, project, "%s; yours is %s by default", said(project), least.Text)
	return project
}

// strictness returns a number that is greater for a stricter value.
func strictness(n *yamltree.Node, f yamltree.Field) float64 {
	switch f.Layers {
	case layerNetwork:
		return map[yamltree.Kind]float64{yamltree.List: 0, yamltree.Text: 1, yamltree.Bool: 2}[n.Kind]
	case layerLeast, layerCap:
		number := number(n, f.Type)
		if number == 0 && f.Layers == layerCap {
			return math.Inf(-1)
		}
		return -number
	}
	text := n.Text
	if n.Kind == yamltree.Bool {
		text = fmt.Sprint(n.IsTrue())
	}
	order := strings.Split(f.Layers, "|")
	rank := slices.Index(order, text)
	if order[0] == "" && n.Default {
		rank = 2 // a value of the other key that asks
	}
	return float64(rank)
}

// number returns the value of a number or a duration, with 0 for null.
func number(n *yamltree.Node, t reflect.Type) float64 {
	v := reflect.New(t)
	new(yamltree.Decoder).Decode(n, v.Interface())
	if v.Elem().CanFloat() {
		return v.Elem().Float()
	}
	return float64(v.Elem().Int())
}

// replaces records that the project's value applies instead of the user's.
func (m *merger) replaces(user, project *yamltree.Node, f yamltree.Field) {
	plain := func(n *yamltree.Node) bool {
		nested := func(n *yamltree.Node) bool { return n.Items != nil || n.Entries != nil }
		return f.Secret == "" && n.Entries == nil && !slices.ContainsFunc(n.Items, nested)
	}
	if plain(user) && plain(project) {
		m.change(changeReplaces, project, "%s; yours is %s", said(project), said(user))
		return
	}
	m.change(changeReplaces, project, "line %d; yours (line %d) is not used", project.Line, user.Line)
}

// widens records the entries of a list that the user's does not have.
func (m *merger) widens(user, project *yamltree.Node, f yamltree.Field) {
	if !stated(user, f) {
		user = f.DefaultNode()
	}
	var more []string
	for _, item := range project.Items {
		if !hasText(user.Items, item.Text) {
			more = append(more, item.Text)
		}
	}
	if len(more) > 0 {
		m.change(changeWidens, project, "also %s (line %d)", list(more), project.Line)
	}
}

func hasText(items []*yamltree.Node, text string) bool {
	return slices.ContainsFunc(items, func(n *yamltree.Node) bool { return n.Text == text })
}

// keys merges two mappings by key. user may be nil.
func (m *merger) keys(user, project *yamltree.Node, f yamltree.Field) *yamltree.Node {
	fields := map[string]yamltree.Field{}
	if f.Type.Kind() == reflect.Struct {
		for _, one := range yamltree.Fields(f.Type) {
			fields[one.Key] = one
		}
	}
	of := func(key string) yamltree.Field {
		if f.Type.Kind() == reflect.Map {
			return f.Inner()
		}
		return fields[key]
	}
	out := *project
	out.Kind, out.Entries = yamltree.Map, nil
	if user != nil {
		for _, e := range user.Entries {
			value := m.merge(e.Value, entryOf(project, e.Key), of(e.Key))
			out.Entries = append(out.Entries, yamltree.Entry{Key: e.Key, Value: value})
		}
	}
	for _, e := range project.Entries {
		if user != nil && entryOf(user, e.Key) != nil {
			continue
		}
		if value := m.merge(nil, e.Value, of(e.Key)); value != nil {
			out.Entries = append(out.Entries, yamltree.Entry{Key: e.Key, Value: value})
		}
	}
	return &out
}

// whole returns the project's entry with the stricter values of the user's, which are no credentials.
func (m *merger) whole(user, project *yamltree.Node, f yamltree.Field) *yamltree.Node {
	out := *project
	out.Entries = slices.Clone(project.Entries)
	for _, one := range yamltree.Fields(f.Type) {
		if mine := entryOf(user, one.Key); strings.Contains(one.Layers, "|") && stated(mine, one) {
			setEntry(&out, one.Key, m.merge(mine, entryOf(project, one.Key), one))
		}
	}
	return &out
}

func setEntry(n *yamltree.Node, key string, value *yamltree.Node) {
	for i := range n.Entries {
		if n.Entries[i].Key == key {
			n.Entries[i].Value = value
			return
		}
	}
	n.Entries = append(n.Entries, yamltree.Entry{Key: key, Value: value})
}

// lists combines two lists of texts. An entry keeps its position.
func (m *merger) lists(user, project *yamltree.Node, rule string) *yamltree.Node {
	if project.Kind == yamltree.Null {
		return m.keeps(user, project)
	}
	out := *project
	if rule == layerAll {
		out.Items = slices.Clone(user.Items)
		for _, item := range project.Items {
			if !hasText(out.Items, item.Text) {
				out.Items = append(out.Items, item)
			}
		}
		return &out
	}
	out.Items = []*yamltree.Node{}
	for _, item := range project.Items {
		for _, mine := range user.Items {
			for _, pattern := range common(item.Text, mine.Text, rule) {
				if !hasText(out.Items, pattern) {
					one := *item
					if pattern == mine.Text {
						one = *mine
					}
					one.Text, one.Kind = pattern, yamltree.Text
					out.Items = append(out.Items, &one)
				}
			}
		}
	}
	if !bytes.Equal(out.JSON(), project.JSON()) {
		m.change(changeKeeps, project, "%s; of %s only what both match", said(user), said(project))
	}
	return &out
}

// common returns the entries of a list for what two entries both match.
func common(a, b, rule string) []string {
	if rule != layerNetwork {
		return overlap(a, b, map[[2]string][]string{})
	}
	if both := hosts.Both(a, b); both != "" {
		return []string{both}
	}
	return nil
}

// rules returns the rules of both files. Of rules with the same content or, if they allow, with the
// same name, the project's applies.
func (m *merger) rules(user, project *yamltree.Node) *yamltree.Node {
	out := *project
	out.Items = nil
	if user == nil {
		user = &yamltree.Node{}
	}
	for _, rule := range user.Items {
		same := slices.IndexFunc(project.Items, func(n *yamltree.Node) bool {
			return textOf(n, "name") == textOf(rule, "name")
		})
		switch {
		case same < 0:
		case bytes.Equal(rule.JSON(), project.Items[same].JSON()):
			continue
		case allows(rule):
			m.change(changeReplaces, project.Items[same], "%s (line %d); your rule of that name (line %d) is not used",
				textOf(rule, "name"), project.Items[same].Line, rule.Line)
			continue
		}
		out.Items = append(out.Items, rule)
	}
	for _, rule := range project.Items {
		if allows(rule) {
			m.change(changeWidens, rule, "%s allows calls (line %d)", textOf(rule, "name"), rule.Line)
		}
		out.Items = append(out.Items, rule)
	}
	return &out
}

func allows(rule *yamltree.Node) bool { return textOf(rule, "then") == "allow" }

// textOf returns the text of a key of a mapping, or "".
func textOf(n *yamltree.Node, key string) string {
	if n = entryOf(n, key); n != nil {
		return n.Text
	}
	return ""
}

// budgets returns the budget of each user that a file names: of the entries that apply in the two
// files, the stricter caps.
func (m *merger) budgets(user, project *yamltree.Node, f yamltree.Field) *yamltree.Node {
	if user == nil || user.Kind == yamltree.Null {
		return project
	}
	of := func(n *yamltree.Node, name string) (found *yamltree.Node) {
		for _, item := range n.Items {
			switch cmp.Or(textOf(item, "user"), "*") {
			case name:
				return item
			case "*":
				found = item
			}
		}
		return found
	}
	out := *project
	out.Items = nil
	for _, item := range slices.Concat(project.Items, user.Items) {
		name := cmp.Or(textOf(item, "user"), "*")
		if slices.ContainsFunc(out.Items, func(n *yamltree.Node) bool { return textOf(n, "user") == name }) {
			continue
		}
		mine, its := of(user, name), of(project, name)
		merged := *cmp.Or(its, mine)
		merged.Entries = nil
		for _, one := range yamltree.Fields(f.Type.Elem()) {
			value := m.merge(entryOf(mine, one.Key), entryOf(its, one.Key), one)
			if one.Key == "user" {
				value = &yamltree.Node{Kind: yamltree.Text, Text: name, File: item.File, Line: item.Line, Column: item.Column}
			}
			if value != nil {
				own := *value // an entry for * may be part of several
				setEntry(&merged, one.Key, &own)
			}
		}
		out.Items = append(out.Items, &merged)
	}
	return &out
}

// floors applies what the user states for one key to other keys of the project that would lift it.
func (m *merger) floors(user, project *yamltree.Node) {
	tools, its := entryOf(user, "tools"), entryOf(project, "tools")
	confirm := entryOf(tools, "confirm")
	servers, settings := entryOf(user, "mcpServers"), entryOf(tools, "settings")
	const order = "|never|writes|always"
	asking := []*yamltree.Node{confirm}
	tainting := (*yamltree.Node)(nil)
	for _, e := range entriesOf(settings) {
		asking = append(asking, entryOf(e.Value, "confirm"))
		if n := entryOf(e.Value, "untrusted"); n != nil && n.IsTrue() {
			tainting = n
		}
	}
	for _, e := range entriesOf(servers) {
		asking = append(asking, entryOf(e.Value, "confirm"))
	}
	for _, e := range entriesOf(entryOf(its, "settings")) {
		floor := confirm
		for _, server := range entriesOf(servers) {
			if own := entryOf(server.Value, "confirm"); own != nil && strings.HasPrefix(e.Key, server.Key+"__") {
				floor = own
			}
		}
		m.raise(entryOf(settings, e.Key), e.Value, "confirm", order, floor)
	}
	for _, e := range entriesOf(entryOf(project, "mcpServers")) {
		m.raise(entryOf(servers, e.Key), e.Value, "confirm", order, confirm)
	}
	commands, network := entryOf(tools, "commands"), entryOf(entryOf(tools, "shell"), "network")
	if network != nil { // the network of a command is open, which is more than hosts
		none := *network
		none.Kind, none.Text, none.Items = yamltree.Bool, "false", nil
		network = &none
	}
	for _, e := range entriesOf(entryOf(its, "commands")) {
		m.raise(entryOf(commands, e.Key), e.Value, "network", "true|false", network)
	}
	for _, e := range entriesOf(entryOf(project, "agents")) {
		mine := entryOf(entryOf(user, "agents"), e.Key)
		m.raise(entryOf(mine, "taint"), entryOf(e.Value, "taint"), "writes", "allow|ask|deny", implied(tainting, "ask"))
		budget := entryOf(mine, "budget")
		m.raise(budget, entryOf(e.Value, "budget"), "mode", "off|warn|enforce", implied(budget, "enforce"))
	}
	mine, team := entryOf(entryOf(user, "team"), "worker_tools"), entryOf(entryOf(project, "team"), "worker_tools")
	m.raise(mine, team, "cost_cap_mode", "off|warn|enforce", implied(mine, "warn"))
	asks := slices.IndexFunc(asking, func(n *yamltree.Node) bool {
		return n != nil && (n.Text == "writes" || n.Text == "always")
	})
	if rules := entryOf(project, "rules"); asks >= 0 && rules != nil {
		rules.Items = slices.DeleteFunc(rules.Items, func(rule *yamltree.Node) bool {
			if allows(rule) {
				m.change(changeKeeps, asking[asks], "%s; the rule %s (line %d) cannot allow what it asks about",
					said(asking[asks]), textOf(rule, "name"), rule.Line)
			}
			return allows(rule)
		})
	}
}

// implied returns a default that the user relies on by writing another key n, or nil.
func implied(n *yamltree.Node, text string) *yamltree.Node {
	if n == nil || n.Kind == yamltree.Map && len(n.Entries) == 0 || n.Kind == yamltree.Null {
		return nil
	}
	return &yamltree.Node{Kind: yamltree.Text, Text: text, File: n.File, Line: n.Line, Column: n.Column}
}

// raise sets a key of the project's section to floor if the project's value is weaker and the user's
// section does not have the key, or "", which stands for floor.
func (m *merger) raise(user, project *yamltree.Node, key, order string, floor *yamltree.Node) {
	f := yamltree.Field{Type: reflect.TypeFor[string](), Layers: order}
	own, value := entryOf(user, key), entryOf(project, key)
	open := !stated(own, f) || own.Text == ""
	if floor != nil && open && stated(value, f) && strictness(value, f) < strictness(floor, f) {
		kept := *m.keeps(floor, value) // it has another path
		setEntry(project, key, &kept)
	}
}

// entriesOf returns the entries of a mapping, or none.
func entriesOf(n *yamltree.Node) []yamltree.Entry {
	if n == nil {
		return nil
	}
	return n.Entries
}

// Bounds of the patterns that are compared, and of their overlap. Patterns beyond them match nothing.
const (
	maxOverlap = 100
	maxPattern = 64 // as long as a name can be
	maxStars   = 4
)

// overlap returns patterns that together match the names that both patterns match.
func overlap(a, b string, known map[[2]string][]string) (all []string) {
	at := [2]string{a, b}
	if found, ok := known[at]; ok {
		return found
	}
	long := func(p string) bool { return len(p) > maxPattern || strings.Count(p, "*") > maxStars }
	star := func(p string) bool { return strings.HasPrefix(p, "*") }
	add := func(first, a, b string) {
		for _, rest := range overlap(a, b, known) {
			if first == "*" {
				rest = strings.TrimLeft(rest, "*")
			}
			if text := first + rest; len(all) < maxOverlap && !slices.Contains(all, text) {
				all = append(all, text)
			}
		}
	}
	switch {
	case a == b:
		all = []string{a}
	case long(a), long(b):
	case star(a) && star(b):
		add("*", a[1:], b)
		add("*", a, b[1:])
	case star(b):
		all = overlap(b, a, known)
	case star(a):
		add("", a[1:], b)
		if b != "" {
			add(b[:1], a, b[1:])
		}
	case a == "", b == "":
	case a[0] == b[0], a[0] == '?':
		add(b[:1], a[1:], b[1:])
	case b[0] == '?':
		add(a[:1], a[1:], b[1:])
	}
	known[at] = all
	return all
}
