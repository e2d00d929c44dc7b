package yamltree

import (
	"strconv"
	"strings"
	"unicode"
)

// position is a line and a column, both starting at 1.
type position struct{ line, column int }

// source is the file that a tree was read from.
type source struct {
	lines  []string
	offset int // number of lines of the file before these
}

// Place returns the line and column in the file of a character of a text, given its line and column
// in the text, which may differ because of doubled quotes, escapes and folded lines. All of them
// start at 1; 0 and 0 mean unknown. The position of white space is that after the previous
// character, since lines may be folded.
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

// next returns the first character at or after p that is not white space, escaped or not, with its
// position and the one after it. c is -1 at the end.
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

// character returns the first character of the rest of a line, and the length of its notation.
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
		return rest[1], 2 // an escaped slash or space
	}
	return c, len(rest) - len([]rune(tail))
}
