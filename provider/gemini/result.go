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

// result appends the result of a call, with the name and the ID of the call
// in the request, and its files: inside the result if the
// model accepts them there, otherwise after it.
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

// inside reports whether a file may be inside the result of a function.
func (s *script) inside(a *wire.Attachment) bool {
	return a != nil && s.traits.levels() && slices.Contains(resultTypes, a.MediaType)
}

// appendResponse appends the object that a result must be: an object unchanged,
// any other value as the member "result", or "error" after a failure. A failure that is an
// object with a member "error" is also unchanged.
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

// maxResponseDepth bounds the nesting of a result: the API accepts at most a
// hundred levels, including its own.
const maxResponseDepth = 50

// readable returns the first byte of a JSON text, '{' or '[', if the API can read it as a
// google.protobuf.Struct: valid UTF-8 and JSON, no duplicate names, no lone
// surrogates, numbers that fit a float64, and no member $ref, which the API
// treats as its own reference. If it returns 0, the result must be sent as text. hasError
// reports whether the object has a member "error".
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

// fileRules returns the limits of files inside the request, which may have 100 MB,
// and are sent again in each later one; and the media types documented for inlineData.
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

// resultTypes are the media types that may be inside the result of a function.
var resultTypes = []string{"image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"}

// file appends a file, or a line of text instead of it.
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

// The API attaches a thought signature to reasoning, to a call, or to a
// text, which may be empty at the end of a reply. Each must be sent back on
// its own part, and only to the model that made it.
//
//   - A signature of reasoning is Thinking.Signature, unchanged.
//   - A signature of a call is ToolCall.Signature with the prefix "MODEL|", the name of the
//     model, because a call has no field for that.
//   - A signature of a text is a separate Thinking.Redacted before the text, with the prefix
//     "N|": it applies to the first N bytes of the text that follows. Pieces of text are
//     joined to one part, so the length must be stored.

// noSignature is sent for a call without a valid signature, because another
// model or toolcrib made it. The API documents it for this purpose.
const noSignature = "skip_thought_signature_validator"

func sealCall(model, signature string) string {
	if signature == "" {
		return ""
	}
	return model + "|" + signature
}

// openCall returns the signature of a call if this model made it, otherwise "".
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

// openText returns the signature of a text and the number of bytes that it applies to.
func openText(sealed string) (n int, signature string, ok bool) {
	length, signature, ok := strings.Cut(sealed, "|")
	n, err := strconv.Atoi(length)
	if !ok || err != nil || n < 0 || !validSignature(signature) {
		return 0, "", false
	}
	return n, signature, true
}

// validSignature reports whether the API can decode a signature: it must be base64,
// standard or URL, padded or not. Any other makes the API reject the
// whole request.
func validSignature(s string) bool {
	plain := strings.TrimRight(s, "=")
	if plain == "" || len(s)-len(plain) > 2 || strings.ContainsAny(plain, "\r\n") { // a decoder ignores line breaks
		return false
	}
	_, err := base64.RawStdEncoding.DecodeString(strings.NewReplacer("-", "+", "_", "/").Replace(plain))
	return err == nil
}
