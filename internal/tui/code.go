package tui

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// keywords are those of the common languages together: a word of another language in
// bold does no harm.
const keywords = " and as async await break case catch chan class const continue def default defer delete do elif else end enum " +
	"except export extends false finally fn for foreach from func function go if impl implements import in interface is lambda " +
	"let local loop map match mod module mut new nil none not null or package pass private protected pub public raise range " +
	"return select self static struct super switch then this throw trait true try type typeof undefined union unless until use " +
	"using var void where while with yield "

// coloured is a line of code with its comments, strings, numbers and keywords told
// apart, as they are written in most languages.
func (p *page) coloured(language, line string) string {
	switch {
	case !p.look.Color:
		return line
	case language == "diff" && strings.HasPrefix(line, "+"):
		return p.sgr("32", line)
	case language == "diff" && strings.HasPrefix(line, "-"):
		return p.sgr("31", line)
	}
	var b strings.Builder
	for rest := line; rest != ""; {
		style, n := "", 0
		switch c := rest[0]; {
		case strings.HasPrefix(rest, "//"), strings.HasPrefix(rest, "-- "), c == '#' && (len(rest) == 1 || rest[1] == ' ' || rest[1] == '!'):
			style, n = "90", len(rest)
		case c == '"' || c == '\'' || c == '`':
			style, n = "32", quotedLen(rest)
		case c >= '0' && c <= '9':
			style, n = "35", wordLen(rest)
		default:
			if n = wordLen(rest); n > 0 && n < 16 && strings.Contains(keywords, " "+rest[:n]+" ") {
				style = "34"
			}
		}
		if n == 0 {
			_, n = utf8.DecodeRuneInString(rest)
		}
		b.WriteString(p.sgr(style, rest[:n]))
		rest = rest[n:]
	}
	return b.String()
}

// quotedLen is the length of the string that s begins with; 1 if it has no end.
func quotedLen(s string) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case s[0]:
			return i + 1
		}
	}
	return 1
}

func wordLen(s string) int {
	end := strings.IndexFunc(s, func(r rune) bool { return r != '_' && r != '.' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	if end < 0 {
		return len(s)
	}
	return end
}

// broken breaks a line that is wider than the terminal, if it can at a space.
func broken(line string, width int) []string {
	return strings.Split(ansi.Wrap(line, max(width, 1), ""), "\n")
}
