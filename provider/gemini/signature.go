package gemini

import (
	"strconv"
	"strings"

	"github.com/toolcrib/toolcrib"
)

// The API puts a thought signature on a part: on reasoning, on a call, or on a
// text, also an empty one at the end of a reply. All of them must come back on
// the very part that they stood on, and only the model that made one can read it.
//
//   - On reasoning it is Thinking.Signature, as it is.
//   - On a call it is ToolCall.Signature with the model's name before it, "MODEL|…",
//     since a call has no other place for that.
//   - On a text it is a Thinking.Redacted of its own before that text, "N|…": it
//     belongs to the first N bytes of the text that follows. Pieces of text are
//     joined to one part, so the length must be kept.

// noSignature stands for a signature that nobody has: of a call that another
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

// sameModel reports whether a block of reasoning is the model's own.
func sameModel(t *toolcrib.Thinking, model string) bool {
	return t.Model == "" || t.Model == model || strings.HasSuffix(t.Model, "/"+model)
}

// validSignature reports whether the API can read a signature at all: it is base64,
// plain or for URLs, with or without its padding. Any other makes it refuse the
// whole request.
func validSignature(s string) bool {
	plain := strings.TrimRight(s, "=")
	if plain == "" || len(plain)%4 == 1 || len(s)-len(plain) > 2 {
		return false
	}
	for i := range len(plain) {
		b := plain[i]
		switch {
		case b >= 'a' && b <= 'z', b >= 'A' && b <= 'Z', b >= '0' && b <= '9', b == '+', b == '/', b == '-', b == '_':
		default:
			return false
		}
	}
	return true
}
