package guard

import (
	"encoding/json"

	"github.com/toolcrib/toolcrib"
)

// Refusal is what a model reads instead of the result of a call that the gate
// refused (contract §6). Whether a result is a refusal is known from the runtime's
// own record, never from this text.
type Refusal struct {
	Tool         string
	Reason       toolcrib.Reason
	Message      string
	OperatorHint string          // left out if empty
	Rule         string          // the rule's name, with rule_denied; left out if empty
	SchemaError  json.RawMessage // with invalid_arguments; left out if empty
}

// Bounds of the texts in a refusal, in bytes as JSON. What is longer is cut as
// [Truncate] cuts.
const (
	maxRefusalText = 4096
	maxRefusalName = 512
)

// JSON returns the refusal as one compact JSON object, keys in this order:
//
//	{"refused":true,"tool":…,"reason":…,"message":…,"operator_hint":…,"rule":…,"schema_error":…}
//
// Texts are cleaned and bounded (message, hint and schema error to 4 KiB each),
// and nothing is escaped for HTML.
func (r Refusal) JSON() string {
	b := []byte(`{"refused":true`)
	for i, f := range [...]struct {
		key, text string
		limit     int
	}{
		{`,"tool":`, r.Tool, maxRefusalName},
		{`,"reason":`, string(r.Reason), maxRefusalName},
		{`,"message":`, r.Message, maxRefusalText},
		{`,"operator_hint":`, r.OperatorHint, maxRefusalText},
		{`,"rule":`, r.Rule, maxRefusalName},
	} {
		if i < 3 || f.text != "" {
			b = appendBounded(append(b, f.key...), f.text, f.limit)
		}
	}
	if len(r.SchemaError) > 0 {
		b = append(b, `,"schema_error":`...)
		c, _ := Truncate(Content{JSON: CleanJSON(r.SchemaError)}, maxRefusalText, "")
		if c.IsJSON() {
			b = append(b, c.JSON...)
		} else {
			b = appendQuoted(b, c.Text)
		}
	}
	return string(append(b, '}'))
}

func appendBounded(dst []byte, text string, limit int) []byte {
	c, _ := Truncate(Content{Text: Clean(text)}, limit, "")
	return appendQuoted(dst, c.Text)
}

// ErrorJSON returns {"error":"…"}: what a model reads when a tool failed with an
// error made for it (C3, contract §6). The message is cleaned, and cut so that the
// whole has at most limit bytes; a limit of 0 is 65,536, one below
// [MinResultBytes] counts as that.
func ErrorJSON(message string, limit int) string {
	const head = `{"error":`
	if limit <= 0 {
		limit = toolcrib.DefaultLimits().MaxResultBytes
	}
	limit = max(limit, MinResultBytes) - len(head) - 1
	c, _ := truncateText(Clean(message), limit, "")
	return string(append(appendQuoted([]byte(head), c.Text), '}'))
}

// FaultJSON returns {"error":"tool \"X\" failed","ref":"…"}: what a model reads
// when a tool broke (N21). The detail stands in the log and the journal under ref.
func FaultJSON(tool, ref string) string {
	b := appendBounded([]byte(`{"error":`), `tool "`+tool+`" failed`, maxRefusalName)
	b = appendBounded(append(b, `,"ref":`...), ref, maxRefusalName)
	return string(append(b, '}'))
}
