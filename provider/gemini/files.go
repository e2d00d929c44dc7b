package gemini

import (
	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// fileRules are the limits of files that are in the request itself, which may be 100 MB,
// and in every later one; and the media types that the API documents for inlineData.
func fileRules() wire.FileRules {
	return wire.FileRules{
		Types: []string{
			"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif",
			"application/pdf", "text/plain", "text/html", "text/css", "text/markdown", "text/csv", "text/xml", "text/rtf",
			"audio/wav", "audio/mp3", "audio/mpeg", "audio/aiff", "audio/aac", "audio/ogg", "audio/flac",
			"video/mp4", "video/mpeg", "video/mov", "video/quicktime", "video/avi", "video/x-flv", "video/mpg", "video/webm",
			"video/wmv", "video/3gpp",
		},
		MaxTotal: 48 << 20, MaxFiles: 1000,
	}
}

// resultTypes are those that may stand inside the result of a function.
var resultTypes = []string{"image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"}

// file appends a file, or a line of text in its place.
func (s *script) file(dst []byte, f *toolcrib.File) []byte {
	if a := s.open(f); a != nil {
		return appendInline(s.part(dst, toolcrib.RoleUser), a)
	}
	return s.text(dst, toolcrib.RoleUser, wire.FileText(f))
}

func appendInline(dst []byte, a *wire.Attachment) []byte {
	dst = append(dst, `{"inlineData":{"mimeType":`...)
	dst = append(wire.AppendString(dst, a.MediaType), `,"data":"`...)
	return append(a.AppendBase64(dst), `"}}`...)
}
