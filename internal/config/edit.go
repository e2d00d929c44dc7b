package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib/internal/yamltree"
)

// MCPEntry is an entry of mcpServers as it is written.
type MCPEntry struct {
	Type     string            `json:"type,omitempty"`
	Command  string            `json:"command,omitempty"`
	Args     []string          `json:"args,omitempty"`
	Env      map[string]string `json:"env,omitempty"`
	Cwd      string            `json:"cwd,omitempty"`
	URL      string            `json:"url,omitempty"`
	Headers  map[string]string `json:"headers,omitempty"`
	Tools    []string          `json:"tools,omitempty"`
	Timeout  string            `json:"timeout,omitempty"`
	Disabled bool              `json:"disabled,omitempty"`
}

// unquoted is a text that needs no quotes in YAML; words are texts that would be no texts then.
var (
	unquoted = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9_./-]*$`)
	words    = regexp.MustCompile(`^(?i)(true|false|null|yes|no|on|off|y|n)$`)
)

func quoted(text string) string {
	if unquoted.MatchString(text) && !words.MatchString(text) {
		return text
	}
	return jsonText(text)
}

// jsonText is a value as JSON, which is YAML, too.
func jsonText(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // texts, lists and mappings of them cannot fail
	return strings.TrimSuffix(b.String(), "\n")
}

// lines writes the entry as a block, below indent.
func (e *MCPEntry) lines(name, indent string) string {
	var b strings.Builder
	put := func(depth int, key, value string) {
		fmt.Fprintf(&b, "%s%s%s:%s\n", indent, strings.Repeat("  ", depth), quoted(key), value)
	}
	text := func(key, value string) {
		if value != "" {
			put(1, key, " "+quoted(value))
		}
	}
	list := func(key string, values []string) {
		if len(values) == 0 {
			return
		}
		all := make([]string, len(values))
		for i, v := range values {
			all[i] = quoted(v)
		}
		put(1, key, " ["+strings.Join(all, ", ")+"]")
	}
	mapping := func(key string, values map[string]string) {
		if len(values) == 0 {
			return
		}
		put(1, key, "")
		for _, k := range slices.Sorted(maps.Keys(values)) {
			put(2, k, " "+quoted(values[k]))
		}
	}
	put(0, name, "")
	text("type", e.Type)
	text("command", e.Command)
	list("args", e.Args)
	mapping("env", e.Env)
	text("cwd", e.Cwd)
	text("url", e.URL)
	mapping("headers", e.Headers)
	list("tools", e.Tools)
	text("timeout", e.Timeout)
	if e.Disabled {
		put(1, "disabled", " true")
	}
	return b.String()
}

const mcpKey = "mcpServers"

// AddMCPServer returns the text of a configuration with a server added to mcpServers. All
// else stays as it is written, comments too. It returns an error if the server is there
// already, or if it cannot be added in a way that changes nothing else.
func AddMCPServer(file string, text []byte, name string, e MCPEntry) ([]byte, error) {
	servers, err := mcpServersOf(file, text)
	if err != nil {
		return nil, err
	}
	if servers != nil && entryOf(servers, name) != nil {
		return nil, fmt.Errorf("%s has a server %s already", file, name)
	}
	lines := linesOf(text)
	switch {
	case servers == nil:
		lines = append(lines, mcpKey+":\n", e.lines(name, "  "))
	case len(servers.Entries) == 0:
		at := servers.Line - 1
		lines[at] = emptyServers.ReplaceAllString(lines[at], "$1$3") + e.lines(name, "  ")
	case servers.Entries[0].Value.Line == servers.Line: // on one line with its key
		at := servers.Line - 1
		lines[at] = strings.Replace(lines[at], "{", "{"+jsonText(name)+": "+jsonText(e)+", ", 1)
	default:
		last := servers.Entries[len(servers.Entries)-1].Value
		at := blockEnd(lines, last)
		lines = slices.Insert(lines, at, e.lines(name, strings.Repeat(" ", last.Column-1)))
	}
	return edited(file, text, []byte(strings.Join(lines, "")), func(tree map[string]string) {
		for key, value := range treeOf([]byte(mcpKey + ":\n" + e.lines(name, "  "))) {
			tree[key] = value
		}
	})
}

// RemoveMCPServer returns the text of a configuration without a server of mcpServers. All
// else stays as it is written.
func RemoveMCPServer(file string, text []byte, name string) ([]byte, error) {
	servers, err := mcpServersOf(file, text)
	if err != nil {
		return nil, err
	}
	var entry *yamltree.Node
	if servers != nil {
		entry = entryOf(servers, name)
	}
	if entry == nil {
		return nil, fmt.Errorf("%s has no server %s", file, name)
	}
	lines := linesOf(text)
	if entry.Line != servers.Line {
		lines = slices.Delete(lines, entry.Line-1, blockEnd(lines, entry))
		if len(servers.Entries) == 1 {
			at := servers.Line - 1
			lines[at] = emptyServers.ReplaceAllString(lines[at], "$1 {}$3")
		}
	}
	return edited(file, text, []byte(strings.Join(lines, "")), func(tree map[string]string) {
		prefix := yamltree.JoinKey(mcpKey, name)
		maps.DeleteFunc(tree, func(key, _ string) bool {
			return key == prefix || strings.HasPrefix(key, prefix+".") || strings.HasPrefix(key, prefix+"[")
		})
	})
}

// linesOf are the lines of a text, each with its end.
func linesOf(text []byte) []string {
	if len(text) > 0 && text[len(text)-1] != '\n' {
		text = append(bytes.Clone(text), '\n')
	}
	return strings.SplitAfter(string(text), "\n")
}

// emptyServers is the line of mcpServers without servers.
var emptyServers = regexp.MustCompile(`(?s)^(["']?mcpServers["']?\s*:)[ \t]*(\{\s*\}|null|~)?(\s*(?:#.*)?)$`)

func mcpServersOf(file string, text []byte) (*yamltree.Node, error) {
	root, errs := yamltree.Parse(text, limits())
	if len(errs) > 0 {
		for i := range errs {
			errs[i].File = file
		}
		return nil, Errors(errs).Sorted()
	}
	return entryOf(root, mcpKey), nil
}

func entryOf(n *yamltree.Node, key string) *yamltree.Node {
	for _, e := range n.Entries {
		if e.Key == key {
			return e.Value
		}
	}
	return nil
}

// blockEnd is the line behind those of an entry of a block.
func blockEnd(lines []string, entry *yamltree.Node) int {
	end := entry.Line
	for i := entry.Line; i < len(lines); i++ {
		text := strings.TrimLeft(lines[i], " ")
		if strings.TrimSpace(text) == "" {
			continue
		}
		if len(lines[i])-len(text) < entry.Column {
			break
		}
		end = i + 1
	}
	return end
}

// treeOf is what a text says: each value by its key path.
func treeOf(text []byte) map[string]string {
	root, errs := yamltree.Parse(text, limits())
	if len(errs) > 0 || root == nil {
		return nil
	}
	out := map[string]string{}
	var walk func(n *yamltree.Node)
	walk = func(n *yamltree.Node) {
		switch {
		case n.IsScalar():
			out[n.Path] = string(n.Kind) + " " + n.Text
		case len(n.Items)+len(n.Entries) == 0:
			out[n.Path] = string(n.Kind)
		}
		for _, item := range n.Items {
			walk(item)
		}
		for _, e := range n.Entries {
			walk(e.Value)
		}
	}
	walk(root)
	for _, empty := range []string{"", mcpKey} { // that nothing is there is no difference
		if k := out[empty]; k == string(yamltree.Null) || k == string(yamltree.Map) {
			delete(out, empty)
		}
	}
	return out
}

// edited checks that an edit did what it was to do and nothing else.
func edited(file string, before, after []byte, change func(tree map[string]string)) ([]byte, error) {
	want := treeOf(before)
	if want == nil {
		want = map[string]string{}
	}
	change(want)
	if !maps.Equal(want, treeOf(after)) {
		return nil, fmt.Errorf("%s is written in a way that cannot be edited here; edit %s yourself", file, mcpKey)
	}
	_, err := Parse(file, after)
	return after, err
}

// HideSecret replaces what looks like a secret in a value by the reference ${secret:AS}.
// key is the name of the variable or header, or "" for an argument. found is false if the
// value stays as it is.
func HideSecret(key, value, as string) (text string, found bool) {
	ref := "${secret:" + as + "}"
	if key == "" {
		text = assignment.ReplaceAllStringFunc(value, func(part string) string {
			m := assignment.FindStringSubmatch(part)
			if refPattern.MatchString(m[2]) {
				return part
			}
			return m[1] + ref
		})
		return text, text != value
	}
	word := scheme.FindString(value)
	if rest := value[len(word):]; rest == "" || refPattern.MatchString(rest) || !sensitive.MatchString(key) {
		return value, false
	}
	return word + ref, true
}
