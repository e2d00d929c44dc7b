// Package deltas plays a whole message as a stream, for the models that make
// their replies themselves: scripted ones and the offline model.
package deltas

import (
	"iter"
	"unicode"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib"
)

// maxPieces bounds the pieces that one text is cut into, so that a long text does
// not become a flood of deltas.
const maxPieces = 512

// Of yields m the way a provider streams it: texts and thinking word by word, the
// arguments of each call in two pieces at least, if they have two bytes. It does
// not yield the end of the reply. m is not changed.
func Of(m toolcrib.Message) iter.Seq[toolcrib.Delta] {
	return func(yield func(toolcrib.Delta) bool) {
		calls := 0
		for i := range m.Parts {
			p := &m.Parts[i]
			switch {
			case p.Thinking != nil:
				if !thinking(p.Thinking, yield) {
					return
				}
			case p.ToolCall != nil:
				if !call(calls, p.ToolCall, yield) {
					return
				}
				calls++
			default:
				for piece := range words(p.Text) {
					if !yield(toolcrib.Delta{Text: piece}) {
						return
					}
				}
			}
		}
	}
}

// Reason is why a model stops that replies with m: for its calls, or because the
// answer is whole.
func Reason(m toolcrib.Message) toolcrib.FinishReason {
	if len(m.ToolCalls()) > 0 {
		return toolcrib.FinishToolCalls
	}
	return toolcrib.FinishStop
}

func thinking(t *toolcrib.Thinking, yield func(toolcrib.Delta) bool) bool {
	if t.Redacted != "" {
		return yield(toolcrib.Delta{Redacted: t.Redacted})
	}
	for piece := range words(t.Text) {
		if !yield(toolcrib.Delta{Thinking: piece}) {
			return false
		}
	}
	return t.Signature == "" || yield(toolcrib.Delta{Signature: t.Signature})
}

func call(index int, c *toolcrib.ToolCall, yield func(toolcrib.Delta) bool) bool {
	d := toolcrib.ToolCallDelta{Index: index, ID: c.ID, Name: c.Name, Signature: c.Signature}
	first := true
	for piece := range halves(string(c.Arguments)) {
		d.Arguments = piece
		if !yield(toolcrib.Delta{ToolCall: &d}) {
			return false
		}
		d, first = toolcrib.ToolCallDelta{Index: index}, false
	}
	if first { // no arguments at all
		return yield(toolcrib.Delta{ToolCall: &d})
	}
	return true
}

// words cuts s after white space; joined, the pieces are s.
func words(s string) iter.Seq[string] {
	return cut(s, len(s)/maxPieces, func(before, after rune) bool {
		return unicode.IsSpace(before) && !unicode.IsSpace(after)
	})
}

// halves cuts s into pieces of about 24 bytes, two at least.
func halves(s string) iter.Seq[string] {
	return cut(s, max(min(24, len(s)/2), len(s)/maxPieces), func(rune, rune) bool { return true })
}

// cut cuts s between two characters that at agrees to, once a piece has least
// bytes. Invalid UTF-8 goes through byte by byte.
func cut(s string, least int, at func(before, after rune) bool) iter.Seq[string] {
	return func(yield func(string) bool) {
		start := 0
		var before rune
		for i := 0; i < len(s); {
			r, size := utf8.DecodeRuneInString(s[i:])
			if i > start && i-start >= least && at(before, r) {
				if !yield(s[start:i]) {
					return
				}
				start = i
			}
			before, i = r, i+size
		}
		if start < len(s) {
			yield(s[start:])
		}
	}
}
