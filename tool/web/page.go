package web

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	readability "codeberg.org/readeck/go-readability/v2"
	"github.com/JohannesKaufmann/html-to-markdown/v2/converter"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/base"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/commonmark"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/table"
	"golang.org/x/net/html"
	"golang.org/x/net/html/charset"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/internal/wire"
)

// Limits of the conversion to Markdown, which bound its cost.
const (
	maxHTML      = 4 << 20
	maxNesting   = 12   // nested lists and quotes; each level adds a mark to every line
	maxAttribute = 4096 // bytes
)

// result is the output of a fetch for the model.
type result struct {
	Status      int    `json:"status"`
	URL         string `json:"url"` // after redirects
	ContentType string `json:"content_type"`
	Length      *int64 `json:"content_length,omitempty"` // for HEAD
	Location    string `json:"location,omitempty"`       // target of a redirect of a write, which is not followed
	RetryAfter  string `json:"retry_after,omitempty"`
	Bytes       int    `json:"bytes"` // bytes read, after decompression
	Cached      bool   `json:"cached,omitempty"`
	Truncated   bool   `json:"truncated,omitempty"`
	LimitBytes  int64  `json:"limit_bytes,omitempty"`
	Hidden      int    `json:"hidden_left_out,omitempty"` // pieces of a page that are invisible to a reader
	Warning     string `json:"warning,omitempty"`
	Title       string `json:"title,omitempty"`
	Body        string `json:"body"`
}

// result converts a page to the output of a call.
func (f *fetcher) result(ctx context.Context, r *request, p *page) (toolcrib.Output, error) {
	out := result{
		Status: p.status, URL: p.url().String(), ContentType: p.contentType, RetryAfter: p.retryAfter,
		Bytes: len(p.data), Cached: p.cached, Truncated: p.cut,
	}
	if r.method == http.MethodHead && p.length >= 0 {
		out.Length = &p.length
	}
	if p.status/100 == 3 {
		out.Location = p.location
	}
	if p.cut {
		out.LimitBytes, out.Warning = int64(len(p.data)), "only the first part was read"
	}
	if media := p.media(); media == "" || media == "application/octet-stream" {
		if sniffed := http.DetectContentType(p.data); !strings.HasPrefix(sniffed, "text/") {
			return toolcrib.Output{}, f.failure(ctx, p.url(), &binary{sniffed})
		}
	}
	text, err := decode(p.data, p.contentType)
	if err != nil {
		return toolcrib.Output{}, f.failure(ctx, p.url(), err)
	}
	out.Body = text
	if isHTML(p, text) && r.format != "raw" {
		m, err := markdown(ctx, text, p.url(), r.format != "page")
		if ctx.Err() != nil {
			return toolcrib.Output{}, context.Cause(ctx)
		}
		if err != nil {
			m = read{body: text, warning: "this HTML could not be made into Markdown, so it is given as it is"}
		}
		out.Title, out.Body, out.Hidden, out.Warning = m.title, m.body, m.hidden, cmp.Or(out.Warning, m.warning)
		if out.Hidden > 0 {
			out.Warning = strings.TrimPrefix(out.Warning+`; text that the page hides was left out (format "raw" has it)`, "; ")
		}
	}
	o, err := wire.Output(out)
	o.Source, o.Cut, o.IsError = p.url().Hostname(), p.cut, p.status >= 500
	return o, err
}

func isHTML(p *page, text string) bool {
	switch media := p.media(); media {
	case "text/html", "application/xhtml+xml":
		return true
	case "":
		return strings.HasPrefix(http.DetectContentType([]byte(text)), "text/html")
	}
	return false
}

// decode converts a text to UTF-8 from the charset of its header, its first bytes or its meta elements.
// Without one it is UTF-8 if valid. Binary data is an error.
func decode(data []byte, contentType string) (string, error) {
	encoding, _, certain := charset.DetermineEncoding(data, contentType)
	if certain || !utf8.Valid(data) {
		decoded, err := encoding.NewDecoder().Bytes(data)
		if err != nil {
			return "", err
		}
		data = decoded
	}
	if bytes.IndexByte(data, 0) >= 0 {
		return "", &binary{"binary data"}
	}
	return strings.TrimPrefix(string(data), "\uFEFF"), nil
}

// read is the text of a page.
type read struct {
	title, body, warning string
	hidden               int
}

