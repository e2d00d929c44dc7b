package anthropic

import (
	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

const (
	pdfType  = "application/pdf"
	textType = "text/plain"
)

// fileRules are the limits of the API ("Vision", "PDF support"): an image has at
// most 5 MiB in base64 and 8000 pixels a side, 2000 if there are more than 20; a
// whole request 32 MB.
func fileRules() wire.FileRules {
	return wire.FileRules{
		Types:    []string{"image/png", "image/jpeg", "image/gif", "image/webp", pdfType, textType},
		MaxImage: 5 << 20 / 4 * 3, MaxEdge: 8000, Many: 20, ManyEdge: 2000,
	}
}

// appendFile appends the block of a file, or a text in its place.
func (s *script) appendFile(dst []byte, f *toolcrib.File) []byte {
	a := s.open(f)
	if a == nil {
		return appendText(dst, wire.FileText(f))
	}
	return appendAttachment(dst, a)
}

func appendAttachment(dst []byte, a *wire.Attachment) []byte {
	if a.Image() {
		dst = append(dst, `{"type":"image","source":{"type":"base64","media_type":"`...)
		dst = append(append(dst, a.MediaType...), `","data":"`...)
		return append(a.AppendBase64(dst), `"}}`...)
	}
	dst = append(dst, `{"type":"document","title":`...)
	dst = wire.AppendString(dst, wire.Clip(a.Name, maxTitle))
	if a.MediaType == textType {
		dst = append(dst, `,"source":{"type":"text","media_type":"text/plain","data":`...)
		return append(wire.AppendString(dst, string(a.Data)), `}}`...)
	}
	dst = append(dst, `,"source":{"type":"base64","media_type":"`+pdfType+`","data":"`...)
	return append(a.AppendBase64(dst), `"}}`...)
}

// maxTitle bounds the title of a document; the API takes 500 characters.
const maxTitle = 200

// appendResult encodes a result: its text, and its files as further blocks. A
// result that is an error may only hold text.
func (s *script) appendResult(dst []byte, r *toolcrib.ToolResult) []byte {
	dst = append(dst, `{"type":"tool_result","tool_use_id":`...)
	dst = wire.AppendString(dst, wire.Token(r.CallID, maxCallID))
	content := r.Content
	if wire.Blank(content) {
		content = "" // a blank text is refused
		if r.IsError {
			content = "error"
		}
	}
	var found []*wire.Attachment
	for i := range r.Files {
		f := &r.Files[i]
		if r.IsError {
			s.refuse(f, "this API takes no files with an error")
		} else if a := s.open(f); a != nil {
			found = append(found, a)
			continue
		}
		if content != "" {
			content += "\n"
		}
		content += wire.FileText(f)
	}
	switch {
	case len(found) > 0:
		dst = append(dst, `,"content":[`...)
		if content != "" {
			dst = append(appendText(dst, content), ',')
		}
		for _, a := range found {
			dst = append(appendAttachment(dst, a), ',')
		}
		dst[len(dst)-1] = ']'
	case content != "":
		dst = append(dst, `,"content":`...)
		dst = wire.AppendString(dst, content)
	}
	if r.IsError {
		dst = append(dst, `,"is_error":true`...)
	}
	return append(dst, '}')
}
