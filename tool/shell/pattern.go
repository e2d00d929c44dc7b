package shell

import (
	"errors"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/internal/pattern"
)

// wordEnd parts words where a pattern is matched over several of them. No word holds it.
const wordEnd = "\x00"

// errPattern is why a line is not compared with patterns at all.
var errPattern = errors.New(
	"the skills allow only some command lines: simple commands with plain words, joined by |, &&, || or ;")

// AllowedBy reports whether patterns of the skills allow a line, as Claude Code reads
// them: words parted by space, * is any text, over several words too; "git log" is that
// line alone, "git log *" and "git log:*" are it with any words after. The line may join
// simple commands by |, &&, || and ; and each of them must match a pattern. Whatever else
// a shell has (substitution, variables, loops, redirection to or from files) is not
// matched.
func (s *shell) AllowedBy(patterns []string, call toolcrib.Call, _ []toolcrib.Target) (bool, error) {
	in, _, err := s.arguments(call)
	if err != nil {
		return false, err
	}
	file, err := parse(in.Command)
	if err != nil {
		return false, errPattern
	}
	found, err := lines(file)
	if err != nil {
		return false, errPattern
	}
	for _, p := range found {
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

// BadPattern says why a pattern can match no line; "" if it can.
func (s *shell) BadPattern(pattern string) string {
	if strings.TrimSpace(strings.TrimSuffix(pattern, ":*")) == "" {
		return "a pattern of a command line has words and * only"
	}
	return ""
}
