package skill

import (
	"errors"

	"github.com/toolcrib/toolcrib"
)

// Patterned is a tool of whose calls allowed-tools can allow some only, by a pattern in
// parentheses: Tool(pattern). What a pattern means is the tool's own: one compares it with
// command lines, another one with paths.
type Patterned interface {
	// AllowedBy reports whether the patterns of all entries that mean the tool allow a
	// call, which touches these targets. An error says why its arguments cannot be
	// judged, in words for a model; the answer is then no.
	AllowedBy(patterns []string, call toolcrib.Call, targets []toolcrib.Target) (bool, error)
	// BadPattern says why a pattern can match no call; "" if it can.
	BadPattern(pattern string) string
}

var errNoPattern = errors.New("the skills allow some of its calls only, and it does not say which those are")

// Allowed reports whether entries of allowed-tools allow a call of the tool. Any entry
// may allow it: one without a pattern every call of its tool, one with a pattern the
// calls that match. nil is no restriction, and an empty list allows nothing. An entry
// that cannot be read allows nothing, and neither does one with a pattern for a tool
// that is not [Patterned].
func Allowed(entries []string, tool toolcrib.Tool, call toolcrib.Call, targets []toolcrib.Target) (bool, error) {
	if entries == nil {
		return true, nil
	}
	var patterns []string
	for _, text := range entries {
		switch e, err := ParseEntry(text, nil); {
		case err != nil || !e.means(call.Name):
		case e.Pattern == "":
			return true, nil
		default:
			patterns = append(patterns, e.Pattern)
		}
	}
	if len(patterns) == 0 {
		return false, nil
	}
	if p, ok := tool.(Patterned); ok {
		return p.AllowedBy(patterns, call, targets)
	}
	return false, errNoPattern
}

// BadPattern says why the pattern of an entry can match no call of the tools that it
// means; "" if it can, or has none. tools are all that there are.
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
