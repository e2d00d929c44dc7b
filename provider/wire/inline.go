package wire

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib"
)

// MaxInlineBytes bounds a text file that is in a message as text.
const MaxInlineBytes = 256 << 10

// Inline returns a message in which the text files that the API does not take as
// files stand as text, each fenced and under its name. One that is too large, or
// is not text after all, is replaced by [FileText], and Notices says so. m itself is
// not changed. Without a way to read files, it is returned as it is.
func (a *Attachments) Inline(m *toolcrib.Message) *toolcrib.Message {
	if a.req.Files == nil {
		return m
	}
	inlined := m
	for i := range m.Parts {
		f := m.Parts[i].File
		if f == nil || !isText(mediaType(f.MediaType)) || a.takes(mediaType(f.MediaType)) {
			continue
		}
		if inlined == m {
			changed := *m
			changed.Parts = slices.Clone(m.Parts)
			inlined = &changed
		}
		inlined.Parts[i] = toolcrib.Part{Text: a.inline(f)}
	}
	return inlined
}

func isText(kind string) bool {
	return strings.HasPrefix(kind, "text/") || slices.Contains([]string{
		"application/json", "application/xml",
		"application/yaml",
	}, kind)
}

func (a *Attachments) inline(f *toolcrib.File) string {
	kind := mediaType(f.MediaType)
	text := *a
	text.Rules.Types, text.Rules.MaxBytes = []string{kind}, MaxInlineBytes
	found, why := text.open(f)
	a.err = text.err
	if why == "" && !utf8.Valid(found.Data) {
		why = "it is not valid UTF-8"
	}
	if why != "" {
		a.Refuse(f, why)
		return FileText(f)
	}
	a.count++
	a.bytes += len(found.Data)
	content := string(found.Data)
	fence := "```"
	for strings.Contains(content, fence) {
		fence += "`"
	}
	return "\n" + FileText(f) + "\n" + fence + "\n" + strings.TrimSuffix(content, "\n") + "\n" + fence + "\n"
}
