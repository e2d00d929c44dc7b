package anthropic

import (
	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// script turns messages into the API's turns: user and assistant alternate, the
// user begins, all results of a turn are in one user message, and no text is
// blank. The last turn stays open, so that further blocks can be added to it.
type script struct {
	model string
	files *wire.Attachments
	role  toolcrib.Role // role of the open turn; "" if none is open
	mark  int           // end of the block that the previous request marked
	last  int           // end of the block that the current request marks

	// callsWithoutThinking reports whether the latest turn of the assistant calls tools and did
	// not begin with reasoning.
	callsWithoutThinking bool
}

// continueText is sent where the API requires a user's turn and the history has none.
const continueText = `{"type":"text","text":"Continue."}`

func (s *script) add(dst []byte, m *toolcrib.Message) []byte {
	if m.Role == toolcrib.RoleAssistant {
		return s.addAssistant(dst, m)
	}
	for i := range m.Parts {
		p := &m.Parts[i]
		switch {
		case p.ToolResult != nil:
			dst = s.appendResult(s.block(dst, toolcrib.RoleUser), p.ToolResult)
		case p.File != nil:
			if s.role == toolcrib.RoleAssistant {
				s.callsWithoutThinking = false
			}
			dst = s.appendFile(s.block(dst, toolcrib.RoleUser), p.File)
		case !wire.Blank(p.Text):
			if s.role == toolcrib.RoleAssistant {
				s.callsWithoutThinking = false // after a new question the model may reason again
			}
			dst = appendText(s.block(dst, toolcrib.RoleUser), p.Text)
		}
	}
	return dst
}

func (s *script) addAssistant(dst []byte, m *toolcrib.Message) []byte {
	first := true
	s.callsWithoutThinking = false
	began := false
	for i := range m.Parts {
		p := &m.Parts[i]
		switch {
		case p.Thinking != nil:
			if s.replays(p.Thinking) {
				dst = appendThinking(s.block(dst, toolcrib.RoleAssistant), p.Thinking)
				began = began || first
				first = false
			}
		case p.ToolCall != nil:
			dst = appendCall(s.block(dst, toolcrib.RoleAssistant), p.ToolCall)
			s.callsWithoutThinking = !began
			first = false
		case p.File == nil && p.ToolResult == nil && !wire.Blank(p.Text):
			dst = appendText(s.block(dst, toolcrib.RoleAssistant), p.Text)
			first = false
		}
	}
	return dst
}

// replays reports whether a block of reasoning is sent back: it must be of this API
// and of the same model.
func (s *script) replays(t *toolcrib.Thinking) bool {
	return (t.Signature != "" && t.Signature != wire.ReasoningContent || t.Redacted != "") && wire.Own(t, s.model)
}

// block prepares dst for another block of that role.
func (s *script) block(dst []byte, role toolcrib.Role) []byte {
	if s.role == role {
		return append(dst, ',')
	}
	switch {
	case s.role != "":
		dst = append(dst, `]},`...)
	case role == toolcrib.RoleAssistant:
		dst = append(dst, `{"role":"user","content":[`+continueText+`]},`...)
	}
	s.role = role
	dst = append(dst, `{"role":"`...)
	dst = append(dst, role...)
	return append(dst, `","content":[`...)
}

// parts splits the encoded messages at the marks for the prompt cache: at
// the last block, and at the one that was the last before, so that even after a
// turn of many blocks the cache is found.
func (s *script) parts(parts [][]byte, messages []byte) [][]byte {
	s.mark, s.last = s.last, len(messages)
	if s.role != toolcrib.RoleUser {
		s.last = s.mark
		return append(s.marked(parts, messages, s.mark), []byte(`]},{"role":"user","content":[`+continueText+`]}`))
	}
	if s.mark > 0 && s.mark < s.last {
		parts = s.marked(parts, messages[:s.last-1], s.mark)
		return append(parts, cacheMark, turnEnd)
	}
	return append(parts, messages[:s.last-1], cacheMark, turnEnd)
}

func (s *script) marked(parts [][]byte, messages []byte, at int) [][]byte {
	if at <= 0 || at > len(messages) {
		return append(parts, messages)
	}
	return append(parts, messages[:at-1], cacheMark, messages[at:])
}

var turnEnd = []byte(`]}`)

func appendText(dst []byte, text string) []byte {
	dst = append(dst, `{"type":"text","text":`...)
	return append(wire.AppendString(dst, text), '}')
}

func appendThinking(dst []byte, t *toolcrib.Thinking) []byte {
	if t.Redacted != "" {
		dst = append(dst, `{"type":"redacted_thinking","data":`...)
		return append(wire.AppendString(dst, t.Redacted), '}')
	}
	dst = append(dst, `{"type":"thinking","thinking":`...)
	dst = wire.AppendString(dst, t.Text)
	dst = append(dst, `,"signature":`...)
	return append(wire.AppendString(dst, t.Signature), '}')
}

func appendCall(dst []byte, call *toolcrib.ToolCall) []byte {
	dst = append(dst, `{"type":"tool_use","id":`...)
	dst = wire.AppendString(dst, wire.Token(call.ID, maxCallID))
	dst = append(dst, `,"name":`...)
	dst = wire.AppendString(dst, wire.Token(call.Name, maxName))
	dst = append(dst, `,"input":`...)
	return append(append(dst, wire.Arguments(call)...), '}')
}
