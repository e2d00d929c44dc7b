package gate

import "strings"

// maxPattern bounds a pattern, in bytes.
const maxPattern = 256

// Match reports whether a pattern of a list means the name. A pattern is a name in
// which * stands for any characters, none too, and ? for exactly one. A pattern
// that could be no tool's name otherwise is a bad one, and matches nothing.
func Match(pattern, name string) bool {
	// Most patterns of a list differ early from a name that they do not mean, so the
	// characters of a pattern are looked at last.
	if !glob(pattern, name) {
		return false
	}
	ok, _ := ReadPattern(pattern)
	return ok
}

// matchAgent is Match for names of agents, which may have dots.
func matchAgent(pattern, name string) bool {
	if len(pattern) > maxPattern || !glob(pattern, name) {
		return false
	}
	ok, _ := ReadPattern(strings.ReplaceAll(pattern, ".", "_"))
	return ok
}

// ReadPattern reports whether a pattern has only characters of tool names and wildcards,
// and whether it has wildcards.
func ReadPattern(pattern string) (ok, wild bool) {
	if pattern == "" || len(pattern) > maxPattern {
		return false, false
	}
	for i := range len(pattern) {
		switch c := pattern[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case c == '_', c == '-':
		case c == '*', c == '?':
			wild = true
		default:
			return false, false
		}
	}
	return true, wild
}

// glob matches without recursion: it goes back to the last star only, so that its
// time is at most the product of the two lengths.
func glob(pattern, name string) bool {
	p, n := 0, 0
	star, resume := -1, 0
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, resume = p, n
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == name[n]):
			p++
			n++
		case star >= 0:
			resume++
			p, n = star+1, resume
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// wildOnly tells whether a pattern has nothing but wildcards, or nothing at all.
func wildOnly(pattern string) bool {
	for i := range len(pattern) {
		if pattern[i] != '*' && pattern[i] != '?' {
			return false
		}
	}
	return true
}
