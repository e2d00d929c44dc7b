// Package yamltree parses the YAML files that people write (configuration, rules, skills, scripts)
// into a tree whose nodes have their key path and their position in the file.
//
// It accepts only plain YAML: one document without anchors, aliases, tags, merge keys and
// directives, bounded in size and depth.
package yamltree

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib/internal/lazyregexp"
)

// Kind is the kind of a node, as error messages name it.
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
	Text string // value of a text, or another scalar as it is written
	Path string // key path, such as agents.default.tools[0]; "" for the whole file
	File string // name of the file in messages; "" is that of the decoder
	// Line and Column are the position of the key or, in a list, of the value. Both start at 1; 0
	// means that it is not written in the file.
	Line, Column int
	// Default reports whether the node is the default of an absent key. Line and Column are then
	// those of its parent.
	Default bool
	Items   []*Node // items of a list
	Entries []Entry // entries of a mapping, with unique keys

	source *source
	at     position // beginning of a text
	style  rune     // style of a text: its quote, | or > for a block, 0 for a plain one
}

// Entry is a key of a mapping with its value.
type Entry struct {
	Key   string
	Value *Node
}

// IsScalar reports whether the node is a text, or a boolean or number that may be meant as a text.
func (n *Node) IsScalar() bool { return n.Kind == Text || n.Kind == Number || n.Kind == Bool }

// child returns a node for a key below n that is not written.
func (n *Node) child(key string) *Node {
	return &Node{Kind: Null, Path: JoinKey(n.Path, key), File: n.File, Line: n.Line, Column: n.Column, Default: true}
}

// mapping returns a mapping with the position of n.
func (n *Node) mapping(entries ...Entry) *Node {
	return &Node{Kind: Map, Path: n.Path, File: n.File, Line: n.Line, Column: n.Column, Entries: entries}
}

// SetFile sets the file of the node and of the nodes below it.
func (n *Node) SetFile(file string) {
	n.File = file
	for _, item := range n.Items {
		item.SetFile(file)
	}
	for _, e := range n.Entries {
		e.Value.SetFile(file)
	}
}

// SetPath sets the key path of the node, and with it of the nodes below it.
func (n *Node) SetPath(path string) {
	n.Path = path
	for i, item := range n.Items {
		item.SetPath(JoinIndex(path, i))
	}
	for _, e := range n.Entries {
		e.Value.SetPath(JoinKey(path, e.Key))
	}
}

// Error is an error in a file. It never contains a value that could be a secret.
type Error struct {
	File    string `json:"file"`     // path as the user gave it
	Line    int    `json:"line"`     // from 1; 0 for the whole file
	Column  int    `json:"column"`   // from 1; 0 if unknown
	Key     string `json:"key_path"` // "" if the error is not about a key
	Message string `json:"message"`
	Ref     string `json:"-"` // reference that could not be resolved, such as ${env:NAME}, or ""
}

// Error returns, for example, "toolcrib.yaml:12: agents.default.limits.max_iterations: must be at
// least 1".
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

// WithoutFiles returns the text of the error without names of files, for users who must not see
// them: the key, and the message unless it may contain a path.
func (e Error) WithoutFiles() string {
	if strings.ContainsAny(e.Message, `/\`) {
		return e.Key + " cannot be used"
	}
	return e.Key + ": " + e.Message
}

// Position returns a position such as "toolcrib.yaml:4", or "default" without a file. If line is 0,
// it returns file.
func Position(file string, line int) string {
	switch {
	case line > 0:
		return fmt.Sprintf("%s:%d", file, line)
	case file != "":
		return file
	}
	return "default"
}

// Errorf returns an error about the node.
func (n *Node) Errorf(format string, args ...any) Error {
	return Error{File: n.File, Line: n.Line, Column: n.Column, Key: n.Path, Message: fmt.Sprintf(format, args...)}
}

// PlainNumber matches numbers of JSON, with an optional sign. Versions of YAML read other forms
// (0x1f, 017, 1_000) differently.
var PlainNumber = lazyregexp.New(`^[+-]?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

// JoinKey appends a key to a key path. Keys that would make the path ambiguous are quoted.
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

// Parent returns the key path without its last element, or "" for the whole file.
func Parent(path string) string { return path[:max(strings.LastIndexAny(path, ".["), 0)] }

// Quote quotes a word of a file for a message, cut to 64 characters.
func Quote(word string) string {
	if r := []rune(word); len(r) > 64 {
		word = string(r[:64]) + "…"
	}
	return strconv.Quote(word)
}

// invalidLine returns the line of the first NUL or byte that is not valid UTF-8, or 0.
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
