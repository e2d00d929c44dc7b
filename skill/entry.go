package skill

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Bounds of allowed-tools.
const (
	maxEntries      = 256  // of one skill
	maxEntryName    = 256  // bytes of a name or glob
	maxEntryPattern = 1024 // bytes between the parentheses
	maxStars        = 16   // * of one pattern
)

// Entry is one entry of allowed-tools: Tool or Tool(argument pattern).
type Entry struct {
	// Tool is a tool's name, or a glob in which * stands for any characters, none
	// too, and ? for exactly one.
	Tool string
	// Pattern narrows the entry to calls that match; "" = every call of the tool. See
	// [Patterned].
	Pattern string
}

// String returns the entry in its canonical form, which [ParseEntry] reads back.
func (e Entry) String() string {
	if e.Pattern == "" {
		return e.Tool
	}
	return e.Tool + "(" + e.Pattern + ")"
}

// ParseEntry reads an entry. Names that other programs have for tools become those of
// this one by aliases (Bash is exec_shell), mcp__SERVER__TOOL is SERVER__TOOL, and
// mcp__SERVER SERVER__*. Tool(*) is Tool. An entry that cannot be read is an error; it
// allows nothing.
func ParseEntry(text string, aliases map[string]string) (Entry, error) {
	text = strings.TrimSpace(text)
	name, rest, hasPattern := strings.Cut(text, "(")
	e := Entry{Tool: strings.TrimSpace(name)}
	if err := checkToolName(e.Tool); err != nil {
		return Entry{}, err
	}
	if hasPattern {
		inner, ok := strings.CutSuffix(rest, ")")
		if !ok || !balanced(inner) {
			return Entry{}, errors.New("its parentheses do not match")
		}
		e.Pattern = strings.TrimSpace(inner)
		if err := checkPattern(e.Pattern); err != nil {
			return Entry{}, err
		}
		if e.Pattern == "*" {
			e.Pattern = ""
		}
	}
	var err error
	if e.Tool, err = canonicalTool(e.Tool, aliases); err != nil {
		return Entry{}, err
	}
	return e, nil
}

var toolNamePattern = regexp.MustCompile(`^[A-Za-z0-9_*?-]+$`)

func checkToolName(name string) error {
	switch {
	case name == "" || len(name) > maxEntryName:
		return fmt.Errorf("a tool's name has 1 to %d characters", maxEntryName)
	case !toolNamePattern.MatchString(name):
		return errors.New("a tool's name has letters a-z, digits, _ and -, and * and ? as wildcards")
	case strings.Count(name, "*") > maxStars:
		return fmt.Errorf("it has more than %d *", maxStars)
	}
	return nil
}

func checkPattern(pattern string) error {
	switch {
	case pattern == "":
		return errors.New("there is nothing between its parentheses; write the name alone to allow every call")
	case len(pattern) > maxEntryPattern:
		return fmt.Errorf("its pattern has more than %d bytes", maxEntryPattern)
	case strings.Count(pattern, "*") > maxStars:
		return fmt.Errorf("its pattern has more than %d *", maxStars)
	}
	for _, r := range pattern {
		if r < ' ' || r == 0x7F {
			return errors.New("its pattern has control characters")
		}
	}
	return nil
}

// balanced reports whether parentheses inside a pattern match.
func balanced(s string) bool {
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case '(':
			depth++
		case ')':
			depth--
		}
		if depth < 0 {
			return false
		}
	}
	return depth == 0
}

// canonicalTool is the name of a tool. Of a canonical name it is
// that name.
func canonicalTool(name string, aliases map[string]string) (string, error) {
	if tool, ok := aliases[name]; ok {
		return tool, nil
	}
	rest, ok := strings.CutPrefix(name, "mcp__")
	switch {
	case !ok || rest == "":
		return name, nil
	case rest == "mcp" || strings.HasPrefix(rest, "mcp__"):
		return "", errors.New("a server cannot be called mcp, which marks a server")
	case strings.Contains(rest, "__"):
		return rest, nil
	}
	return rest + "__*", nil
}

// splitEntries splits the text form of allowed-tools at commas and space that
// stand outside parentheses. Parentheses that never close keep the rest together,
// as one entry that cannot be read.
func splitEntries(text string) []string {
	var words []string
	depth, from := 0, 0
	flush := func(to int) {
		if word := strings.TrimSpace(text[from:to]); word != "" {
			words = append(words, word)
		}
	}
	for i, r := range text {
		switch {
		case r == '(':
			depth++
		case r == ')':
			depth = max(0, depth-1)
		case depth > 0:
		case r == ',' || r == ' ' || r == '\t' || r == '\n' || r == '\r':
			flush(i)
			from = i + 1
		}
	}
	flush(len(text))
	return words
}

// means reports whether the entry is about the tool.
func (e Entry) means(tool string) bool {
	ok, err := path.Match(e.Tool, tool)
	return ok && err == nil
}

// Unknown returns the entries that mean none of the known tools, in order: they
// are dropped, and a person should know (contract §6).
func Unknown(entries, known []string) []string {
	var unknown []string
	for _, text := range entries {
		e, err := ParseEntry(text, nil)
		if err != nil || !slices.ContainsFunc(known, e.means) {
			unknown = append(unknown, text)
		}
	}
	return unknown
}
