package tui

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	table "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"github.com/toolcrib/toolcrib/internal/render"
)

// maxProse is the width at which prose is broken on wide terminals: longer lines
// are hard to read.
const maxProse = 100

// markdown renders Markdown for one width, with the sixteen colours that each terminal
// has chosen itself. (The libraries for it register the grammars of 250 programming
// languages when the program starts, which takes longer than all else; see
// docs/architecture.md.)
type markdown struct {
	look   Look
	parser parser.Parser // nil until the first block
}

// render returns the lines of a block. What cannot be rendered is shown as it
// came.
func (m *markdown) render(src string, width int) []string {
	src = visible(src)
	width = max(width, 10)
	out, err := m.try(src, min(width, maxProse))
	if err != nil {
		out = broken(src, width)
	}
	return fit(trimmed(m.look.signs(strings.Join(out, "\n"))), width)
}

// try renders; a parser of Markdown that panics on some text must not end a
// conversation.
func (m *markdown) try(src string, width int) (out []string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("markdown: %v", p)
		}
	}()
	if tooDeep(src) {
		return nil, errTooDeep
	}
	if m.parser == nil {
		m.parser = goldmark.New(goldmark.WithExtensions(extension.Table, extension.Strikethrough)).Parser()
	}
	root := m.parser.Parse(text.NewReader([]byte(src)))
	if depth(root, 0) > maxNesting {
		return nil, errTooDeep
	}
	r := page{look: m.look, src: []byte(src)}
	return r.blocks(root, width), nil
}

var errTooDeep = fmt.Errorf("markdown: nested too deeply")

// Bounds of what is rendered. The parser takes time that grows steeply with depth
// and with marks that have no partner; no text for people has so many.
const (
	maxNesting = 16  // blocks and spans within each other
	maxMarks   = 400 // of one kind in a block
)

// tooDeep reports whether a text is nested more deeply than any text for people, or
// has more marks.
func tooDeep(src string) bool {
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
	return false
}

// depth is how deep a tree is, as far as that is of interest.
func depth(n ast.Node, at int) int {
	most := at
	for c := n.FirstChild(); c != nil && most <= maxNesting; c = c.NextSibling() {
		most = max(most, depth(c, at+1))
	}
	return most
}

// page renders one parsed text.
type page struct {
	look Look
	src  []byte
}

// blocks are the lines of the blocks in n, with an empty line between them except in
// the items of a tight list.
func (p *page) blocks(n ast.Node, width int) []string {
	list, ok := n.Parent().(*ast.List)
	tight := ok && list.IsTight // n is an item of a list without gaps
	var out []string
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		if len(out) > 0 && !tight {
			out = append(out, "")
		}
		out = append(out, p.block(c, max(width, 1))...)
	}
	return out
}

func (p *page) block(n ast.Node, width int) []string {
	switch n := n.(type) {
	case *ast.Heading:
		return p.heading(n, width)
	case *ast.List:
		return p.list(n, width)
	case *ast.Blockquote:
		return prefixed(p.dim("│ "), p.blocks(n, width-2))
	case *ast.FencedCodeBlock:
		return p.code(n, width, string(n.Language(p.src)))
	case *ast.CodeBlock:
		return p.code(n, width, "")
	case *ast.HTMLBlock:
		return p.verbatim(n, width, p.dim)
	case *ast.ThematicBreak:
		return []string{p.dim("────────")}
	case *table.Table:
		return p.table(n, width)
	case *ast.Paragraph, *ast.TextBlock:
		return p.prose(n, "", width)
	}
	return p.blocks(n, width)
}

// sgr styles a text; parameters as ECMA-48 numbers them.
func (p *page) sgr(parameters, s string) string {
	if !p.look.Color || parameters == "" || s == "" {
		return s
	}
	return "\x1b[" + parameters + "m" + s + "\x1b[0m"
}

