package ui

import (
	"bytes"
	"html/template"
	"strings"

	"github.com/microcosm-cc/bluemonday"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/renderer"
	goldmarkutil "github.com/yuin/goldmark/util"

	"github.com/toolcrib/toolcrib/guard"
)

// What is larger is shown as it is: reading and writing it may take time and memory that grow with the square of its
// length.
const (
	maxMarkdown = 64 << 10 // bytes
	maxCells    = 20_000   // of tables, whose rows all get as many cells as the head
	maxQuoted   = 50       // levels of quotes
	maxBrackets = 2_000
)

// simple reports whether a text is within the bounds.
func simple(text string) bool {
	widest, lines, quoted := 0, 0, 0
	for line := range strings.Lines(text) {
		widest, lines = max(widest, strings.Count(line, "|")), lines+1
		marks := strings.TrimLeft(line, "> \t")
		quoted = max(quoted, strings.Count(line[:len(line)-len(marks)], ">"))
	}
	return len(text) <= maxMarkdown && (widest < 2 || (widest+1)*lines <= maxCells) && quoted <= maxQuoted &&
		strings.Count(text, "[") <= maxBrackets
}

// markdown renders text of models. HTML in it is shown as text, images are links, and the result has only the elements
// of sanitizer. Both libraries may be used by several goroutines.
type markdown struct {
	reader    goldmark.Markdown
	sanitizer *bluemonday.Policy
}

func newMarkdown() *markdown {
	m := &markdown{
		reader: goldmark.New(
			goldmark.WithExtensions(extension.Table, extension.Strikethrough, extension.TaskList),
			goldmark.WithRendererOptions(renderer.WithNodeRenderers(goldmarkutil.Prioritized(asText{}, 1))),
		),
		sanitizer: bluemonday.NewPolicy(),
	}
	m.sanitizer.AllowElements("p", "br", "hr", "strong", "em", "del", "code", "pre", "blockquote", "ul", "ol", "li",
		"h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td")
	m.sanitizer.AllowAttrs("start").Matching(bluemonday.Integer).OnElements("ol")
	m.sanitizer.AllowAttrs("align").Matching(bluemonday.CellAlign).OnElements("th", "td")
	m.sanitizer.AllowAttrs("href").OnElements("a")
	m.sanitizer.AllowURLSchemes("http", "https", "mailto")
	m.sanitizer.AllowRelativeURLs(false)
	m.sanitizer.RequireNoFollowOnLinks(true)
	m.sanitizer.RequireNoReferrerOnLinks(true)
	m.sanitizer.AddTargetBlankToFullyQualifiedLinks(true)
	return m
}

// render returns a text as HTML. Hidden characters are shown.
func (m *markdown) render(text string) template.HTML {
	text = guard.Visible(text)
	var b bytes.Buffer
	if !simple(text) || m.reader.Convert([]byte(text), &b) != nil {
		return template.HTML(`<p class="as-is">` + template.HTMLEscapeString(text) + `</p>`) //nolint:gosec // escaped
	}
	clean := m.sanitizer.SanitizeBytes(b.Bytes())
	return template.HTML(strings.TrimSpace(string(clean))) //nolint:gosec // sanitized
}

// asText renders HTML and images of other servers as text.
type asText struct{}

// RegisterFuncs implements [renderer.NodeRenderer].
func (asText) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindRawHTML, func(w goldmarkutil.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus,
		error,
	) {
		raw := n.(*ast.RawHTML)
		for i := 0; entering && i < raw.Segments.Len(); i++ {
			part := raw.Segments.At(i)
			template.HTMLEscape(w, part.Value(source))
		}
		return ast.WalkSkipChildren, nil
	})
	r.Register(ast.KindHTMLBlock, func(w goldmarkutil.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus,
		error,
	) {
		block := n.(*ast.HTMLBlock)
		if !entering {
			_, err := w.WriteString("</p>\n")
			return ast.WalkContinue, err
		}
		_, err := w.WriteString(`<p>`)
		for i := range block.Lines().Len() {
			line := block.Lines().At(i)
			template.HTMLEscape(w, line.Value(source))
		}
		if block.HasClosure() {
			template.HTMLEscape(w, block.ClosureLine.Value(source))
		}
		return ast.WalkContinue, err
	})
	r.Register(ast.KindImage, func(w goldmarkutil.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus,
		error,
	) {
		if !entering {
			_, err := w.WriteString("</a>")
			return ast.WalkContinue, err
		}
		_, err := w.WriteString(`<a href="` + template.HTMLEscapeString(string(n.(*ast.Image).Destination)) + `">`)
		return ast.WalkContinue, err
	})
}
