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
	Column  int    // in that line, from 1; 0 = not known
	Key     string // key path; "" = no key
	Message string
	Ref     string // the reference that could not be filled in, such as ${env:NAME}; "" = none
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

// About reports whether the error is about a key, something in it, or something that it
// belongs to.
func (e Error) About(key string) bool {
	for a, b := range map[string]string{e.Key: key, key: e.Key} {
		if rest, ok := strings.CutPrefix(a, b); ok && (rest == "" || b != "" && strings.ContainsAny(rest[:1], ".[")) {
			return true
		}
	}
	return false
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

// Sorted returns the errors by line, each once.
func (e Errors) Sorted() Errors {
	slices.SortStableFunc(e, func(a, b Error) int { return a.Line - b.Line })
	e = slices.Compact(e)
	if len(e) > maxErrors {
		e = append(e[:maxErrors:maxErrors], Error{File: e[0].File, Message: fmt.Sprintf("%d more errors", len(e)-maxErrors)})
	}
	return e
}

// list joins names for a message, at most 20 of them.
func list(names []string) string {
	if len(names) > 20 {
		return strings.Join(names[:20], ", ") + ", …"
	}
	return strings.Join(names, ", ")
}