// markdown converts a page to Markdown. The libraries cannot be interrupted: if ctx ends, their work,
// which is bounded, continues in the background.
func markdown(ctx context.Context, text string, at *url.URL, article bool) (read, error) {
	type answer struct {
		read
		err error
	}
	done := make(chan answer, 1)
	go func() {
		var a answer
		defer func() {
			if v := recover(); v != nil {
				a.err = fmt.Errorf("web: a page could not be read: %v", v)
			}
			done <- a
		}()
		a.read, a.err = convert(text, at, article)
	}()
	select {
	case a := <-done:
		return a.read, a.err
	case <-ctx.Done():
		return read{}, context.Cause(ctx)
	}
}

func convert(text string, at *url.URL, article bool) (out read, err error) {
	if len(text) > maxHTML {
		text = strings.ToValidUTF8(text[:maxHTML], "")
		out.warning = fmt.Sprintf("only the first %d bytes were made into Markdown", maxHTML)
	}
	doc, hidden, err := parse(text, at)
	if err != nil {
		return out, err
	}
	out.hidden = hidden
	out.title = title(doc)
	if article && readability.CheckDocument(doc) {
		// FromDocument modifies its argument.
		if a, err := readability.FromDocument(doc, at); err == nil && a.Node != nil {
			body, err := converting().ConvertNode(a.Node)
			if err == nil && len(bytes.TrimSpace(body)) > 0 {
				out.title, out.body = cmp.Or(a.Title(), out.title), string(body)
				out.warning = cmp.Or(out.warning, `only the article of this page; format "page" returns all of it`)
				return out, nil
			}
		}
		if doc, _, err = parse(text, at); err != nil {
			return out, err
		}
	}
	body, err := converting().ConvertNode(doc)
	if err != nil {
		return out, err
	}
	out.body = string(body)
	return out, nil
}

// converting returns a converter. It escapes nothing, because no browser reads the text, and does not
// pad cells, which would multiply the size of a table.
func converting() *converter.Converter {
	return converter.NewConverter(converter.WithEscapeMode(converter.EscapeModeDisabled), converter.WithPlugins(
		base.NewBasePlugin(), commonmark.NewCommonmarkPlugin(),
		table.NewTablePlugin(table.WithCellPaddingBehavior(table.CellPaddingBehaviorMinimal)),
	))
}

// parse parses HTML, and removes content that is invisible or useless to a reader, or that makes a
// small page large.
func parse(text string, at *url.URL) (doc *html.Node, hidden int, err error) {
	if doc, err = html.Parse(strings.NewReader(text)); err != nil {
		return nil, 0, err
	}
	if doc == nil {
		return nil, 0, errors.New("web: no document")
	}
	hidden = veil(doc, lookOf(doc))
	tame(doc, at, 0)
	return doc, hidden, nil
}

// tame cleans a node and its descendants, which the parser nests at most 512 deep.
func tame(n *html.Node, at *url.URL, nesting int) {
	if n.Type == html.ElementNode {
		kept := n.Attr[:0]
		for _, a := range n.Attr {
			switch {
			case len(a.Val) > maxAttribute, a.Key == "colspan", a.Key == "rowspan", a.Key == "start", a.Key == "srcset":
				continue
			case a.Key == "href" || a.Key == "src":
				if a.Val = absolute(a.Val, at); a.Val == "" {
					continue
				}
			}
			kept = append(kept, a)
		}
		n.Attr = kept
		switch n.Data {
		case "ul", "ol", "blockquote", "dl":
			if nesting++; nesting > maxNesting {
				n.Data, n.DataAtom = "div", 0
			}
		case "base":
			n.Attr = nil
		}
	}
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		tame(c, at, nesting)
	}
}

// absolute resolves a link of a page, or returns "" if it cannot be followed.
func absolute(link string, at *url.URL) string {
	ref, err := url.Parse(strings.TrimSpace(link))
	if err != nil {
		return ""
	}
	to := at.ResolveReference(ref)
	switch to.Scheme {
	case "http", "https", "mailto":
		return to.String()
	}
	return ""
}

// title returns the text of the title element.
func title(n *html.Node) string {
	if n.Type == html.ElementNode && n.Data == "title" && n.FirstChild != nil {
		return strings.Join(strings.Fields(n.FirstChild.Data), " ")
	}
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		if found := title(c); found != "" {
			return found
		}
	}
	return ""
}
