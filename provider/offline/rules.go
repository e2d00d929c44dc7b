package offline

import (
	"regexp"
	"strings"
	"sync"
)

// rule answers the clauses that its pattern finds; m are the pattern's groups.
type rule struct {
	pattern *regexp.Regexp
	do      func(t *turn, m []string) (string, error)
}

// quoted is a text in quotes or backticks. Its three groups are the text in double
// quotes, in single quotes, and in backticks.
const quoted = "(?:[\"“]([^\"”]*)[\"”]|'([^']*)'|`([^`]*)`)"

// rules are tried in order; the first that fits answers the clause. They are compiled
// at their first use, as most runs have another model.
var rules = sync.OnceValue(func() []rule {
	fits := func(pattern string, do func(*turn, []string) (string, error)) rule {
		return rule{regexp.MustCompile(`(?is)` + pattern), do}
	}
	return []rule{
		fits(`^(?:show\s+me\s+around|look\s+around|give\s+me\s+a\s+tour)\b`, tour),
		fits(`^(?:call|use)\s+(?:the\s+tool\s+)?([a-z0-9_-]{1,64})\s*(\{.*\})$`, callTool),
		fits(`^(?:replace|change)\s+`+quoted+`\s+(?:with|by|to|into)\s+`+quoted+`\s+in\s+(.+)$`, replaceText),
		fits(`^(?:write|save|put)\s+`+quoted+`\s+(?:to|in|into)\s+(.+)$`, writeText),
		fits(`^(?:run|execute)\s+(?:the\s+command\s+)?`+quoted+`$`, runCommand),
		fits(`^(?:run|execute)\s+((?:the\s+command\s+)?[a-z0-9_./-]+(?:\s+.*)?)$`, runCommand),
		fits(`\bhow\s+many\s+(lines|words|characters)\b(.*)$`, countIn),
		fits(`\bhow\s+many\s+(?:\.?([a-z0-9]+)\s+)?files\b`, countFiles),
		fits(`\bfiles?\b.*?\b(?:about|mention\w*|contain\w*|import\w*|use|uses|with|have)\s+(?:the\s+word\s+)?(.+)$`,
			filesAbout),
		fits(`^(?:where\s+(?:is|are)|find|search(?:\s+for)?|grep(?:\s+for)?|look\s+for)\s+(?:the\s+(?:function|type)\s+)?(.+)$`, find),
		fits(`\b(?:this|the|my)\s+(?:project|repo|repository|codebase|program)\b|^what\s+is\s+this$`, overview),
		fits(`^(?:ls|list)$|^(?:ls|list|what(?:'s|\s+is)\s+in)\s+(?:the\s+)?(?:(?:folder|directory)\s+)?(\S+?/?)(?:\s+(?:folder|directory))?$|`+
			`\bfiles?\b.*\bhere\b|\bwhat(?:'s|\s+is)\s+here\b|\b(?:this|the\s+current)\s+(?:folder|directory)\b|^list\s+(?:the\s+|all\s+)?files$`, list),
		fits(`\b(?:show|read|cat|open|print|display|say|says|contents?\s+of|what(?:'s|\s+is)\s+in)\b.*$`, show),
	}
})

// do carries out the clause and reports whether a rule fits it. The answer counts only
// if the turn wants no call.
func (t *turn) do(clause string) (answer string, understood bool) {
	for _, r := range rules() {
		m := r.pattern.FindStringSubmatch(clause)
		if m == nil {
			continue
		}
		text, err := r.do(t, append([]string{clause}, m[1:]...))
		if err != nil {
			text = "I could not do that: " + err.Error() + "."
		}
		return text, true
	}
	if file := fileIn(clause); file != "" && len(strings.Fields(clause)) == 1 {
		text, err := show(t, []string{clause})
		if err != nil {
			text = "I could not do that: " + err.Error() + "."
		}
		return text, true
	}
	return "", false
}

// clauses splits a prompt where one request ends and the next begins, but not inside
// of quotes and braces.
func clauses(prompt string) []string {
	separators := []string{"\n", ";", ". ", "? ", "! ", ", and ", ", then ", " and then "}
	var out []string
	var closing []rune // what ends the quotes and braces that are open
	start := 0
	take := func(end, next int) {
		clause := strings.TrimRight(strings.TrimSpace(prompt[start:end]), ".?!,; ")
		lower := strings.ToLower(clause)
		for _, polite := range []string{"and ", "then ", "please ", "can you ", "could you "} {
			if strings.HasPrefix(lower, polite) {
				clause, lower = clause[len(polite):], lower[len(polite):]
			}
		}
		if clause != "" {
			out = append(out, clause)
		}
		start = next
	}
	for i, r := range prompt {
		rest := prompt[i:]
		switch {
		case len(closing) > 0 && r == closing[len(closing)-1]:
			closing = closing[:len(closing)-1]
		case len(closing) > 0 && closing[len(closing)-1] != '}':
		case r == '{':
			closing = append(closing, '}')
		case len(closing) > 0:
		case r == '"', r == '`', r == '\'' && (i == 0 || prompt[i-1] == ' '):
			closing = append(closing, r)
		case r == '“':
			closing = append(closing, '”')
		case i >= start:
			for _, separator := range separators {
				if strings.HasPrefix(rest, separator) {
					take(i, i+len(separator))
					break
				}
			}
		}
	}
	take(len(prompt), len(prompt))
	return out
}

// fileIn returns the file that a text names; "" if it names none.
func fileIn(text string) string {
	if i := strings.IndexAny(text, "\"`"); i >= 0 {
		if j := strings.IndexByte(text[i+1:], text[i]); j > 0 {
			return text[i+1 : i+1+j]
		}
	}
	for word := range strings.FieldsSeq(text) {
		word = strings.TrimRight(strings.Trim(word, "'()<>"), ".,;:?!")
		switch lower := strings.ToLower(word); {
		case lower == "readme":
			return "README.md"
		case lower == "makefile", lower == "dockerfile", lower == "license":
			return word
		case len(word) > 1 && strings.ContainsAny(word[1:], "./"), len(word) > 2 && word[0] == '.':
			return word
		}
	}
	return ""
}

// first returns the first text that is not empty.
func first(texts ...string) string {
	for _, s := range texts {
		if s = strings.TrimSpace(s); s != "" {
			return s
		}
	}
	return ""
}