func (p *page) dim(s string) string { return p.sgr("2", s) }

func (p *page) heading(n *ast.Heading, width int) []string {
	style := "1"
	switch {
	case n.Level == 1:
		style = "1;4"
	case n.Level > 2:
		style = "1;36"
	}
	lines := p.prose(n, style, width)
	if !p.look.Color {
		lines[0] = strings.Repeat("#", n.Level) + " " + lines[0]
	}
	return lines
}

func (p *page) list(n *ast.List, width int) []string {
	var out []string
	number := n.Start
	for item := n.FirstChild(); item != nil; item = item.NextSibling() {
		mark := "• "
		if n.IsOrdered() {
			mark = strconv.Itoa(number) + ". "
			number++
		}
		indent := strings.Repeat(" ", ansi.StringWidth(mark))
		for i, l := range p.blocks(item, width-len(indent)) {
			switch {
			case i == 0:
				l = mark + l
			case l != "":
				l = indent + l
			}
			out = append(out, l)
		}
		if !n.IsTight && item.NextSibling() != nil {
			out = append(out, "")
		}
	}
	return out
}

func (p *page) code(n ast.Node, width int, language string) []string {
	return p.verbatim(n, width-2, func(l string) string { return "  " + p.coloured(language, l) })
}

// verbatim are the lines of a block as they came.
func (p *page) verbatim(n ast.Node, width int, tone func(string) string) (out []string) {
	for _, l := range lines(string(n.Lines().Value(p.src))) {
		for _, part := range broken(l, width) {
			out = append(out, tone(part))
		}
	}
	return out
}

// table lays columns out side by side; where they do not fit, cells are cut.
func (p *page) table(n *table.Table, width int) []string {
	var rows [][]string
	var widths []int
	for row := n.FirstChild(); row != nil; row = row.NextSibling() {
		var cells []string
		for cell := row.FirstChild(); cell != nil; cell = cell.NextSibling() {
			text := strings.Join(p.prose(cell, "", 1<<12), " ")
			if len(cells) == len(widths) {
				widths = append(widths, 1)
			}
			widths[len(cells)] = max(widths[len(cells)], ansi.StringWidth(text))
			cells = append(cells, text)
		}
		rows = append(rows, cells)
	}
	over := 3*len(widths) - width
	for _, w := range widths {
		over += w
	}
	render.Narrow(widths, over, 0, max((width-3*len(widths))/max(len(widths), 1), 3))
	var out []string
	for i, cells := range rows {
		var line, rule []string
		for c, w := range widths {
			text := ""
			if c < len(cells) {
				text = ansi.Truncate(cells[c], w, "…")
			}
			line = append(line, text+strings.Repeat(" ", w-ansi.StringWidth(text)))
			rule = append(rule, strings.Repeat("─", w))
		}
		out = append(out, " "+strings.Join(line, " │ "))
		if i == 0 {
			out = append(out, "─"+strings.Join(rule, "─┼─"))
		}
	}
	return out
}

// span is a piece of prose in one style.
type span struct{ text, style string }

// prose are the lines of a block of inline text, broken at words.
func (p *page) prose(n ast.Node, style string, width int) []string {
	var out []string
	var line strings.Builder
	used := 0
	emit := func() {
		out = append(out, strings.TrimRight(line.String(), " "))
		line.Reset()
		used = 0
	}
	glued := false // the last word has no space behind it
	for _, s := range p.spans(n, style, nil) {
		for i, word := range strings.SplitAfter(s.text, " ") {
			if strings.HasPrefix(word, "\n") { // a hard break is alone
				emit()
				glued = false
				continue
			}
			if word == "" {
				continue
			}
			w := ansi.StringWidth(strings.TrimRight(word, " "))
			if used > 0 && used+w > width && (i > 0 || !glued) {
				emit()
			}
			bare := strings.TrimRight(word, " ")
			line.WriteString(p.sgr(s.style, bare))
			line.WriteString(word[len(bare):])
			used += w + len(word) - len(bare)
			glued = bare == word
		}
	}
	emit()
	return out
}

