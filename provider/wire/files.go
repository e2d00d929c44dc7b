package wire

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"image"
	_ "image/gif"  // sizes of images
	_ "image/jpeg" // sizes of images
	_ "image/png"  // sizes of images
	"mime"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib"
)

// Bounds of the files of one history for APIs that document none.
const (
	DefaultMaxFiles      = 100
	DefaultMaxFilesBytes = 20 << 20 // of all files, before base64
)

// FileRules are the files that an API accepts in a request.
type FileRules struct {
	Types    []string // media types, such as image/png
	MaxBytes int      // bytes of one file; if 0, toolcrib.MaxFileBytes
	MaxImage int      // bytes of an image; if 0, MaxBytes
	MaxEdge  int      // pixels of the longer side of an image; if 0, no limit
	MaxTotal int      // bytes of all files of the history; if 0, DefaultMaxFilesBytes
	MaxFiles int      // files of the history; if 0, DefaultMaxFiles

	// If there are more than Many files, no image may be wider or higher than
	// ManyEdge. If Many is 0, there is no such limit.
	Many, ManyEdge int
}

// Attachments reads the files of one conversation, each once while its message
// is encoded, as long as the encoded history is kept. It must be used by one
// goroutine at a time. The zero value accepts no file.
type Attachments struct {
	Rules FileRules
	// Notices are about the files that were not sent since Begin.
	Notices []toolcrib.Notice

	ctx          context.Context // context of the current request
	req          *toolcrib.Request
	count, bytes int
	wide         bool  // there is an image wider or higher than ManyEdge
	err          error // the error of ctx if it ended while a file was read
}

// Attachment is a file in a request.
type Attachment struct {
	Data      []byte
	MediaType string // detected from the bytes if possible
	Name      string // never empty
}

// Image reports whether the file is an image.
func (a *Attachment) Image() bool { return strings.HasPrefix(a.MediaType, "image/") }

// AppendBase64 appends the file in base64 (RFC 4648 §4).
func (a *Attachment) AppendBase64(dst []byte) []byte {
	return base64.StdEncoding.AppendEncode(dst, a.Data)
}

// AppendDataURL appends the file as a data URL (RFC 2397).
func (a *Attachment) AppendDataURL(dst []byte) []byte {
	dst = append(append(append(dst, "data:"...), a.MediaType...), ";base64,"...)
	return a.AppendBase64(dst)
}

// Begin starts a request; fresh means that the history is encoded from its start.
func (a *Attachments) Begin(ctx context.Context, req *toolcrib.Request, fresh bool) {
	a.ctx, a.req, a.Notices, a.err = ctx, req, nil, nil
	if fresh {
		a.count, a.bytes, a.wide = 0, 0, false
	}
}

// Err returns the error of the request's context if it ended while a file was read.
func (a *Attachments) Err() error { return a.err }

// Open reads a file of the request. It returns nil if the file is not sent; then Notices
// has the reason, and the caller sends [FileText] instead.
func (a *Attachments) Open(f *toolcrib.File) *Attachment {
	found, why := a.open(f)
	if why != "" {
		a.Refuse(f, why)
		return nil
	}
	a.count++
	a.bytes += len(found.Data)
	return found
}

// Refuse adds a notice that a file is not sent, and why.
func (a *Attachments) Refuse(f *toolcrib.File, why string) {
	a.Notices = append(a.Notices, Notice(toolcrib.NoticeFileNotSent, "%s is not sent: %s",
		strings.Trim(FileText(f), "[]"), why))
}

