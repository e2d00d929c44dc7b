// Package deltas plays a complete message as a stream, for the models that make their replies
// themselves: scripted ones and the offline model.
package deltas

import (
	"iter"
	"slices"
	"unicode"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib"
)

// maxPieces bounds the pieces of one text, so that a long text does not become a flood of deltas.
const maxPieces = 512

// Of yields m in pieces like a provider: texts and thinking word by word, and the arguments of each call in at
// least two pieces, if they have two bytes. It does not yield the end of the reply, and does not modify m.
func Of(m toolcrib.Message) iter.Seq[toolcrib.Delta] {
	var all []toolcrib.Delta
	calls := 0
	for _, p := range m.Parts {
		switch {
		case p.Thinking != nil && p.Thinking.Redacted != "":
			all = append(all, toolcrib.Delta{Redacted: p.Thinking.Redacted})
		case p.Thinking != nil:
			for piece := range words(p.Thinking.Text) {
				all = append(all, toolcrib.Delta{Thinking: piece})
			}
			if p.Thinking.Signature != "" {
				all = append(all, toolcrib.Delta{Signature: p.Thinking.Signature})
			}
		case p.ToolCall != nil:
			c := p.ToolCall
			first := len(all)
			for piece := range halves(string(c.Arguments)) {
				all = append(all, toolcrib.Delta{ToolCall: &toolcrib.ToolCallDelta{Index: calls, Arguments: piece}})
			}
			if len(all) == first { // no arguments
				all = append(all, toolcrib.Delta{ToolCall: &toolcrib.ToolCallDelta{Index: calls}})
			}
			d := all[first].ToolCall
			d.ID, d.Name, d.Signature = c.ID, c.Name, c.Signature
			calls++
		default:
			for piece := range words(p.Text) {
				all = append(all, toolcrib.Delta{Text: piece})
			}
		}
	}
	return slices.Values(all)
}

// Reason returns the finish reason of m: tool_calls if it has calls, otherwise stop.
func Reason(m toolcrib.Message) toolcrib.FinishReason {
	if len(m.ToolCalls()) > 0 {
		return toolcrib.FinishToolCalls
	}
	return toolcrib.FinishStop
}

// words cuts s after white space. The concatenated pieces are s.
func words(s string) iter.Seq[string] {
	return cut(s, len(s)/maxPieces, func(before, after rune) bool {
		return unicode.IsSpace(before) && !unicode.IsSpace(after)
	})
}

// halves cuts s into pieces of about 24 bytes, at least two.
func halves(s string) iter.Seq[string] {
	return cut(s, max(min(24, len(s)/2), len(s)/maxPieces), func(rune, rune) bool { return true })
}

// cut cuts s between two characters for which at returns true, once a piece has least bytes. Invalid
// UTF-8 is cut byte by byte.
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
