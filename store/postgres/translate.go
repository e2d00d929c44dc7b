package postgres

import (
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib/store/sqlstore"
)

// relations are the tables and views that statements of store/sqlstore name.
var relations = map[string]bool{
	"runs": true, "events": true, "said": true, "contents": true, "content_pieces": true, "docs": true, "sessions": true,
	"counters": true, "inbox": true, "system_events": true, "system_head": true, "usage": true, "reservations": true,
	"token_calls": true, "token_minute": true, "leases": true, "state": true, "files": true,
}

// translate returns a statement of store/sqlstore, which is written for SQLite, for PostgreSQL:
// parameters have numbers, relations a schema, the column user is quoted, hints for the planner are left out,
// and the clock and paths into JSON have PostgreSQL's form.
func translate(query string) string {
	var to strings.Builder
	previous, params := "", 0 // previous is the last token that is not a space
	for rest := strings.ReplaceAll(query, sqlstore.Clock, clock); rest != ""; {
		token := next(rest)
		rest = rest[len(token):]
		out := token
		switch {
		case strings.TrimSpace(token) == "":
			to.WriteByte(' ')
			continue
		case token[0] == '?':
			n, err := strconv.Atoi(token[1:])
			if err != nil { // without a number, it is the next one
				n = params + 1
			}
			params, out = max(params, n), "$"+strconv.Itoa(n)
		case token == "->>":
			out = "OPERATOR(toolcrib.->>)"
		case token[0] == '\'' && previous == "->>":
			out = "'{" + pathInto.Replace(token[1:len(token)-1]) + "}'"
		case token == "BY" && previous == "INDEXED":
			token, out = "INDEXED BY", ""
		case token == "INDEXED", token == "CROSS", previous == "INDEXED BY", token == "+" && previous == "LIMIT":
			out = ""
		case token == "user":
			out = `"user"`
		case token == "json_valid", relations[token] && slices.Contains(before, previous):
			out = "toolcrib." + token
		}
		to.WriteString(out)
		previous = token
	}
	return to.String()
}

// clock is [sqlstore.Clock] for PostgreSQL.
const clock = "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)"

// pathInto converts a path into JSON, such as $.input[#-1], to input,-1.
var pathInto = strings.NewReplacer("$.", "", "[#", ",", "]", "", ".", ",")

// before are the words before the name of a relation.
var before = []string{"FROM", "JOIN", "INTO", "UPDATE"}

// next returns the first token of a statement: spaces, a word, a string, a parameter or an operator.
func next(s string) string {
	end := 1
	span := func(of func(byte) bool) string {
		for end < len(s) && of(s[end]) {
			end++
		}
		return s[:end]
	}
	switch c := s[0]; {
	case isSpace(c):
		return span(isSpace)
	case isWord(c):
		return span(isWord)
	case c == '?':
		return span(func(c byte) bool { return '0' <= c && c <= '9' })
	case c == '\'':
		span(func(c byte) bool { return c != '\'' })
		return s[:min(end+1, len(s))]
	case strings.HasPrefix(s, "->>"):
		return "->>"
	}
	return s[:1]
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' }

func isWord(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// Text in PostgreSQL is UTF-8 without U+0000. Any other byte of a text is stored as escape and two
// hexadecimal digits, and escape itself twice.

const (
	escape = "\U0010ffff" // no character
	hexes  = "0123456789abcdef"
)

// escaped returns a text as it is stored.
func escaped(s string) string {
	if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 && !strings.Contains(s, escape) {
		return s
	}
	var to strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == 0, r == utf8.RuneError && n == 1:
			to.WriteString(escape)
			to.WriteByte(hexes[s[0]>>4])
			to.WriteByte(hexes[s[0]&15])
		case s[:n] == escape:
			to.WriteString(escape + escape)
		default:
			to.WriteString(s[:n])
		}
		s = s[n:]
	}
	return to.String()
}

// unescaped returns a text that was stored. Text that was not escaped by this package stays as it is.
func unescaped(s string) string {
	before, rest, found := strings.Cut(s, escape)
	if !found {
		return s
	}
	var to strings.Builder
	for found {
		to.WriteString(before)
		b, err := hex.DecodeString(rest[:min(2, len(rest))])
		switch {
		case err == nil && len(b) == 1:
			to.Write(b)
			rest = rest[2:]
		default:
			to.WriteString(escape)
			rest = strings.TrimPrefix(rest, escape)
		}
		before, rest, found = strings.Cut(rest, escape)
	}
	to.WriteString(before)
	return to.String()
}
