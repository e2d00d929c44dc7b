package yamltree

import (
	"strconv"
	"strings"
	"unicode"
)

// position is a line and a column, both from 1.
type position struct{ line, column int }

// source is the file that a tree was read from.
type source struct {
	lines  []string
	offset int // lines of the file before them
}

// Place returns the line and column in the file of a character of a text, given its line
// and column in the text: quotes may be doubled, characters escaped, lines folded. All
// count from 1; 0 and 0 mean that the place is not known. White space stands behind the
// character before it, because folding lines is the parser's job.
func (n *Node) Place(line, column int) (fileLine, fileColumn int) {
	lines := strings.SplitAfter(n.Text, "\n")
	if n.source == nil || line < 1 || line > len(lines) {
		return 0, 0
	}
	text := []rune(n.Text)
	at := len([]rune(strings.Join(lines[:line-1], ""))) + column - 1
	if at < 0 || at > len(text) {
		return 0, 0
	}
	begin, end := n.at, n.at
	switch n.style {
	case '\'', '"':
		end.column++
	case '|':
		end = position{end.line + 1, 1}
	}
	for i, want := range append(text, ' ') {
		blank := unicode.IsSpace(want)
		if !blank {
			var c rune
			if c, begin, end = n.next(end); c != want {
				return 0, 0
			}
		}
		switch {
		case i < at:
		case blank:
			return end.line + n.source.offset, end.column
		default:
			return begin.line + n.source.offset, begin.column
		}
	}
	return 0, 0
}

// next returns the first character from p on that is no white space, also where that is
// escaped, with its place and the one behind it. c is -1 at the end.
func (n *Node) next(p position) (c rune, begin, end position) {
	for ; p.line <= len(n.source.lines); p = (position{p.line + 1, 1}) {
		text := []rune(n.source.lines[p.line-1])
		for p.column <= len(text) {
			c, size := n.character(text[p.column-1:])
			begin, p.column = p, p.column+size
			if !unicode.IsSpace(c) {
				return c, begin, p
			}
		}
	}
	return -1, p, p
}

// character returns the first character of what is written in a line, and how long it is there.
func (n *Node) character(rest []rune) (c rune, size int) {
	switch {
	case n.style == '\'' && rest[0] == '\'':
		return '\'', 2
	case n.style != '"' || rest[0] != '\\':
		return rest[0], 1
	case len(rest) == 1:
		return ' ', 1 // an escaped line break
	}
	rest = rest[:min(len(rest), len(`\U0010ffff`))]
	c, _, tail, err := strconv.UnquoteChar(string(rest), '"')
	if err != nil {
		return rest[1], 2 // slashes and a space stand for themselves
	}
	return c, len(rest) - len([]rune(tail))
}
