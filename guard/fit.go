package guard

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/toolcrib/toolcrib"
)

// FitOptions are the options of [Fit]. The zero value bounds the result
// to 65,536 bytes and wraps output that its tool marked as untrusted.
type FitOptions struct {
	// MaxBytes is the most bytes that the result may have as JSON, without wrapper and
	// canary; at least [MinResultBytes]. If 0, 65,536.
	MaxBytes int
	// Ref is the reference under which the whole result can be read; the note of a cut
	// result names it. If "", it cannot be read (the run has no read_result).
	Ref string
	// Wrap fences the result as untrusted data even if Output.Untrusted is not set.
	Wrap bool
	// Source names the origin of the data; if "", Output.Source is used.
	Source string
	// Canary is a token; if it is not "", <canary>TOKEN</canary> becomes the first line
	// inside the fence.
	Canary string
	// Neutralize replaces instruction-like phrases inside the fence instead of marking
	// them.
	Neutralize bool
	// Masker hides known secrets in everything that is returned. It may be nil.
	Masker *Masker
}

// Fitted is a tool's output, fit to be read.
type Fitted struct {
	Content   string  // the text for the model
	Whole     Content // the result for people and read_result: cleaned and masked, not cut, not wrapped
	JSON      bool    // Content, without the fence, is a JSON value
	Bytes     int     // size of Whole as JSON
	Cut       bool    // Content is a shortened Whole
	Truncated bool    // Cut, or the tool itself left something out (Output.Cut)
	Wrapped   bool
}

// Fit turns the output of a tool into the text that the model reads: it cleans,
// masks, cuts by type, and wraps. A JSON value becomes compact JSON text, a JSON string
// becomes its text, and so do bytes that are invalid JSON. No secret is cut in two and
// no fence is cut off, because each step sees the whole result of the step before.
func Fit(out toolcrib.Output, opt FitOptions) Fitted {
	if opt.MaxBytes <= 0 {
		opt.MaxBytes = toolcrib.DefaultLimits().MaxResultBytes
	}
	var c Content
	if len(out.JSON) > 0 {
		c = asText(Content{JSON: CleanJSON(out.JSON)})
	} else {
		c.Text = Clean(out.Text)
	}
	if c.IsJSON() {
		c = asText(Content{JSON: opt.Masker.maskChecked(c.JSON)})
	} else {
		c.Text = opt.Masker.Mask(c.Text)
	}
	f := Fitted{Whole: c, Bytes: c.SerializedLen(), Wrapped: opt.Wrap || out.Untrusted}
	cut := func(limit int) (Content, bool) {
		if f.Whole.IsJSON() && len(out.Long) > 0 && f.Bytes > limit && jsonStringLen(opt.Ref) <= maxRefBytes {
			if short, ok := cutTexts(f.Whole.JSON, limit, opt.Ref, out.Long, out.LongEnd); ok {
				return Content{JSON: short}, true
			}
		}
		return truncate(f.Whole, limit, opt.Ref)
	}
	c, f.Cut = cut(max(opt.MaxBytes, MinResultBytes))
	f.Content = c.String()
	if f.Wrapped {
		c, f.Content = f.neutralize(c, opt, cut)
		if opt.Canary != "" {
			f.Content = CanaryLine(opt.Canary) + f.Content
		}
		f.Content = WrapUntrusted(cmp.Or(opt.Source, out.Source), f.Content)
	}
	f.JSON = c.IsJSON()
	f.Truncated = f.Cut || out.Cut
	return f
}

// neutralize makes the cut content safe inside a fence. Where that makes it longer than
// allowed, the whole is cut again with less room.
func (f *Fitted) neutralize(c Content, opt FitOptions, cut func(limit int) (Content, bool)) (Content, string) {
	text := c.String()
	safe := fenced(text, opt.Neutralize)
	limit := max(opt.MaxBytes, MinResultBytes)
	grown := len(safe) - len(text)
	// First in proportion to its growth; if the second cut grows more, less by all of the first growth.
	for _, room := range []int{limit * len(text) / max(len(safe), 1), limit - grown} {
		if c.SerializedLen()+len(safe)-len(c.String()) <= limit {
			break
		}
		c, f.Cut = cut(room)
		safe = fenced(c.String(), opt.Neutralize)
	}
	return c, safe
}

