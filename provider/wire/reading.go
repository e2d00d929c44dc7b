package wire

import (
	"strings"

	"github.com/toolcrib/toolcrib"
)

// ReasoningContent as the signature of a block of reasoning means that the server sent it in a
// field of that name, and expects it there.
const ReasoningContent = "reasoning_content"

// reading passes on the deltas of a reply after correcting output that a server's parsers
// left in place: reasoning in the text, and an empty object before the
// arguments of a call.
type reading struct {
	out   Emit
	phase phase
	held  string          // text that is held back until its kind is known
	calls []heldArguments // by the index of the call
}

// heldArguments are the first arguments of a call, which are held back until it is known how they begin.
type heldArguments struct {
	text  string
	begun bool // the arguments have begun; nothing more is held back
}

type phase int

const (
	atStart  phase = iota // before any text
	thinking              // between the tags, before any text
	thinks                // between the tags
	thought               // after the tags
	speaks                // in the answer
)

const thinkOpen, thinkClose = "<think>", "</think>"

func (r *reading) add(d toolcrib.Delta) {
	switch {
	case d.Text != "" && r.phase == speaks:
		r.out(d)
	case d.Text != "":
		r.text(r.held + d.Text)
	case d.ToolCall != nil:
		r.endText()
		r.call(d.ToolCall)
	default:
		if d.Finish != nil {
			r.endText()
			r.endCalls()
		}
		r.out(d)
	}
}

// text reads the text that has arrived and was not passed on yet.
func (r *reading) text(s string) {
	for r.held = ""; s != ""; {
		bare := strings.TrimLeft(s, " \t\r\n")
		switch r.phase {
		case atStart, thought:
			if rest, ok := strings.CutPrefix(bare, thinkOpen); ok {
				r.phase, s = thinking, rest
				continue
			}
			if strings.HasPrefix(thinkOpen, bare) {
				r.held = s
				return
			}
			if r.phase == thought {
				s = bare
			}
			r.phase = speaks
			r.out(toolcrib.Delta{Text: s})
			return
		case thinking:
			if s = bare; s != "" && !strings.HasPrefix(thinkClose, s) {
				r.phase = thinks
				continue
			}
		}
		before, after, closed := strings.Cut(s, thinkClose)
		if !closed {
			before, r.held = cutPartial(s, thinkClose)
		}
		if before != "" {
			r.out(toolcrib.Delta{Thinking: before})
		}
		if !closed {
			return
		}
		r.phase, s = thought, after
	}
}

// cutPartial cuts off the end of s that may be the beginning of a tag.
func cutPartial(s, tag string) (before, partial string) {
	for n := min(len(tag)-1, len(s)); n > 0; n-- {
		if strings.HasSuffix(s, tag[:n]) {
			return s[:len(s)-n], s[len(s)-n:]
		}
	}
	return s, ""
}

// endText passes on the text that was held back, at its end.
func (r *reading) endText() {
	held := r.held
	r.held = ""
	switch {
	case held == "":
	case r.phase == atStart, r.phase == thought && !Blank(held):
		r.phase = speaks
		r.out(toolcrib.Delta{Text: held})
	case r.phase == thinks:
		r.out(toolcrib.Delta{Thinking: held})
	}
}

// call passes on a piece of a call. Some servers begin the arguments of every call with {},
// the initial input of a block.
func (r *reading) call(c *toolcrib.ToolCallDelta) {
	for len(r.calls) <= c.Index {
		r.calls = append(r.calls, heldArguments{})
	}
	if h := &r.calls[c.Index]; c.Arguments != "" && !h.begun {
		c.Arguments, h.begun = withoutEmpty(h.text + c.Arguments)
		if h.text = ""; !h.begun {
			h.text, c.Arguments = c.Arguments, ""
		}
	}
	r.out(toolcrib.Delta{ToolCall: c})
}

// withoutEmpty removes an empty object from the beginning of arguments if others follow. begins
// reports whether their beginning is known.
func withoutEmpty(arguments string) (rest string, begins bool) {
	const empty = "{}"
	for {
		bare := strings.TrimLeft(arguments, " \t\r\n")
		after, ok := strings.CutPrefix(bare, empty)
		switch after = strings.TrimLeft(after, " \t\r\n"); {
		case !ok:
			return arguments, !strings.HasPrefix(empty, bare)
		case after == "":
			return arguments, false
		case after[0] != '{':
			return arguments, true
		}
		arguments = after
	}
}

// endCalls passes on the arguments that were held back, at their end.
func (r *reading) endCalls() {
	for i := range r.calls {
		if held := r.calls[i].text; held != "" {
			r.out(toolcrib.Delta{ToolCall: &toolcrib.ToolCallDelta{Index: i, Arguments: held}})
		}
	}
}

// Said counts the complete calls of a reply, to recognize a last piece that repeats them.
// The zero value is ready to use.
type Said struct{ calls map[string]int }

// Again reports whether a call of the last piece is a repetition. A call with an ID never is.
func (s *Said) Again(last bool, id, name, arguments string) bool {
	key := name + "\x00" + arguments
	switch {
	case last && id == "" && s.calls[key] > 0:
		s.calls[key]--
		return true
	case !last && s.calls == nil:
		s.calls = map[string]int{key: 1}
	case !last:
		s.calls[key]++
	}
	return false
}
