package shell

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// word is a word of a command as the program gets it, but for patterns, which are
// still to be expanded.
type word struct {
	text string
	// glob is the word as a pattern of path.Match, quoted characters escaped; ""
	// unless an unquoted *, ? or [ makes it one.
	glob string
}

func (w word) pattern() bool { return w.glob != "" }

// wordReader puts the parts of a word together.
type wordReader struct {
	text, glob strings.Builder
	meta       bool
}

// readWord reads a word, or refuses one that a shell would have to work out.
func readWord(w *syntax.Word) (word, error) {
	var r wordReader
	for i, part := range w.Parts {
		if err := r.part(part, i == 0); err != nil {
			return word{}, err
		}
	}
	out := word{text: r.text.String()}
	if r.meta {
		out.glob = r.glob.String()
	}
	return out, nil
}

func (r *wordReader) part(part syntax.WordPart, first bool) error {
	switch p := part.(type) {
	case *syntax.Lit:
		return r.unquoted(p.Value, first)
	case *syntax.SglQuoted:
		if p.Dollar {
			return refuse("$'…' is not allowed; use '…'")
		}
		r.literal(p.Value)
		return nil
	case *syntax.DblQuoted:
		if p.Dollar {
			return refuse(`$"…" is not allowed; use "…"`)
		}
		for _, inner := range p.Parts {
			text, ok := inner.(*syntax.Lit)
			if !ok {
				return refuse("%s; quote with '…' to mean the characters themselves", expansion(inner))
			}
			r.literal(unescape(text.Value))
		}
		return nil
	}
	return refuse("%s; quote with '…' to mean the characters themselves", expansion(part))
}

// expansion names what is refused inside a word.
func expansion(part syntax.WordPart) string {
	switch part.(type) {
	case *syntax.ParamExp:
		return "variables ($NAME) are not allowed"
	case *syntax.CmdSubst:
		return "command substitution ($(…), `…`) is not allowed"
	case *syntax.ArithmExp:
		return "arithmetic ($((…))) is not allowed"
	case *syntax.ProcSubst:
		return "process substitution (<(…)) is not allowed"
	case *syntax.ExtGlob:
		return "extended patterns (@(…), +(…), !(…)) are not allowed"
	}
	return "this expansion is not allowed"
}

// literal adds quoted text.
func (r *wordReader) literal(text string) {
	r.text.WriteString(text)
	for i := range len(text) {
		if strings.IndexByte(`*?[]\`, text[i]) >= 0 {
			r.glob.WriteByte('\\')
		}
		r.glob.WriteByte(text[i])
	}
}

// unquoted adds unquoted text: a backslash quotes the character after it.
func (r *wordReader) unquoted(text string, first bool) error {
	if first && strings.HasPrefix(text, "~") {
		return refuse("~ is not allowed; paths are relative to the workspace")
	}
	if braces(text) {
		return refuse("{a,b} and {1..3} are not allowed; write the words out, or quote them")
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '\\':
			if i++; i < len(text) && text[i] != '\n' {
				r.literal(text[i : i+1])
			}
		case '*', '?', '[':
			r.meta = true
			r.text.WriteByte(c)
			r.glob.WriteByte(c)
			if c == '[' && i+1 < len(text) && text[i+1] == '!' {
				i++
				r.text.WriteByte('!')
				r.glob.WriteByte('^')
			}
		default:
			r.text.WriteByte(c)
			r.glob.WriteByte(c)
		}
	}
	return nil
}

// braces reports whether bash would expand braces in unquoted text.
func braces(text string) bool {
	open := strings.IndexByte(text, '{')
	if open < 0 {
		return false
	}
	rest := text[open:]
	return strings.Contains(rest, "}") && (strings.Contains(rest, ",") || strings.Contains(rest, ".."))
}

// unescape reads text between double quotes, where a backslash quotes only a few
// characters.
func unescape(text string) string {
	if !strings.Contains(text, `\`) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+1 < len(text) && strings.IndexByte("$`\"\\\n", text[i+1]) >= 0 {
			if i++; text[i] == '\n' {
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}
