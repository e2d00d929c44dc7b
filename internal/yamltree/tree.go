// Package yamltree reads the YAML files that people write (configuration, rules,
// skills, scripts) into a tree whose nodes know their key path and where they stand.
//
// It takes the plain part of YAML only: one document without anchors, aliases, tags,
// merge keys and directives, bounded in size and depth.
package yamltree

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib/internal/lazyregexp"
)

// Kind says what a node is, in the words of error messages.
type Kind string

// The kinds of a node.
const (
	Null   Kind = "null"
	Bool   Kind = "true or false"
	Number Kind = "a number"
	Text   Kind = "a text"
	List   Kind = "a list"
	Map    Kind = "a mapping"
)

// Node is a value of a file.
type Node struct {
	Kind Kind
	Text string // of a text its value, of another scalar what is written
	Path string // key path, such as agents.default.tools[0]; "" = the whole file
	// Line and Column are those of its key, or of the value itself in a list. Both
	// count from 1; 0 = it is not written in the file.
	Line, Column int
	// Default is set for the default of a key that is absent. Line and Column are then
	// those of its parent.
	Default bool
	Items   []*Node // of a list
	Entries []Entry // of a mapping, each key once

	source *source
	at     position // of a text: where it begins
	style  rune     // of a text: its quote, | or > for a block, 0 for a plain one
}

// Entry is a key of a mapping with its value.
type Entry struct {
	Key   string
	Value *Node
}

// IsScalar reports whether the node is a text, or a word or number that may be meant
// as one.
func (n *Node) IsScalar() bool { return n.Kind == Text || n.Kind == Number || n.Kind == Bool }

// child returns a node for a key below n that is not written.
func (n *Node) child(key string) *Node {
	return &Node{Kind: Null, Path: JoinKey(n.Path, key), Line: n.Line, Column: n.Column, Default: true}
}

// Error is one thing that is wrong with a file. It holds no value that could be a secret.
type Error struct {
	File    string `json:"file"`     // as the user named it
	Line    int    `json:"line"`     // from 1; 0 = the file as a whole
	Column  int    `json:"column"`   // in that line, from 1; 0 = not known
	Key     string `json:"key_path"` // "" = no key
	Message string `json:"message"`
	Ref     string `json:"-"` // the reference that could not be filled in, such as ${env:NAME}; "" = none
}

// Error returns "toolcrib.yaml:12: agents.default.limits.max_iterations: must be
// at least 1" (contract §2).
func (e Error) Error() string {
	text := e.Message
	if e.Key != "" {
		text = e.Key + ": " + text
	}
	if e.File != "" {
		text = Position(e.File, e.Line) + ": " + text
	}
	return text
}

// WithoutFiles is the error for those who must not learn the names of files: its key, and its
// message if that names none.
func (e Error) WithoutFiles() string {
	if strings.ContainsAny(e.Message, `/\`) {
		return e.Key + " cannot be used"
	}
	return e.Key + ": " + e.Message
}

// Position returns "toolcrib.yaml:4", or "default" for what no file says. line 0 is the
// file as a whole.
func Position(file string, line int) string {
	switch {
	case line > 0:
		return fmt.Sprintf("%s:%d", file, line)
	case file != "":
		return file
	}
	return "default"
}

// Errorf is an error about the node.
func (n *Node) Errorf(format string, args ...any) Error {
	return Error{Line: n.Line, Column: n.Column, Key: n.Path, Message: fmt.Sprintf(format, args...)}
}

// PlainNumber is a number as JSON writes it, with a sign for convenience. Versions of
// YAML read other forms (0x1f, 017, 1_000) differently.
var PlainNumber = lazyregexp.New(`^[+-]?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

// JoinKey appends a key to a key path. Keys that would blur the path are quoted.
func JoinKey(path, key string) string {
	plain := key != ""
	for _, r := range key {
		if r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') {
			plain = false
			break
		}
	}
	switch {
	case !plain:
		return path + "[" + Quote(key) + "]"
	case path == "":
		return key
	}
	return path + "." + key
}

// JoinIndex appends the index of an entry of a list to a key path.
func JoinIndex(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// Parent returns the key path that path belongs to; "" = the whole file.
func Parent(path string) string { return path[:max(strings.LastIndexAny(path, ".["), 0)] }

// Quote quotes a word of a file, cut to what a message can take.
func Quote(word string) string {
	if r := []rune(word); len(r) > 64 {
		word = string(r[:64]) + "…"
	}
	return strconv.Quote(word)
}

// invalidLine returns the line of the first byte that is not valid UTF-8 or a NUL; 0 = none.
func invalidLine(data []byte) int {
	line := 1
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		if r == 0 || r == utf8.RuneError && size == 1 {
			return line
		}
		if r == '\n' {
			line++
		}
		data = data[size:]
	}
	return 0
}
