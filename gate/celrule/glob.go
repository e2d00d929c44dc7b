package celrule

import "strings"

const maxPattern = 256 // bytes

// pattern is a name of a tool, or a glob over names: * stands for any characters,
// none too, and ? for exactly one. It is the glob of the gate's lists.
type pattern struct {
	text string
	wild bool
}

// readPattern reports false for what could be no tool's name.
func readPattern(text string) (pattern, bool) {
	if text == "" || len(text) > maxPattern {
		return pattern{}, false
	}
	for i := range len(text) {
		switch c := text[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-', c == '*', c == '?':
		default:
			return pattern{}, false
		}
	}
	return pattern{text, strings.ContainsAny(text, "*?")}, true
}

// match goes back to the last star only, so that its time is at most the product
// of the two lengths.
func (p pattern) match(name string) bool {
	if !p.wild {
		return p.text == name
	}
	at, n := 0, 0
	star, resume := -1, 0
	for n < len(name) {
		switch {
		case at < len(p.text) && p.text[at] == '*':
			star, resume = at, n
			at++
		case at < len(p.text) && (p.text[at] == '?' || p.text[at] == name[n]):
			at++
			n++
		case star >= 0:
			resume++
			at, n = star+1, resume
		default:
			return false
		}
	}
	return strings.Trim(p.text[at:], "*") == ""
}
