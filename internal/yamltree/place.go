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
// count from 1; 0 and 0 mean that the place is not known.
func (n *Node) Place(line, column int) (fileLine, fileColumn int) {
	if n.source == nil || line < 1 {
		return 0, 0
	}
	lines := strings.SplitAfter(n.Text, "\n")
	before := []rune(strings.Join(lines[:min(line-1, len(lines))], ""))
	places := n.places()
	if at := len(before) + column - 1; at >= 0 && at < len(places) {
		return places[at].line + n.source.offset, places[at].column
	}
	return 0, 0
}

// places returns the place of each character of a text, and of its end, or nil if the
// file is written in a way that is not understood. It walks through the text that the
// parser returned and through the file at the same time. White space matches any white
// space, because folding lines is the parser's job.
func (n *Node) places() []position {
	r := reader{source: n.source, position: n.at, style: n.style}
	switch n.style {
	case '\'', '"':
		r.column++
	case '|':
		r.line, r.column = r.line+1, 1
	}
	want := []rune(n.Text)
	var places []position
	for len(places) < len(want) {
		at := r.position
		blank := r.skip()
		if blank && !unicode.IsSpace(want[len(places)]) {
			continue
		}
		if unicode.IsSpace(want[len(places)]) {
			if !blank {
				return nil
			}
			for len(places) < len(want) && unicode.IsSpace(want[len(places)]) {
				places = append(places, at)
			}
			continue
		}
		at = r.position
		if r.next() != want[len(places)] {
			return nil
		}
		places = append(places, at)
	}
	return append(places, r.position)
}

// reader reads the characters of a text where it is written.
type reader struct {
	*source
	position
	style rune
}

func (r *reader) rest() []rune {
	if r.line > len(r.lines) {
		return nil
	}
	line := []rune(r.lines[r.line-1])
	return line[min(r.column-1, len(line)):]
}

// skip goes over white space, also where it is escaped. It reports whether there is any.
func (r *reader) skip() (any bool) {
	for r.line <= len(r.lines) {
		rest := r.rest()
		switch c, size := r.character(rest); {
		case len(rest) == 0:
			r.line, r.column = r.line+1, 1
		case r.style == '"' && rest[0] == '\\' && len(rest) == 1: // an escaped line break
			r.line, r.column = r.line+1, 1
		case unicode.IsSpace(c):
			r.column += size
		default:
			return any
		}
		any = true
	}
	return any
}

// next reads one character, or returns -1 at the end.
func (r *reader) next() rune {
	c, size := r.character(r.rest())
	r.column += size
	return c
}

// character returns the first character of what is written, and how long it is there.
func (r *reader) character(rest []rune) (c rune, size int) {
	switch {
	case len(rest) == 0:
		return -1, 0
	case r.style == '\'' && rest[0] == '\'':
		return '\'', 2
	case r.style != '"' || rest[0] != '\\' || len(rest) == 1:
		return rest[0], 1
	}
	if digits := map[rune]int{'x': 2, 'u': 4, 'U': 8}[rest[1]]; digits > 0 && len(rest) >= 2+digits {
		value, err := strconv.ParseUint(string(rest[2:2+digits]), 16, 31)
		if err != nil {
			return -1, 0
		}
		return rune(value), 2 + digits
	}
	if c, ok := map[rune]rune{
		'0': 0, 'a': '\a', 'b': '\b', 't': '\t', '\t': '\t', 'n': '\n', 'v': '\v', 'f': '\f', 'r': '\r', 'e': 0x1b,
		'N': 0x85, '_': 0xa0, 'L': 0x2028, 'P': 0x2029,
	}[rest[1]]; ok {
		return c, 2
	}
	return rest[1], 2 // quotes, slashes and a space stand for themselves
}