// fenced returns text as it is written inside a fence.
func fenced(text string, replace bool) string {
	if replace {
		text, _ = NeutralizePhrases(text)
	} else {
		text = MarkPhrases(text)
	}
	return Neutralize(text)
}

const canaryTag, canaryEnd = "<canary>", "</canary>\n"

// CanaryLine returns the first line inside a fence: a token by which a leak of the fenced data is recognized.
func CanaryLine(token string) string { return canaryTag + token + canaryEnd }

// WithoutCanary returns the result of [Unfence] without its canary line.
func WithoutCanary(inside string) string {
	if token, rest, ok := strings.Cut(inside, canaryEnd); ok && strings.HasPrefix(token, canaryTag) {
		return rest
	}
	return inside
}

// MinResultBytes is the smallest bound on a result (max_result_bytes); smaller ones are
// raised to it.
const MinResultBytes = 256

// maxRefBytes bounds a reference in a note, in bytes as JSON, so that every note
// fits into [MinResultBytes]; a longer reference is left out.
const maxRefBytes = 96

// Content is a text or a JSON value.
type Content struct {
	Text string
	JSON json.RawMessage // if not empty, Text is ignored
}

// IsJSON reports whether the content is a JSON value.
func (c Content) IsJSON() bool { return len(c.JSON) > 0 }

// String returns the text, or the value as JSON text.
func (c Content) String() string {
	if c.IsJSON() {
		return string(c.JSON)
	}
	return c.Text
}

// SerializedLen returns the length in bytes of the content as JSON: of a text as a JSON
// string, quotes included, without HTML escaping; of a value as written.
func (c Content) SerializedLen() int {
	if c.IsJSON() {
		return len(c.JSON)
	}
	return jsonStringLen(c.Text)
}

// Truncate cuts content that is longer than limit bytes as JSON, by its type, and reports whether it did:
//
//	text            PREFIX... [truncated, original size: N bytes]
//	array           leading elements and {"_truncated":true,"original_count":N}
//	object, other   {"_truncated_json":"PREFIX...","original_bytes":N}
//
// N is in bytes of [Content.SerializedLen]; for arrays, the number of elements. With a ref,
// the notes carry it: "…, ref: R]", "ref":"R". A JSON string is treated as text and returned
// as text. The result as JSON is valid, has at most limit bytes, and is cut between
// characters and between elements. A limit below [MinResultBytes] is raised to it; a ref of
// more than 96 bytes as JSON is left out.
//
// The content must be clean ([Clean], [CleanJSON]); invalid bytes become U+FFFD where the
// content is cut.
func Truncate(c Content, limit int, ref string) (Content, bool) {
	return truncate(c, max(limit, MinResultBytes), ref)
}

// truncate is Truncate for a limit that only has to leave room for the note.
func truncate(c Content, limit int, ref string) (Content, bool) {
	if jsonStringLen(ref) > maxRefBytes {
		ref = ""
	}
	if c = asText(c); !c.IsJSON() {
		return truncateText(c.Text, limit, ref)
	}
	if len(c.JSON) <= limit {
		return c, false
	}
	if c.JSON[0] == '[' {
		if out, ok := truncateArray(c.JSON, limit, ref); ok {
			return Content{JSON: out}, true
		}
	}
	return Content{JSON: truncateOther(c.JSON, limit, ref)}, true
}

// asText turns a JSON string into its text.
func asText(c Content) Content {
	if n := len(c.JSON); n < 2 || c.JSON[0] != '"' || stringEnd(c.JSON, 0) != n {
		return c
	}
	return Content{Text: string(appendDecoded(nil, c.JSON))}
}

func truncateText(text string, limit int, ref string) (Content, bool) {
	size := jsonStringLen(text)
	if size <= limit {
		return Content{Text: text}, false
	}
	note := "... [truncated, original size: " + strconv.Itoa(size) + " bytes"
	if ref != "" {
		note += ", ref: " + ref
	}
	note += "]"
	return Content{Text: prefixFitting(text, limit-jsonStringLen(note)) + note}, true
}

