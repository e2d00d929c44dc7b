package gemini

import (
	"context"
	"encoding/base64"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// maxInlineBytes bounds the files of one conversation: they stand in the request
// itself, which may be 100 MB, and in every later one.
const maxInlineBytes = 48 << 20

// inlineTypes are the media types that the API documents for inlineData.
var inlineTypes = []string{
	"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif",
	"application/pdf", "text/plain", "text/html", "text/css", "text/markdown", "text/csv", "text/xml", "text/rtf",
	"audio/wav", "audio/mp3", "audio/mpeg", "audio/aiff", "audio/aac", "audio/ogg", "audio/flac",
	"video/mp4", "video/mpeg", "video/mov", "video/quicktime", "video/avi", "video/x-flv", "video/mpg", "video/webm", "video/wmv", "video/3gpp",
}

// resultTypes are those that may stand inside the result of a function.
var resultTypes = []string{"image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"}

// opener opens the files of the request at hand.
type opener struct {
	ctx  context.Context
	open func(ctx context.Context, ref string) ([]byte, error)
}

// mediaType is the type of a file without parameters.
func mediaType(f *toolcrib.File) string {
	t, _, _ := strings.Cut(strings.ToLower(f.MediaType), ";")
	t = strings.TrimSpace(t)
	if t == "image/jpg" {
		return "image/jpeg"
	}
	return t
}

// open reads a file that the API takes.
func (s *script) open(f *toolcrib.File) ([]byte, bool) {
	if s.files.open == nil || f.Bytes > toolcrib.MaxFileBytes || s.inline+f.Bytes > maxInlineBytes || !slices.Contains(inlineTypes, mediaType(f)) {
		return nil, false
	}
	data, err := s.files.open(s.files.ctx, f.Ref)
	n := int64(len(data))
	if err != nil || n == 0 || n > toolcrib.MaxFileBytes || s.inline+n > maxInlineBytes {
		return nil, false
	}
	s.inline += n
	return data, true
}

// file appends a file, or a line of text in its place.
func (s *script) file(dst []byte, f *toolcrib.File) []byte {
	data, ok := s.open(f)
	if ok {
		return appendInline(s.part(dst, toolcrib.RoleUser), mediaType(f), data)
	}
	s.notices = append(s.notices, wire.Notice(toolcrib.NoticeFileNotSent, "%s is not sent: the API does not take it, it is too large, or it is not there", wire.Line(wire.FileText(f))))
	return s.text(dst, toolcrib.RoleUser, wire.FileText(f))
}

func appendInline(dst []byte, mediaType string, data []byte) []byte {
	dst = append(dst, `{"inlineData":{"mimeType":`...)
	dst = append(wire.AppendString(dst, mediaType), `,"data":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, data)
	return append(dst, `"}}`...)
}