func (a *Attachments) open(f *toolcrib.File) (*Attachment, string) {
	kind := mediaType(f.MediaType)
	maxBytes := cmp.Or(a.Rules.MaxBytes, toolcrib.MaxFileBytes)
	maxTotal, maxFiles := cmp.Or(a.Rules.MaxTotal, DefaultMaxFilesBytes), cmp.Or(a.Rules.MaxFiles, DefaultMaxFiles)
	switch {
	case a.req.Files == nil:
		return nil, "this model takes no files"
	case !a.takes(kind) && kind != "application/octet-stream" && kind != "":
		return nil, "this API does not take its type"
	case f.Bytes > int64(maxBytes):
		return nil, tooLarge(maxBytes)
	case a.count >= maxFiles:
		return nil, fmt.Sprintf("this API takes %d files at most", maxFiles)
	}
	data, err := a.req.Files(a.ctx, f.Ref)
	if cause := a.ctx.Err(); cause != nil && err != nil {
		a.err = cause
	}
	switch {
	case err != nil:
		return nil, "it could not be read"
	case len(data) == 0:
		return nil, "it is empty"
	case len(data) > maxBytes:
		return nil, tooLarge(maxBytes)
	case a.bytes+len(data) > maxTotal:
		return nil, fmt.Sprintf("all files together have more than %d bytes", maxTotal)
	}
	kind, ok := contentType(kind, data)
	switch {
	case !ok || !a.takes(kind):
		return nil, "its content is not of a type that this API takes"
	case strings.HasPrefix(kind, "image/") && len(data) > cmp.Or(a.Rules.MaxImage, maxBytes):
		return nil, tooLarge(a.Rules.MaxImage)
	}
	if why := a.checkEdge(kind, data); why != "" {
		return nil, why
	}
	return &Attachment{Data: data, MediaType: kind, Name: cmp.Or(f.Name, f.Ref, "file")}, ""
}

func (a *Attachments) takes(kind string) bool { return slices.Contains(a.Rules.Types, kind) }

func tooLarge(limit int) string { return fmt.Sprintf("it has more than %d bytes", limit) }

func mediaType(s string) string {
	kind, _, err := mime.ParseMediaType(s)
	switch {
	case err != nil:
		return strings.ToLower(strings.TrimSpace(s))
	case kind == "image/jpg":
		return "image/jpeg"
	}
	return kind
}

// contentType checks the declared type of a file against its first bytes: the APIs
// reject a request with an image of another type than declared.
func contentType(said string, data []byte) (kind string, ok bool) {
	found := mediaType(http.DetectContentType(data))
	switch {
	case strings.HasPrefix(found, "image/"), found == "application/pdf":
		return found, true
	case said == "image/heic", said == "image/heif":
		return said, true // DetectContentType does not know these
	case strings.HasPrefix(said, "image/"), said == "application/pdf", said == "application/octet-stream", said == "":
		return "", false
	}
	return said, !strings.HasPrefix(said, "text/") || utf8.Valid(data)
}

// checkEdge returns the problem of an image with too many pixels; "" if it is
// acceptable or its size is unknown.
func (a *Attachments) checkEdge(kind string, data []byte) string {
	r := &a.Rules
	if r.MaxEdge <= 0 && r.Many <= 0 {
		return ""
	}
	edge := 0
	if strings.HasPrefix(kind, "image/") {
		if c, _, err := image.DecodeConfig(bytes.NewReader(data)); err == nil {
			edge = max(c.Width, c.Height)
		}
	}
	wide := r.Many > 0 && edge > r.ManyEdge
	switch {
	case r.MaxEdge > 0 && edge > r.MaxEdge:
		return fmt.Sprintf("it is wider or higher than %d pixels", r.MaxEdge)
	case r.Many > 0 && a.count >= r.Many && (wide || a.wide):
		return fmt.Sprintf("of more than %d files none may be wider or higher than %d pixels", r.Many, r.ManyEdge)
	}
	a.wide = a.wide || wide
	return ""
}

// MaxInlineBytes bounds a text file that is sent as text.
const MaxInlineBytes = 256 << 10

// Inline returns a message in which text files that the API does not accept as
// files are replaced by their text, fenced and with their name. A file that is too large, or
// is not text, is replaced by [FileText], with a notice. m itself is
// not changed. If files cannot be read, m is returned.
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
