package config

import (
	"bytes"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib/internal/lazyregexp"
	"github.com/toolcrib/toolcrib/internal/yamltree"
)

const rulesKey = "rules"

// rulesLine matches the line of the key rules in block style.
var rulesLine = lazyregexp.New(`^["']?rules["']?[ \t]*:`)

// RulesText returns the text of the key rules in the nearest file, and the line where it begins. Without the key it
// returns "" and the line where the key would be added. ok is false if the file is written in a way that cannot be
// edited in part.
func (c *Config) RulesText() (text string, line int, ok bool) {
	l := c.nearest()
	lines := linesOf(l.data)
	from, to, ok := rulesPart(&l, lines)
	if from == to && lines[len(lines)-1] == "" {
		return "", len(lines), ok
	}
	return strings.ReplaceAll(strings.Join(lines[from:to], ""), "\r\n", "\n"), from + 1, ok
}

// rulesPart returns the lines of the key rules, from and to as in a slice.
func rulesPart(l *layer, lines []string) (from, to int, ok bool) {
	at := entryOf(l.root, rulesKey)
	if at == nil {
		flow := l.root != nil && len(l.root.Entries) > 0 && strings.HasPrefix(strings.TrimSpace(lines[0]), "{")
		return len(lines), len(lines), !flow && !oldLines(l.data)
	}
	if from = at.Line - 1; from < 0 || from >= len(lines) || !rulesLine.MatchString(lines[from]) || oldLines(l.data) {
		return 0, 0, false
	}
	for to = from + 1; to < len(lines); to++ {
		text := lines[to]
		inside := strings.TrimSpace(text) == "" || strings.ContainsAny(text[:1], " \t#]}") || text == "-\n" ||
			strings.HasPrefix(text, "- ")
		if !inside {
			break
		}
	}
	for to > from+1 && (strings.TrimSpace(lines[to-1]) == "" || lines[to-1][0] == '#') {
		to-- // about the next key
	}
	return from, to, true
}

// oldLines reports whether a text has line ends that [linesOf] does not know.
func oldLines(text []byte) bool {
	return bytes.Count(text, []byte("\r")) > bytes.Count(text, []byte("\r\n"))
}

// WithRules returns the configuration as it would be if the key rules of the nearest file had this text, and the
// content of that file. The error is [Errors]. No other key may change.
func (c *Config) WithRules(text string) (changed *Config, content []byte, err error) {
	layers := slices.Clone(c.layers)
	if len(layers) == 0 {
		layers = []layer{{}}
	}
	l := &layers[len(layers)-1]
	lines := linesOf(l.data)
	from, to, ok := rulesPart(l, lines)
	if !ok {
		return nil, nil, Errors{{File: l.file, Message: "is written in a way that cannot be edited in part"}}
	}
	if text = strings.ReplaceAll(text, "\r\n", "\n"); text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	if bytes.Contains(l.data, []byte("\r\n")) {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	content = []byte(strings.Join(lines[:from], "") + text + strings.Join(lines[to:], ""))
	before := l.root
	*l = layer{file: l.file, data: content, project: l.project, started: l.started}
	after, errs := parse(layers)
	if len(errs) > 0 {
		return nil, content, errs
	}
	if !sameBut(rulesKey, before, after.nearest().root) {
		return nil, content, Errors{{File: l.file, Line: from + 1, Message: "only the key rules can be changed here"}}
	}
	return after, content, nil
}

// sameBut reports whether two mappings are the same but for one key.
func sameBut(key string, a, b *yamltree.Node) bool {
	rest := func(n *yamltree.Node) []byte {
		all := yamltree.Node{Kind: yamltree.Map, Entries: slices.DeleteFunc(slices.Clone(entriesOf(n)),
			func(e yamltree.Entry) bool { return e.Key == key })}
		return all.JSON()
	}
	return bytes.Equal(rest(a), rest(b))
}

// AddRule adds an entry, which is one line, to the text of the key rules.
func AddRule(text, entry string) string {
	lines := strings.SplitAfter(strings.TrimRight(text, " \t\r\n")+"\n", "\n")
	head := strings.TrimRight(lines[0], " \t\r\n")
	if strings.TrimSpace(text) == "" || emptyRules.MatchString(head) && len(lines) <= 2 {
		return rulesKey + ":\n  " + entry + "\n"
	}
	indent := "  "
	for _, line := range lines[1:] {
		if rest := strings.TrimLeft(line, " "); strings.HasPrefix(rest, "- ") {
			indent = line[:len(line)-len(rest)]
			break
		}
	}
	return strings.Join(lines, "") + indent + entry + "\n"
}

// emptyRules matches the line of the key rules without rules.
var emptyRules = lazyregexp.New(`^["']?rules["']?[ \t]*:[ \t]*(\[\s*\]|null|~)?[ \t]*(#.*)?$`)
