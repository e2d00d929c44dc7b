package agent

import (
	"slices"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
)

// cleanMessage returns a message of earlier runs as it is read now: cleaned, and without
// a secret that became known since. m itself is not changed.
func cleanMessage(mask *guard.Masker, m toolcrib.Message) toolcrib.Message {
	m.Parts = slices.Clone(m.Parts)
	for i := range m.Parts {
		p := &m.Parts[i]
		switch {
		case p.Thinking != nil:
			thinking := *p.Thinking
			cleanThinking(mask, &thinking)
			p.Thinking = &thinking
		case p.ToolCall != nil:
			call := *p.ToolCall
			if call.Arguments = mask.MaskJSON(call.Arguments); len(call.Arguments) == 0 || call.Arguments[0] != '{' {
				call.Arguments = canonicalEmpty
			}
			call.Broken, call.Problem = mask.Clean(call.Broken), mask.Clean(call.Problem)
			p.ToolCall = &call
		case p.ToolResult != nil:
			result := *p.ToolResult
			result.Content = mask.Clean(result.Content)
			p.ToolResult = &result
		default:
			p.Text = mask.Clean(p.Text)
		}
	}
	return m
}

// cleanThinking cleans what a model thought. A signature is over the text as it came;
// another text would make it worthless, so then the block is only kept to be read. Some
// APIs sign with data that can be read.
func cleanThinking(mask *guard.Masker, t *toolcrib.Thinking) {
	text := t.Text
	if t.Text = mask.Clean(text); t.Text != text || mask.Mask(t.Signature) != t.Signature {
		t.Signature = ""
	}
	if mask.Mask(t.Redacted) != t.Redacted {
		t.Redacted = ""
	}
}
