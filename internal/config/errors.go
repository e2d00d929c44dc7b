package config

import (
	"fmt"
	"slices"
	"strings"
)

// Error is one thing that is wrong with a configuration. It holds no value that
// could be a secret.
type Error struct {
	File    string // as the user named it
	Line    int    // from 1; 0 = the file as a whole
	Key     string // key path; "" = no key
	Message string
}

// Error returns "toolcrib.yaml:12: agents.default.limits.max_iterations: must be
// at least 1" (contract §2).
func (e Error) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File)
		if e.Line > 0 {
			fmt.Fprintf(&b, ":%d", e.Line)
		}
		b.WriteString(": ")
	}
	if e.Key != "" {
		b.WriteString(e.Key)
		b.WriteString(": ")
	}
	b.WriteString(e.Message)
	return b.String()
}

// Errors is everything that is wrong with a configuration, by line.
type Errors []Error

// Error returns one line an error.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i := range e {
		lines[i] = e[i].Error()
	}
	return strings.Join(lines, "\n")
}

// maxErrors bounds what one bad file can say.
const maxErrors = 200

// sorted returns the errors by line, each once.
func (e Errors) sorted() Errors {
	slices.SortStableFunc(e, func(a, b Error) int { return a.Line - b.Line })
	e = slices.Compact(e)
	if len(e) > maxErrors {
		e = append(e[:maxErrors:maxErrors], Error{File: e[0].File, Message: fmt.Sprintf("%d more errors", len(e)-maxErrors)})
	}
	return e
}

// didYouMean returns `; did you mean "x"?` for the name that is nearest to the
// given one, or nothing if none is near.
func didYouMean(name string, names []string) string {
	best, bestDistance := "", 1+max(1, len(name)/3)
	for _, candidate := range names {
		if len(candidate) > 128 {
			continue
		}
		if d := distance(strings.ToLower(name), strings.ToLower(candidate)); d < bestDistance {
			best, bestDistance = candidate, d
		}
	}
	if best == "" || len(name) > 128 {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// distance counts the letters to add, drop, change or swap with their neighbour
// to get from a to b (optimal string alignment).
func distance(a, b string) int {
	if len(a) > 128 || len(b) > 128 {
		return max(len(a), len(b))
	}
	before := make([]int, len(b)+1)
	last := make([]int, len(b)+1)
	next := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			next[j] = min(last[j]+1, next[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, last, next = last, next, before
	}
	return last[len(b)]
}

// list joins names for a message, at most 20 of them.
func list(names []string) string {
	if len(names) > 20 {
		return strings.Join(names[:20], ", ") + ", …"
	}
	return strings.Join(names, ", ")
}

// short quotes a word that a user wrote, cut to what a message can take.
func short(word string) string {
	if r := []rune(word); len(r) > 64 {
		word = string(r[:64]) + "…"
	}
	return fmt.Sprintf("%q", word)
}