// truncateArray keeps the leading elements that fit together with the final note; ok is
// false if raw is not an array.
func truncateArray(raw []byte, limit int, ref string) (out []byte, ok bool) {
	var ends []int // end positions of the elements that could fit
	count := 0
	for pos := 1; pos < len(raw)-1; count++ {
		end := elementEnd(raw, pos)
		if end >= len(raw) {
			return nil, false
		}
		if end < limit {
			ends = append(ends, end)
		}
		pos = end + 1
	}
	sentinel := appendRef(strconv.AppendInt([]byte(`{"_truncated":true,"original_count":`), int64(count), 10), ref)
	for len(ends) > 0 && ends[len(ends)-1]+len(",")+len(sentinel)+len("]") > limit {
		ends = ends[:len(ends)-1]
	}
	if len(ends) == 0 {
		return slices.Concat([]byte("["), sentinel, []byte("]")), true
	}
	return slices.Concat(raw[:ends[len(ends)-1]], []byte(","), sentinel, []byte("]")), true
}

// elementEnd returns the position of the comma or bracket after the array element
// that begins at pos, or len(raw) if none does.
func elementEnd(raw []byte, pos int) int {
	depth := 0
	for pos < len(raw) {
		switch c := raw[pos]; c {
		case '"':
			pos = stringEnd(raw, pos)
			continue
		case '{', '[':
			depth++
		case ',', '}', ']':
			if depth == 0 {
				return pos
			}
			if c != ',' {
				depth--
			}
		}
		pos++
	}
	return len(raw)
}

func truncateOther(raw []byte, limit int, ref string) []byte {
	tail := appendRef(strconv.AppendInt([]byte(`...","original_bytes":`), int64(len(raw)), 10), ref)
	const head = `{"_truncated_json":"`
	room := limit - len(head) - len(tail)
	prefix := prefixFitting(string(raw[:min(len(raw), max(room, 0)+3)]), room)
	out := append(make([]byte, 0, max(limit, 0)), head...) // a limit reduced by marks may be negative
	out = appendInside(out, prefix)
	return append(out, tail...)
}

// appendRef ends the object of a note, with ref unless it is "".
func appendRef(note []byte, ref string) []byte {
	if ref != "" {
		note = append(note, `,"ref":`...)
		note = appendQuoted(note, ref)
	}
	return append(note, '}')
}

// Refusal is the text that a model reads instead of the result of a call that the gate
// refused. Whether a result is a refusal is known from the runtime's own record, never
// from this text.
type Refusal struct {
	Tool         string
	Reason       toolcrib.Reason
	Message      string
	OperatorHint string          // left out if empty
	Rule         string          // name of the rule, with rule_denied; left out if empty
	SchemaError  json.RawMessage // with invalid_arguments; left out if empty
	Ref          string          // reference of the details in the log; left out if empty
}

// Bounds of the texts in a refusal, in bytes as JSON. Longer texts are cut as
// [Truncate] cuts.
const (
	maxRefusalText = 4096
	maxRefusalName = 512
)

// JSON returns the refusal as one compact JSON object, keys in this order:
//
//	{"refused":true,"tool":…,"reason":…,"message":…,"operator_hint":…,"rule":…,"ref":…,"schema_error":…}
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
		{`,"ref":`, r.Ref, maxRefusalName},
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

// ErrorJSON returns {"error":"…"}, the text that a model reads if a tool returned an error
// that is meant for it. The message is cleaned, and cut so that the whole has at most
// limit bytes; a limit of 0 is 65,536, one below [MinResultBytes] is raised to it.
func ErrorJSON(message string, limit int) string {
	const head = `{"error":`
	if limit <= 0 {
		limit = toolcrib.DefaultLimits().MaxResultBytes
	}
	limit = max(limit, MinResultBytes) - len(head) - 1
	c, _ := truncateText(Clean(message), limit, "")
	return string(append(appendQuoted([]byte(head), c.Text), '}'))
}

// FaultJSON returns {"error":"tool \"X\" failed","ref":"…"}, the text that a model reads if
// a tool failed otherwise. The log and the journal have the details under ref.
func FaultJSON(tool, ref string) string {
	b := appendBounded([]byte(`{"error":`), `tool "`+tool+`" failed`, maxRefusalName)
	b = appendBounded(append(b, `,"ref":`...), ref, maxRefusalName)
	return string(append(b, '}'))
}
