package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"unicode"

	"github.com/toolcrib/toolcrib/internal/config"
)

// A condition's text is not always what stands in the file: quotes are doubled,
// characters escaped, lines folded. conditionPlaces finds where each character of
// it stands, by reading the file as YAML would and comparing.
type conditionPlaces struct {
	config *config.Config
	read   bool
	lines  [][]rune // of the file; nil = it is not the one that was loaded
}

// filePlace is a line and column of the file, both from 1.
type filePlace struct{ line, column int }

// find returns the position of a place of a condition in the file, 0 and 0 if that is
// not known. The condition begins between the two lines of the file; last 0 = its end.
func (p *conditionPlaces) find(when string, first, last, line, column int) (int, int) {
	if !p.read {
		p.read = true
		p.lines = fileLines(p.config)
	}
	if last == 0 || last > len(p.lines) {
		last = len(p.lines)
	}
	text := []rune(when)
	index := indexOfPlace(text, line, column)
	var found filePlace
	for n := max(first, 1); n <= last; n++ {
		for at := range p.lines[n-1] {
			if unicode.IsSpace(p.lines[n-1][at]) || !valueBegins(p.lines[n-1][:at]) {
				continue
			}
			places := matchScalar(p.lines, n-1, at, text)
			if index >= len(places) || places[index] == found {
				continue
			}
			if found != (filePlace{}) {
				return 0, 0 // two texts could be it
			}
			found = places[index]
		}
	}
	return found.line, found.column
}

// fileLines reads the file of a configuration again, nil if it has changed.
func fileLines(c *config.Config) [][]rune {
	data, err := config.ReadFile(c.File())
	if err != nil {
		return nil
	}
	if sum := sha256.Sum256(data); "sha256:"+hex.EncodeToString(sum[:]) != c.Hash() {
		return nil
	}
	var lines [][]rune
	for line := range strings.SplitSeq(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n") {
		lines = append(lines, []rune(line))
	}
	return lines
}

// indexOfPlace returns which character of a text a line and column are.
func indexOfPlace(text []rune, line, column int) int {
	index := 0
	for ; line > 1; line-- {
		end := slices.Index(text[index:], '\n')
		if end < 0 {
			return len(text)
		}
		index += end + 1
	}
	return index + column - 1
}

// valueBegins reports whether the value of when can begin behind this piece of a line:
// behind its key, or first in the line.
func valueBegins(before []rune) bool {
	end := len(before)
	for end > 0 && (before[end-1] == ' ' || before[end-1] == '\t') {
		end--
	}
	if end == 0 {
		return true
	}
	if before[end-1] != ':' {
		return false
	}
	key := strings.TrimRight(string(before[max(0, end-64):end-1]), " \t")
	bare := strings.TrimRight(key, `"'`)
	return strings.HasSuffix(bare, "when") && (end < len(before) || bare != key) // a bare key needs a space behind its colon
}

// scalar reads one text of YAML, and compares it with what it should be.
type scalar struct {
	lines    [][]rune
	row, col int
	want     []rune
	places   []filePlace // of the characters of want, so far
}

// matchScalar returns the places of all characters of a text if it begins at this
// place of the file, nil if not.
func matchScalar(lines [][]rune, row, col int, want []rune) []filePlace {
	s := scalar{lines: lines, row: row, col: col, want: want}
	switch c := lines[row][col]; c {
	case '\'', '"':
		s.col++
		return s.match(c)
	case '|', '>':
		s.row, s.col = row+1, 0
		if s.row == len(lines) {
			return nil
		}
		s.skip()
		return s.match(c)
	case ' ', '\t', '#', '-', '[', '{':
		return nil
	}
	return s.match(0)
}

