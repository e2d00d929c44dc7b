package guard

import (
	"github.com/toolcrib/toolcrib"
)

// FitOptions say how a tool's output is made fit. The zero value bounds the result
// to 65,536 bytes and wraps what its tool marked as untrusted.
type FitOptions struct {
	// MaxBytes bounds the result as JSON, without wrapper and canary; 0 = 65,536,
	// at least [MinResultBytes].
	MaxBytes int
	// Ref is where the whole can be read; it stands in the note of a cut result.
	// "" = it cannot (read_result is not in the offer).
	Ref string
	// Wrap fences the result as untrusted data, as Output.Untrusted does too.
	Wrap bool
	// NoWrap leaves the fence out whatever the marks say: for the text protocol,
	// whose own wrapper stands instead.
	NoWrap bool
	// Source names where the data comes from; "" = Output.Source.
	Source string
	// Canary is a token; <canary>TOKEN</canary> becomes the first line inside the
	// fence. "" = none.
	Canary string
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
	f := Fitted{Whole: c, Bytes: c.SerializedLen(), Wrapped: (opt.Wrap || out.Untrusted) && !opt.NoWrap}
	c, f.Cut = Truncate(c, opt.MaxBytes, opt.Ref)
	f.Content = c.String()
	if f.Wrapped {
		c, f.Content = f.neutralize(c, opt)
		f.Content = fence(f.Content, out, opt)
	}
	f.JSON = c.IsJSON()
	f.Truncated = f.Cut || out.Cut
	return f
}

// neutralize makes what was cut safe inside a fence. Where that makes it longer
// than allowed, the whole is cut anew with so much less room.
func (f *Fitted) neutralize(c Content, opt FitOptions) (Content, string) {
	text := c.String()
	safe := harmless(text)
	limit := max(opt.MaxBytes, MinResultBytes)
	if grown := len(safe) - len(text); c.SerializedLen()+grown > limit {
		c, f.Cut = truncate(f.Whole, limit-grown, opt.Ref)
		safe = harmless(c.String())
	}
	return c, safe
}

// harmless is text as it stands inside a fence.
func harmless(text string) string { return Neutralize(MarkPhrases(text)) }

func fence(body string, out toolcrib.Output, opt FitOptions) string {
	source := opt.Source
	if source == "" {
		source = out.Source
	}
	if opt.Canary != "" {
		body = "<canary>" + opt.Canary + "</canary>\n" + body
	}
	return WrapUntrusted(source, body)
}
