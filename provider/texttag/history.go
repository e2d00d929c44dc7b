package texttag

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
)

// history has the messages of one run as the text protocol writes them, so that
// a request converts only the new ones and its bytes only grow at their end.
type history struct {
	messages []toolcrib.Message
	taken    int  // number of messages of the request that were converted
	sent     int  // number of messages that were sent to the inner model
	epoch    int  // epoch of the request
	inner    int  // epoch for the inner model
	called   bool // it contains a call
	answered bool // the last message consists of results
}

func (h *history) update(req *toolcrib.Request) {
	if h.taken > len(req.Messages) || h.epoch != req.Epoch {
		*h = history{epoch: req.Epoch, inner: h.inner + 1}
	}
	for i := h.taken; i < len(req.Messages); i++ {
		h.add(&req.Messages[i])
	}
	h.taken, h.sent = len(req.Messages), len(h.messages)
}

func (h *history) add(m *toolcrib.Message) {
	answered := h.answered
	h.answered = false
	switch {
	case m.Role == toolcrib.RoleTool:
		h.called = true
		h.results(m)
	case m.Role == toolcrib.RoleAssistant && len(m.ToolCalls()) > 0:
		h.called = true
		h.messages = append(h.messages, assistant(m))
	case m.Role == toolcrib.RoleUser && answered:
		// Many chat templates require that user and assistant alternate.
		h.extend(m.Parts)
	default:
		h.messages = append(h.messages, *m)
	}
}

// extend adds a user's message to the message with the results before it.
func (h *history) extend(parts []toolcrib.Part) {
	last := len(h.messages) - 1
	if last < h.sent {
		h.inner++ // a message that was sent has changed
		h.messages = slices.Clone(h.messages)
	}
	all := slices.Concat(h.messages[last].Parts, []toolcrib.Part{{Text: "\n\n"}}, parts)
	h.messages[last].Parts = merged(all)
	h.answered = true
}

// results converts the results of a turn to one message, in their order.
func (h *history) results(m *toolcrib.Message) {
	var parts []toolcrib.Part
	for i := range m.Parts {
		r := m.Parts[i].ToolResult
		if r == nil {
			parts = append(parts, m.Parts[i])
			continue
		}
		if len(parts) > 0 {
			parts = append(parts, toolcrib.Part{Text: "\n"})
		}
		parts = append(parts, toolcrib.Part{Text: resultText(r)})
		for k := range r.Files {
			parts = append(parts, toolcrib.Part{File: &r.Files[k]})
		}
	}
	if len(parts) > 0 {
		h.messages = append(h.messages, toolcrib.Message{Role: toolcrib.RoleUser, Parts: merged(parts)})
		h.answered = true
	}
}

// assistant converts the calls of a turn to tags after its text.
func assistant(m *toolcrib.Message) toolcrib.Message {
	parts := make([]toolcrib.Part, 0, len(m.Parts)+1)
	text := ""
	for i := range m.Parts {
		p := m.Parts[i]
		if p.ToolCall != nil {
			p = toolcrib.Part{Text: callText(p.ToolCall)}
			if text != "" && !strings.HasSuffix(text, "\n") {
				p.Text = "\n" + p.Text
			}
		}
		if isText(&p) && p.Text != "" {
			text = p.Text
		}
		parts = append(parts, p)
	}
	return toolcrib.Message{Role: toolcrib.RoleAssistant, Parts: merged(parts)}
}

func isText(p *toolcrib.Part) bool {
	return p.Thinking == nil && p.ToolCall == nil && p.ToolResult == nil && p.File == nil
}

func merged(parts []toolcrib.Part) []toolcrib.Part {
	out := make([]toolcrib.Part, 0, len(parts))
	for _, p := range parts {
		if n := len(out); n > 0 && isText(&p) && isText(&out[n-1]) {
			out[n-1].Text += p.Text
			continue
		}
		out = append(out, p)
	}
	return out
}

// callText returns a call as its tag. A call that could not be read is returned as the
// model wrote it, so that the model sees what to fix.
func callText(c *toolcrib.ToolCall) string {
	if c.Malformed {
		text := c.Broken
		if text == "" {
			text = string(c.Arguments)
		}
		return callOpen + inert(text, entity) + callClose
	}
	name := c.Name
	if name == toolcrib.InvalidName && c.ProviderName != "" {
		name = c.ProviderName
	}
	arguments := inert(string(bytes.TrimSpace(c.Arguments)), escape)
	switch {
	case c.Broken != "":
		arguments = inert(c.Broken, entity)
	case arguments == "":
		arguments = "{}"
	}
	return callOpen + `{"name": ` + quoted(name) + `, "args": ` + arguments + `}` + callClose
}

func quoted(s string) string {
	q, err := json.Marshal(s) // marshaling a string never fails
	if err != nil {
		return `""`
	}
	return string(q)
}

// Replacements of a bracket by [inert].
const (
	entity = "&lt;"
	escape = `\u003c` // in JSON, where brackets occur only in strings
)

// inert replaces the bracket of everything in s that reads as a tag of a call.
func inert(s, bracket string) string {
	var out []byte
	from := 0
	for i := nextBracket(s, 0); i >= 0; i = nextBracket(s, i+1) {
		if t, v := scanTag(s[i:], ended); v == isTag && (t.kind != tagStray || bracket == entity) {
			out = append(append(out, s[from:i]...), bracket...)
			c := cursor{s: s, i: i}
			_, size := c.peek()
			from = i + max(size, 1)
		}
	}
	if out == nil {
		return s
	}
	return string(append(out, s[from:]...))
}

// resultText returns a result in the protocol's wrapper (X7). If the content is
// already fenced as untrusted data, the wrapper replaces the fence, and untrusted
// text cannot imitate a call either.
func resultText(r *toolcrib.ToolResult) string {
	content := r.Content
	if inside, ok := guard.Unfence(content); ok {
		content = inert(inside, entity)
	}
	return guard.WrapToolResult(r.Name, content)
}