// match reads on in a style: a quote, > or | for a block, 0 for a plain text. Where
// the file has a line break, both sides may have any white space: how it is folded
// is the parser's matter.
func (s *scalar) match(style rune) []filePlace {
	for {
		if s.blankToEnd() {
			if s.rest() && (style != '\'' && style != '"') {
				return s.end()
			}
			if !s.skip() {
				return nil
			}
			continue
		}
		c := s.lines[s.row][s.col]
		at := filePlace{s.row + 1, s.col + 1}
		s.col++
		switch {
		case style == '\'' && c == '\'':
			if s.peek() != '\'' {
				return s.end()
			}
			s.col++
		case style == '"' && c == '"':
			return s.end()
		case style == '"' && c == '\\':
			var ok bool
			if c, ok = s.escape(); !ok {
				return nil
			}
			if c < 0 { // an escaped line break
				if !s.skip() {
					return nil
				}
				continue
			}
		case style == 0 && s.rest():
			s.col--
			return s.plainEnd()
		}
		if len(s.places) == len(s.want) || s.want[len(s.places)] != c {
			return nil
		}
		s.places = append(s.places, at)
	}
}

func (s *scalar) peek() rune {
	if s.col < len(s.lines[s.row]) {
		return s.lines[s.row][s.col]
	}
	return '\n'
}

// blankToEnd reports whether the line has nothing more.
func (s *scalar) blankToEnd() bool {
	return !slices.ContainsFunc(s.lines[s.row][s.col:], func(c rune) bool { return !unicode.IsSpace(c) })
}

// rest reports whether all of the text has been read but white space.
func (s *scalar) rest() bool {
	return !slices.ContainsFunc(s.want[len(s.places):], func(c rune) bool { return !unicode.IsSpace(c) })
}

// skip goes to the next line that has anything, and over the white space of the
// text. It reports false at the end of the file.
func (s *scalar) skip() bool {
	at := filePlace{s.row + 1, s.col + 1}
	for s.blankToEnd() {
		if s.row++; s.row == len(s.lines) {
			return false
		}
		s.col = 0
	}
	for unicode.IsSpace(s.peek()) {
		s.col++
	}
	for len(s.places) < len(s.want) && unicode.IsSpace(s.want[len(s.places)]) {
		s.places = append(s.places, at)
	}
	return true
}

// end gives the white space at the end of the text the place where the file's ends.
func (s *scalar) end() []filePlace {
	if !s.rest() {
		return nil
	}
	for len(s.places) < len(s.want) {
		s.places = append(s.places, filePlace{s.row + 1, s.col + 1})
	}
	return s.places
}

// plainEnd reports whether a plain text can end here.
func (s *scalar) plainEnd() []filePlace {
	rest := strings.TrimLeft(string(s.lines[s.row][s.col:]), " \t")
	if !strings.HasPrefix(rest, ",") && !strings.HasPrefix(rest, "}") && !strings.HasPrefix(rest, "#") {
		return nil
	}
	return s.end()
}

// escape reads what stands behind a backslash; -1 = a line break.
func (s *scalar) escape() (rune, bool) {
	if s.blankToEnd() {
		return -1, true
	}
	c := s.peek()
	s.col++
	digits := map[rune]int{'x': 2, 'u': 4, 'U': 8}[c]
	if digits > 0 {
		return s.hex(digits)
	}
	one, ok := map[rune]rune{
		'0': 0, 'a': '\a', 'b': '\b', 't': '\t', '\t': '\t', 'n': '\n', 'v': '\v', 'f': '\f', 'r': '\r', 'e': 0x1b, ' ': ' ',
		'"': '"', '/': '/', '\\': '\\', 'N': 0x85, '_': 0xa0, 'L': 0x2028, 'P': 0x2029,
	}[c]
	return one, ok
}

func (s *scalar) hex(digits int) (rune, bool) {
	if len(s.lines[s.row])-s.col < digits {
		return 0, false
	}
	var value rune
	for range digits {
		digit := strings.IndexRune("0123456789abcdef", unicode.ToLower(s.peek()))
		if digit < 0 {
			return 0, false
		}
		value = value<<4 | rune(digit)
		s.col++
	}
	return value, value >= 0
}
