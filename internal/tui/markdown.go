package tui

import (
	"fmt"
	"strings"

	"charm.land/glamour/v2"
	"charm.land/glamour/v2/ansi"
	text "github.com/charmbracelet/x/ansi"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	source "github.com/yuin/goldmark/text"
)

// maxProse is the width at which prose is broken on wide terminals: longer lines
// are hard to read.
const maxProse = 100

// markdown renders Markdown for one width.
type markdown struct {
	look  Look
	width int
	term  *glamour.TermRenderer
}

// render returns the lines of a block. What cannot be rendered is shown as it
// came.
func (m *markdown) render(src string, width int) []string {
	src = plainReferences(visible(src))
	width = max(width, 10)
	if deep(src) {
		return plainLines(src, width)
	}
	out, err := m.try(src, width)
	if err != nil {
		return plainLines(src, width)
	}
	return fit(trimmed(m.look.signs(onlyColours(out, m.look.Color))), width)
}

// try renders; a parser of Markdown that panics on some text must not end a
// conversation.
func (m *markdown) try(src string, width int) (out string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("markdown: %v", p)
		}
	}()
	if m.term == nil || m.width != width {
		m.term, err = glamour.NewTermRenderer(
			glamour.WithStyles(m.look.markdown()), glamour.WithWordWrap(min(width, maxProse)),
			glamour.WithChromaFormatter(m.look.formatter()), glamour.WithInlineTableLinks(true),
		)
		if err != nil {
			return "", err
		}
		m.width = width
	}
	return m.term.Render(src)
}

// plainLines is a text without Markdown.
func plainLines(src string, width int) []string {
	return trimmed(text.Wrap(src, width, ""))
}

// Bounds of what is rendered. The renderer takes time that grows steeply with
// depth and with marks that have no partner; no text for people has so many.
const (
	maxNesting = 16  // blocks and spans within each other
	maxMarks   = 400 // of one kind in a block
)

// deep tells whether a text is nested more deeply than any text for people, or has
// more marks.
func deep(src string) bool {
	for _, mark := range []string{"[", "*", "_", "`", "<", "|", "~", "&", "\\"} {
		most := maxMarks
		if mark == "|" || mark == "`" || mark == "*" {
			most *= 4
		}
		if strings.Count(src, mark) > most {
			return true
		}
	}
	for l := range strings.Lines(src) {
		// What a line of many nested quotes and lists begins with.
		start := len(l) - len(strings.TrimLeft(l, "> \t-*+0123456789.)"))
		if marks := strings.Count(l[:start], " ") + strings.Count(l[:start], ">"); marks > 8*maxNesting {
			return true
		}
	}
	root := goldmark.New(goldmark.WithExtensions(extension.GFM, extension.DefinitionList)).Parser().Parse(source.NewReader([]byte(src)))
	return depth(root, 0) > maxNesting
}

// depth is how deep a tree is, as far as that is of interest.
func depth(n ast.Node, at int) int {
	most := at
	for c := n.FirstChild(); c != nil && most <= maxNesting; c = c.NextSibling() {
		most = max(most, depth(c, at+1))
	}
	return most
}

func ptr[T any](v T) *T { return &v }

// markdown is how Markdown looks: calm, with the sixteen colours that each
// terminal has chosen itself, so that it is readable on dark and light ones.
func (l Look) markdown() ansi.StyleConfig {
	none := ansi.StyleConfig{
		BlockQuote: ansi.StyleBlock{Indent: ptr(uint(1)), IndentToken: ptr("│ ")},
		List:       ansi.StyleList{LevelIndent: 2},
		Heading:    ansi.StyleBlock{StylePrimitive: ansi.StylePrimitive{BlockSuffix: "\n"}},
		Item:       ansi.StylePrimitive{BlockPrefix: "• "},
		Enumeration: ansi.StylePrimitive{
			BlockPrefix: ". ",
		},
		Task:           ansi.StyleTask{Ticked: "[x] ", Unticked: "[ ] "},
		HorizontalRule: ansi.StylePrimitive{Format: "\n────────\n"},
		ImageText:      ansi.StylePrimitive{Format: "Image: {{.text}}"},
		CodeBlock:      ansi.StyleCodeBlock{StyleBlock: ansi.StyleBlock{Margin: ptr(uint(2))}},
		Table: ansi.StyleTable{
			CenterSeparator: ptr("┼"), ColumnSeparator: ptr("│"), RowSeparator: ptr("─"),
		},
	}
	if !l.Color {
		none.H1.Prefix, none.H2.Prefix, none.H3.Prefix = "# ", "## ", "### "
		none.H4.Prefix, none.H5.Prefix, none.H6.Prefix = "#### ", "##### ", "###### "
		none.Code = ansi.StyleBlock{StylePrimitive: ansi.StylePrimitive{Prefix: "`", Suffix: "`"}}
		none.Emph = ansi.StylePrimitive{BlockPrefix: "*", BlockSuffix: "*"}
		none.Strong = ansi.StylePrimitive{BlockPrefix: "**", BlockSuffix: "**"}
		none.Strikethrough = ansi.StylePrimitive{BlockPrefix: "~~", BlockSuffix: "~~"}
		return none
	}
	bold, dim := ansi.StylePrimitive{Bold: ptr(true)}, ansi.StylePrimitive{Faint: ptr(true)}
	none.Heading.Bold = ptr(true)
	none.H1.Underline = ptr(true)
	none.H3.Color, none.H4.Color, none.H5.Color, none.H6.Color = ptr("6"), ptr("6"), ptr("6"), ptr("6")
	none.Strong, none.HorizontalRule.Faint = bold, ptr(true)
	none.Emph = ansi.StylePrimitive{Italic: ptr(true)}
	none.Strikethrough = ansi.StylePrimitive{CrossedOut: ptr(true)}
	none.BlockQuote.Faint = ptr(true)
	none.Code = ansi.StyleBlock{StylePrimitive: ansi.StylePrimitive{Color: ptr("6")}}
	none.Link = ansi.StylePrimitive{Color: ptr("4"), Underline: ptr(true)}
	none.LinkText = ansi.StylePrimitive{Bold: ptr(true)}
	none.Image, none.ImageText = none.Link, ansi.StylePrimitive{Faint: ptr(true), Format: "Image: {{.text}}"}
	none.HTMLBlock, none.HTMLSpan = ansi.StyleBlock{StylePrimitive: dim}, ansi.StyleBlock{StylePrimitive: dim}
	none.CodeBlock.Chroma = code()
	return none
}

// code is how code looks: four colours are enough to read it.
func code() *ansi.Chroma {
	colour := func(hex string) ansi.StylePrimitive { return ansi.StylePrimitive{Color: ptr(hex)} }
	keyword, name, number, quoted, aside := colour("#000080"), colour("#008080"), colour("#800080"), colour("#008000"), colour("#808080")
	return &ansi.Chroma{
		Comment: aside, CommentPreproc: aside,
		Keyword: keyword, KeywordReserved: keyword, KeywordNamespace: keyword, KeywordType: name,
		NameBuiltin: name, NameTag: keyword, NameAttribute: name, NameDecorator: name,
		LiteralNumber: number, LiteralDate: number, NameConstant: number,
		LiteralString: quoted, LiteralStringEscape: number,
		GenericDeleted: colour("#800000"), GenericInserted: quoted, GenericStrong: ansi.StylePrimitive{Bold: ptr(true)},
	}
}

func (l Look) formatter() string {
	if !l.Color {
		return "noop"
	}
	return "terminal16"
}
