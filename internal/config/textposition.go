package config

import (
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// TextPosition is where the characters of a text begin in the file; both from 1.
// The zero value means that places in the text are not places in the file: it is
// folded over lines, or has escapes.
type TextPosition struct{ Line, Column int }

// TextPosition returns where the text of a key that holds an expression begins,
// such as rules[0].when. Later lines of it begin at the same column.
func (c *Config) TextPosition(path string) TextPosition { return c.texts[path] }

// startOfWord is where a plain or quoted text begins, if it stands in the file as
// it is.
func startOfWord(x *ast.StringNode) TextPosition {
	t := x.Token
	if t == nil || t.Position == nil {
		return TextPosition{}
	}
	at := TextPosition{t.Position.Line, t.Position.Column}
	written, quote := strings.TrimSpace(t.Origin), ""
	switch t.Type {
	case token.SingleQuoteType:
		quote = "'"
	case token.DoubleQuoteType:
		quote = `"`
	}
	at.Column += len(quote)
	if written != quote+x.Value+quote || strings.ContainsAny(x.Value, "\r\n") {
		return TextPosition{}
	}
	return at
}

// startOfBlock is where a text begins that is written as a block of lines.
func startOfBlock(x *ast.LiteralNode) TextPosition {
	if x.Start == nil || x.Start.Position == nil || x.Value == nil || x.Value.Token == nil || len(x.Start.Value) == 0 || x.Start.Value[0] != '|' {
		return TextPosition{}
	}
	for line := range strings.SplitSeq(x.Value.Token.Origin, "\n") {
		if text := strings.TrimLeft(line, " "); strings.TrimSpace(text) != "" {
			first, _, _ := strings.Cut(strings.TrimLeft(x.Value.Value, "\r\n"), "\n")
			indent := len(line) - len(first)
			if indent < 0 || line[indent:] != first {
				return TextPosition{}
			}
			return TextPosition{x.Start.Position.Line + 1, indent + 1}
		}
	}
	return TextPosition{}
}
