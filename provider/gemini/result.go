package gemini

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// result appends the result of a call, under the name and the ID that the call
// has on the wire, and the files that came with it: inside the result where the
// model takes them there, else beside it.
func (s *script) result(dst []byte, r *toolcrib.ToolResult) []byte {
	sent := sentCall{name: sentName(r.Name)}
	if i := slices.IndexFunc(s.calls, func(c sentCall) bool { return c.id == r.CallID }); i >= 0 {
		sent = s.calls[i]
	}
	dst = append(s.part(dst, toolcrib.RoleUser), `{"functionResponse":{`...)
	if sent.wireID != "" {
		dst = append(dst, `"id":`...)
		dst = append(wire.AppendString(dst, sent.wireID), ',')
	}
	dst = append(dst, `"name":`...)
	dst = wire.AppendString(dst, sent.name)
	dst = append(dst, `,"response":`...)
	dst = appendResponse(dst, r)
	found, open, end := make([]*wire.Attachment, len(r.Files)), `,"parts":[`, ""
	for i := range r.Files {
		if found[i] = s.files.Open(&r.Files[i]); s.inside(found[i]) {
			dst = appendInline(append(dst, open...), found[i])
			open, end = ",", "]"
		}
	}
	dst = append(append(dst, end...), `}}`...)
	for i, a := range found {
		switch {
		case a == nil:
			dst = s.text(dst, toolcrib.RoleUser, wire.FileText(&r.Files[i]))
		case !s.inside(a):
			dst = appendInline(s.part(dst, toolcrib.RoleUser), a)
		}
	}
	return dst
}

// inside reports whether a file may stand inside the result of a function.
func (s *script) inside(a *wire.Attachment) bool {
	return a != nil && s.traits.levels() && slices.Contains(resultTypes, a.MediaType)
}

// appendResponse appends the object that a result must be: an object as it is,
// anything else under "result"; a failure under "error", unless it is an object
// that has that member.
func appendResponse(dst []byte, r *toolcrib.ToolResult) []byte {
	content := strings.TrimSpace(r.Content)
	kind, hasError := byte(0), false
	if content != "" && (content[0] == '{' || content[0] == '[') {
		kind, hasError = readable([]byte(content))
	}
	name := "result"
	switch {
	case kind == '{' && (!r.IsError || hasError):
		return append(dst, content...)
	case r.IsError:
		name = "error"
	}
	dst = append(wire.AppendString(append(dst, '{'), name), ':')
	if kind != 0 {
		return append(append(dst, content...), '}')
	}
	return append(wire.AppendString(dst, r.Content), '}')
}

// maxResponseDepth bounds the nesting of a result: the API reads at most a
// hundred levels, its own included.
const maxResponseDepth = 50

// readable reports how a JSON text begins, '{' or '[', if the API can read it as a
// google.protobuf.Struct: valid UTF-8 and JSON, no name twice, no half of a
// surrogate pair, numbers that a float64 holds, and no member $ref, which the API
// takes for a reference of its own. 0 = it must be sent as a text. hasError reports
// whether the object has a member "error".
func readable(content []byte) (kind byte, hasError bool) {
	d := jsontext.NewDecoder(bytes.NewBuffer(content))
	for {
		token, err := d.ReadToken()
		depth := d.StackDepth()
		if err != nil || depth > maxResponseDepth {
			return 0, false
		}
		within, n := d.StackIndex(depth)
		switch {
		case depth == 0: // the end
			_, err := d.ReadToken()
			if !errors.Is(err, io.EOF) {
				return 0, false
			}
			return content[0], hasError
		case within == '{' && n%2 == 1: // a name
			if token.String() == "$ref" {
				return 0, false
			}
			hasError = hasError || depth == 1 && token.String() == "error"
		case token.Kind() == '0':
			if _, err := strconv.ParseFloat(token.String(), 64); err != nil {
				return 0, false
			}
		}
	}
}

// fileRules are the limits of files that are in the request itself, which may be 100 MB,
// and in every later one; and the media types that the API documents for inlineData.
func fileRules() wire.FileRules {
	return wire.FileRules{
		Types: []string{
			"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif", "application/pdf", "text/plain", "text/html",
			"text/css", "text/markdown", "text/csv", "text/xml", "text/rtf", "audio/wav", "audio/mp3", "audio/mpeg",
			"audio/aiff", "audio/aac", "audio/ogg", "audio/flac", "video/mp4", "video/mpeg", "video/mov", "video/quicktime",
			"video/avi", "video/x-flv", "video/mpg", "video/webm", "video/wmv", "video/3gpp",
		},
		MaxTotal: 48 << 20, MaxFiles: 1000,
	}
}

// resultTypes are those that may stand inside the result of a function.
var resultTypes = []string{"image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"}

// file appends a file, or a line of text in its place.
func (s *script) file(dst []byte, f *toolcrib.File) []byte {
	if a := s.files.Open(f); a != nil {
		return appendInline(s.part(dst, toolcrib.RoleUser), a)
	}
	return s.text(dst, toolcrib.RoleUser, wire.FileText(f))
}

func appendInline(dst []byte, a *wire.Attachment) []byte {
	dst = append(dst, `{"inlineData":{"mimeType":`...)
	dst = append(wire.AppendString(dst, a.MediaType), `,"data":"`...)
	return append(a.AppendBase64(dst), `"}}`...)
}

// The API puts a thought signature on a part: on reasoning, on a call, or on a
// text, also an empty one at the end of a reply. All of them must come back on
// the part that they were on, and only the model that made one can read it.
//
//   - On reasoning it is Thinking.Signature, as it is.
//   - On a call it is ToolCall.Signature with the model's name before it, "MODEL|…",
//     since a call has no other place for that.
//   - On a text it is a Thinking.Redacted of its own before that text, "N|…": it
//     belongs to the first N bytes of the text that follows. Pieces of text are
//     joined to one part, so the length must be kept.

// noSignature replaces a signature that nobody has: of a call that another
// model made, or toolcrib itself. The API documents it for just that.
const noSignature = "skip_thought_signature_validator"

func sealCall(model, signature string) string {
	if signature == "" {
		return ""
	}
	return model + "|" + signature
}

// openCall returns the signature of a call if this model made it.
func openCall(model, sealed string) string {
	signature, ok := strings.CutPrefix(sealed, model+"|")
	if !ok || !validSignature(signature) {
		return ""
	}
	return signature
}

func sealText(n int, signature string) string {
	return strconv.Itoa(n) + "|" + signature
}

// openText returns the signature of a text and how much of the text it is for.
func openText(sealed string) (n int, signature string, ok bool) {
	length, signature, ok := strings.Cut(sealed, "|")
	n, err := strconv.Atoi(length)
	if !ok || err != nil || n < 0 || !validSignature(signature) {
		return 0, "", false
	}
	return n, signature, true
}

// validSignature reports whether the API can read a signature at all: it is base64,
// plain or for URLs, with or without its padding. Any other makes it refuse the
// whole request.
func validSignature(s string) bool {
	plain := strings.TrimRight(s, "=")
	if plain == "" || len(s)-len(plain) > 2 || strings.ContainsAny(plain, "\r\n") { // which a decoder passes over
		return false
	}
	_, err := base64.RawStdEncoding.DecodeString(strings.NewReplacer("-", "+", "_", "/").Replace(plain))
	return err == nil
}
