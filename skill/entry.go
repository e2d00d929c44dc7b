package skill

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
)

// Bounds of allowed-tools.
const (
	maxEntries      = 256  // entries of one skill
	maxEntryName    = 256  // bytes of a name or glob
	maxEntryPattern = 1024 // bytes between the parentheses
	maxStars        = 16   // number of * in one pattern
)

// Entry is one entry of allowed-tools: Tool or Tool(argument pattern).
type Entry struct {
	// Tool is a tool's name, or a glob in which * matches any sequence of characters and ? exactly one.
	Tool string
	// Pattern restricts the entry to calls that match. If "", it applies to every call of the tool. See
	// [Patterned].
	Pattern string
}

// String returns the entry in its canonical form, which [ParseEntry] parses.
func (e Entry) String() string {
	if e.Pattern == "" {
		return e.Tool
	}
	return e.Tool + "(" + e.Pattern + ")"
}

// ParseEntry parses an entry. aliases maps other programs' tool names to ours (Bash is exec_shell);
// mcp__SERVER__TOOL becomes SERVER__TOOL, and mcp__SERVER becomes SERVER__*. Tool(*) is Tool. An
// invalid entry is an error; it allows nothing.
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

var toolNamePattern = lazyregexp.New(`^[A-Za-z0-9_*?-]+$`)

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

// balanced reports whether the parentheses in a pattern match.
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

// canonicalTool returns the canonical name of a tool. A canonical name is returned unchanged.
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

// splitEntries splits the text form of allowed-tools at commas and space outside parentheses. An
// unclosed parenthesis keeps the rest together as one invalid entry.
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

// Unknown returns the entries that match none of the known tools, in order. They are dropped, and a
// person should be informed.
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

// Patterned is a tool for whose calls an entry of allowed-tools can have a pattern in parentheses:
// Tool(pattern). Each tool defines its patterns: some match command lines, others paths. The plan of
// a call matches them ([toolcrib.Plan.Matches]).
type Patterned interface {
	// BadPattern returns why a pattern can match no call, or "".
	BadPattern(pattern string) string
}

var errNoPattern = errors.New("the skills allow some of its calls only, and it does not say which those are")

// Allowed reports whether entries of allowed-tools allow a call of a tool, by its plan. An entry
// without a pattern allows every call of its tool, one with a pattern the calls that match. If
// entries is nil, every call is allowed; an empty list allows none. An invalid entry allows nothing,
// and neither does one with a pattern for a tool that takes none.
func Allowed(entries []string, tool string, plan *toolcrib.Plan) (bool, error) {
	if entries == nil {
		return true, nil
	}
	var patterns []string
	for _, text := range entries {
		switch e, err := ParseEntry(text, nil); {
		case err != nil || !e.means(tool):
		case e.Pattern == "":
			return true, nil
		default:
			patterns = append(patterns, e.Pattern)
		}
	}
	if len(patterns) == 0 {
		return false, nil
	}
	if plan.Matches == nil {
		return false, errNoPattern
	}
	return plan.Matches(patterns)
}

// BadPattern returns the reason why the pattern of an entry can never match a call of its tools, or "".
// tools are all existing tools.
func BadPattern(entry string, tools []toolcrib.Tool) (problem string) {
	e, err := ParseEntry(entry, nil)
	for _, tool := range tools {
		if name := tool.Spec().Name; err == nil && e.Pattern != "" && e.means(name) {
			p, ok := tool.(Patterned)
			if problem = name + " takes no pattern"; ok {
				problem = p.BadPattern(e.Pattern)
			}
			if problem == "" {
				break
			}
		}
	}
	return problem
}
