package line

import (
	"errors"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib/tool/internal/pattern"
)

// wordEnd separates words when a pattern is matched against several. No word contains it.
const wordEnd = "\x00"

// errPattern is the error for a line that patterns cannot match.
var errPattern = errors.New(
	"the skills allow only some command lines: simple commands with plain words, joined by |, &&, || or ;")

// Matches reports whether patterns of the skills allow the line. Patterns are those of Claude
// Code: words separated by spaces, in which * matches any text, also several words; "git log"
// matches only that command, and "git log *" and "git log:*" also match it with further words.
// The line may join simple commands by |, &&, || and ; and each of them must match a pattern.
// Other constructs of a shell, such as substitution, variables, loops and redirection to or from
// files, match nothing.
func (l *Line) Matches(patterns []string) (bool, error) {
	if l.construct != nil {
		return false, errPattern
	}
	for _, p := range l.pipelines {
		for _, c := range p.commands {
			if c.in != nil {
				return false, errPattern
			}
			words := make([]string, len(c.words))
			for i, w := range c.words {
				words[i] = w.text
			}
			line := strings.Join(words, wordEnd)
			matches := func(pattern string) bool { return matchesLine(pattern, line) }
			if words[0] == "" || !slices.ContainsFunc(patterns, matches) {
				return false, nil
			}
		}
	}
	return true, nil
}

// matchesLine reports whether a pattern matches the joined words of a command.
func matchesLine(text, line string) bool {
	text, more := strings.CutSuffix(text, ":*")
	words := strings.Fields(text)
	if len(words) > 1 && words[len(words)-1] == "*" {
		words, more = words[:len(words)-1], true
	}
	joined := strings.Join(words, wordEnd)
	return joined != "" && (pattern.Glob(joined, line) || more && pattern.Glob(joined+wordEnd+"*", line))
}

// BadPattern returns why a pattern cannot match any line, or "".
func BadPattern(pattern string) string {
	if strings.TrimSpace(strings.TrimSuffix(pattern, ":*")) == "" {
		return "a pattern of a command line has words and * only"
	}
	return ""
}
