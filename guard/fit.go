package guard

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/toolcrib/toolcrib"
)

// FitOptions say how a tool's output is made fit. The zero value bounds the result
// to 65,536 bytes and wraps what its tool marked as untrusted.
type FitOptions struct {
	// MaxBytes bounds the result as JSON, without wrapper and canary; 0 = 65,536,
	// at least [MinResultBytes].
	MaxBytes int
	// Ref is where the whole can be read; it is in the note of a cut result.
	// "" = it cannot (read_result is not in the offer).
	Ref string
	// Wrap fences the result as untrusted data, as Output.Untrusted does too.
	Wrap bool
	// Source names where the data comes from; "" = Output.Source.
	Source string
	// Canary is a token; <canary>TOKEN</canary> becomes the first line inside the
	// fence. "" = none.
	Canary string
	// Neutralize replaces phrases that read like instructions inside the fence, instead of
	// marking them (contract §10).
	Neutralize bool
	// Masker hides known secrets before anything is kept; nil = none are known.
	Masker *Masker
}

// Fitted is a tool's output, fit to be read.
type Fitted struct {
	Content   string  // what the model reads
	Whole     Content // cleaned and masked, not cut, not wrapped: what is kept for people and read_result
	JSON      bool    // Content, without the fence, is a JSON value
	Bytes     int     // the size of Whole as JSON
	Cut       bool    // Content holds less than Whole
	Truncated bool    // Cut, or the tool itself left something out
	Wrapped   bool
}

// Fit goes from what a tool returned to what the model reads (contract §7): clean,
// mask, cut by type, wrap. A JSON value becomes compact JSON text, a JSON string
// the text that it means; bytes that claim to be JSON and are not become text. No
// secret is cut in two and no fence is cut off, for each step sees the whole of
// the one before.
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

// neutralize makes what was cut safe inside a fence. Where that makes it longer
// than allowed, the whole is cut again with so much less room.
func (f *Fitted) neutralize(c Content, opt FitOptions, cut func(limit int) (Content, bool)) (Content, string) {
	text := c.String()
	safe := harmless(text, opt.Neutralize)
	limit := max(opt.MaxBytes, MinResultBytes)
	grown := len(safe) - len(text)
	// With as much less room as it grew for its size; where it grows more there, with all of that less.
	for _, room := range []int{limit * len(text) / max(len(safe), 1), limit - grown} {
		if c.SerializedLen()+len(safe)-len(c.String()) <= limit {
			break
		}
		c, f.Cut = cut(room)
		safe = harmless(c.String(), opt.Neutralize)
	}
	return c, safe
}

// harmless is text as it is inside a fence.
func harmless(text string, replace bool) string {
	if replace {
		text, _ = NeutralizePhrases(text)
	} else {
		text = MarkPhrases(text)
	}
	return Neutralize(text)
}

const canaryTag, canaryEnd = "<canary>", "</canary>\n"

// CanaryLine is the first line inside the fence of untrusted data: a token that a leak shows by.
func CanaryLine(token string) string { return canaryTag + token + canaryEnd }

// WithoutCanary is what [Unfence] returns without the line of a canary.
func WithoutCanary(inside string) string {
	if token, rest, ok := strings.Cut(inside, canaryEnd); ok && strings.HasPrefix(token, canaryTag) {
		return rest
	}
	return inside
}

// MinResultBytes is the least that a result can be cut to; smaller bounds count as
// this one (contract §2, max_result_bytes).
const MinResultBytes = 256

// maxRefBytes bounds a reference in a note, in bytes as JSON, so that every note
// fits well into [MinResultBytes]; a longer one is left out.
const maxRefBytes = 96

// Content is a text or a JSON value.
type Content struct {
	Text string
	JSON json.RawMessage // wins over Text if not empty
}

// IsJSON reports whether the content is a JSON value.
func (c Content) IsJSON() bool { return len(c.JSON) > 0 }

// String returns what a model reads: the text, or the value as JSON text.
func (c Content) String() string {
	if c.IsJSON() {
		return string(c.JSON)
	}
	return c.Text
}

// SerializedLen is the length in bytes of the content as JSON: of a text as a JSON
// string, quotes included, without HTML escaping; of a value as it is.
func (c Content) SerializedLen() int {
	if c.IsJSON() {
		return len(c.JSON)
	}
	return jsonStringLen(c.Text)
}

// Truncate cuts content that is longer than limit bytes as JSON, by its type
// (contract §7, C10), and reports whether it did:
//
//	text            PREFIX... [truncated, original size: N bytes]
//	array           leading elements and {"_truncated":true,"original_count":N}
//	object, other   {"_truncated_json":"PREFIX...","original_bytes":N}
//
// N counts bytes of [Content.SerializedLen], for arrays elements. With a ref the
// notes carry it: "…, ref: R]", "ref":"R". A JSON string counts as text and comes
// back as text. The result as JSON is valid, has at most limit bytes, and is cut
// between characters and between elements. A limit below [MinResultBytes] counts
// as that; a ref of more than 96 bytes as JSON is left out.
//
// The content must be clean ([Clean], [CleanJSON]); of what is not, invalid bytes
// become U+FFFD where they are cut.
func Truncate(c Content, limit int, ref string) (Content, bool) {
	return truncate(c, max(limit, MinResultBytes), ref)
}

// truncate is Truncate for a limit that need only leave room for the note.
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

// asText turns a JSON string into the text that it means.
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

// truncateArray keeps the leading elements that fit beside the sentinel; ok is
// false if raw is no array.
func truncateArray(raw []byte, limit int, ref string) (out []byte, ok bool) {
	var ends []int // of the elements that could fit
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
	out := append(make([]byte, 0, max(limit, 0)), head...) // a limit that marks have used up may be negative
	out = appendInside(out, prefix)
	return append(out, tail...)
}

// appendRef ends a note's object, with the reference if there is one.
func appendRef(note []byte, ref string) []byte {
	if ref != "" {
		note = append(note, `,"ref":`...)
		note = appendQuoted(note, ref)
	}
	return append(note, '}')
}

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
	Ref          string          // under which the log has more; left out if empty
}

// Bounds of the texts in a refusal, in bytes as JSON. What is longer is cut as
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
// when a tool broke (N21). The detail is in the log and the journal under ref.
func FaultJSON(tool, ref string) string {
	b := appendBounded([]byte(`{"error":`), `tool "`+tool+`" failed`, maxRefusalName)
	b = appendBounded(append(b, `,"ref":`...), ref, maxRefusalName)
	return string(append(b, '}'))
}