func both(style, more string) string {
	if style == "" {
		return more
	}
	return style + ";" + more
}

// marked puts marks around inline text where there are no colours to show it.
func (p *page) marked(n ast.Node, style, more, mark string, spans []span) []span {
	if p.look.Color {
		return p.spans(n, both(style, more), spans)
	}
	return append(p.spans(n, style, append(spans, span{mark, ""})), span{mark, ""})
}

// spans appends the inline text in n.
func (p *page) spans(n ast.Node, style string, spans []span) []span {
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		switch c := c.(type) {
		case *ast.Text:
			spans = append(spans, span{p.plain(c.Value(p.src), c.IsRaw()), style})
			switch {
			case c.HardLineBreak():
				spans = append(spans, span{"\n", ""})
			case c.SoftLineBreak():
				spans = append(spans, span{" ", style})
			}
		case *ast.String:
			spans = append(spans, span{p.plain(c.Value, true), style})
		case *ast.CodeSpan:
			var code []byte
			for t := c.FirstChild(); t != nil; t = t.NextSibling() {
				if piece, ok := t.(*ast.Text); ok {
					code = append(code, piece.Value(p.src)...)
				}
			}
			shown := strings.ReplaceAll(string(code), "\n", " ")
			if !p.look.Color {
				shown = "`" + shown + "`"
			}
			spans = append(spans, span{shown, both(style, "36")})
		case *ast.Emphasis:
			if c.Level == 1 {
				spans = p.marked(c, style, "3", "*", spans)
			} else {
				spans = p.marked(c, style, "1", "**", spans)
			}
		case *table.Strikethrough:
			spans = p.marked(c, style, "9", "~~", spans)
		case *ast.Link:
			spans = p.spans(c, both(style, "1"), spans)
			spans = append(spans, span{" " + p.plain(c.Destination, true), "4;34"})
		case *ast.Image:
			spans = append(p.spans(c, both(style, "2"), append(spans, span{"Image: ", "2"})),
				span{" " + p.plain(c.Destination, true), "4;34"})
		case *ast.AutoLink:
			spans = append(spans, span{p.plain(c.URL(p.src), true), "4;34"})
		case *ast.RawHTML:
			for i := range c.Segments.Len() {
				at := c.Segments.At(i)
				spans = append(spans, span{p.plain(at.Value(p.src), true), both(style, "2")})
			}
		default:
			spans = p.spans(c, style, spans)
		}
	}
	return spans
}

// plain is text as it is shown: escapes and character references are resolved, and
// what they stand for is made visible like everything else.
func (p *page) plain(raw []byte, literal bool) string {
	if !literal && bytes.ContainsAny(raw, `\&`) {
		raw = util.ResolveEntityNames(util.ResolveNumericReferences(util.UnescapePunctuations(raw)))
	}
	return strings.ReplaceAll(visible(string(raw)), "\n", " ")
}

func prefixed(prefix string, lines []string) []string {
	for i := range lines {
		lines[i] = prefix + lines[i]
	}
	return lines
}

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
		case strings.HasPrefix(rest, "//"), strings.HasPrefix(rest, "-- "),
			c == '#' && (len(rest) == 1 || rest[1] == ' ' || rest[1] == '!'):
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
	end := strings.IndexFunc(s, func(r rune) bool {
		return r != '_' && r != '.' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
	if end < 0 {
		return len(s)
	}
	return end
}

// broken breaks a line that is wider than the terminal, if it can at a space. Of a row that
// is exactly as wide, [ansi.Wrap] leaves that space to the next.
func broken(line string, width int) []string {
	return strings.Split(strings.ReplaceAll(ansi.Wrap(line, max(width, 1), ""), "\n ", "\n"), "\n")
}
