package gemini

import (
	"strings"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// script turns messages into the API's contents: user and model alternate, the
// user begins, and the results of all calls of a turn are in the one content after
// it. The last content stays open, so that further parts can be added to it.
type script struct {
	model  string // bare name
	traits traits
	role   toolcrib.Role // role of the open content; "" if none is open
	calls  []sentCall    // calls of the latest content of the model
	files  *wire.Attachments
}

// sentCall is the data of a call that its result must repeat.
type sentCall struct {
	id     string // toolcrib's ID
	wireID string // the API's ID; "" if it sent none
	name   string
}

// continueText is sent where the API requires a user's turn and the history has none.
const continueText = `{"text":"Continue."}`

func (s *script) add(dst []byte, m *toolcrib.Message) []byte {
	if m.Role == toolcrib.RoleAssistant {
		return s.addAssistant(dst, m)
	}
	for i := range m.Parts {
		p := &m.Parts[i]
		switch {
		case p.ToolResult != nil:
			dst = s.result(dst, p.ToolResult)
		case p.File != nil:
			dst = s.file(dst, p.File)
		default:
			dst = s.text(dst, toolcrib.RoleUser, p.Text)
		}
	}
	return dst
}

// part prepares dst for another part of that role.
func (s *script) part(dst []byte, role toolcrib.Role) []byte {
	if s.role == role {
		return append(dst, ',')
	}
	switch {
	case s.role != "":
		dst = append(dst, `]},`...)
	case role == toolcrib.RoleAssistant:
		dst = append(dst, `{"role":"user","parts":[`+continueText+`]},`...)
	}
	s.role = role
	if role == toolcrib.RoleAssistant {
		s.calls = s.calls[:0]
		return append(dst, `{"role":"model","parts":[`...)
	}
	return append(dst, `{"role":"user","parts":[`...)
}

// text appends a text, unless it is blank.
func (s *script) text(dst []byte, role toolcrib.Role, text string) []byte {
	if wire.Blank(text) {
		return dst
	}
	dst = append(s.part(dst, role), `{"text":`...)
	return append(wire.AppendString(dst, text), '}')
}

// signed appends a text, which may be empty, with its signature.
func (s *script) signed(dst []byte, text, signature string) []byte {
	dst = append(s.part(dst, toolcrib.RoleAssistant), `{"text":`...)
	dst = append(wire.AppendString(dst, text), `,"thoughtSignature":`...)
	return append(wire.AppendString(dst, signature), '}')
}

func (s *script) addAssistant(dst []byte, m *toolcrib.Message) []byte {
	waiting, length := "", 0 // a signature whose text comes later
	flush := func() {
		if waiting != "" {
			dst = s.signed(dst, "", waiting)
			waiting = ""
		}
	}
	for i := range m.Parts {
		p := &m.Parts[i]
		switch {
		case p.Thinking != nil:
			flush()
			if n, signature, ok := openText(p.Thinking.Redacted); ok && wire.Own(p.Thinking, s.model) {
				waiting, length = signature, n
				if n == 0 {
					flush()
				}
				continue
			}
			dst = s.thought(dst, p.Thinking)
		case p.ToolCall != nil:
			flush()
			dst = s.call(dst, p.ToolCall)
		case p.File != nil || p.ToolResult != nil:
		case waiting != "" && p.Text != "":
			head, rest := cut(p.Text, length)
			dst = s.signed(dst, head, waiting)
			waiting = ""
			dst = s.text(dst, toolcrib.RoleAssistant, rest)
		default:
			dst = s.text(dst, toolcrib.RoleAssistant, p.Text)
		}
	}
	flush()
	return dst
}

// cut splits a text after n bytes, or at the start of the character there.
func cut(text string, n int) (head, rest string) {
	if n >= len(text) {
		return text, ""
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n], text[n:]
}

// thought sends reasoning back if it is signed and of the same model. Summaries of reasoning
// need not be sent back.
func (s *script) thought(dst []byte, t *toolcrib.Thinking) []byte {
	if !validSignature(t.Signature) || !wire.Own(t, s.model) {
		return dst
	}
	dst = append(s.part(dst, toolcrib.RoleAssistant), `{"text":`...)
	dst = append(wire.AppendString(dst, t.Text), `,"thought":true,"thoughtSignature":`...)
	return append(wire.AppendString(dst, t.Signature), '}')
}

// call appends a call. If the model requires signatures, the first call of a turn must have
// one; the others have none.
func (s *script) call(dst []byte, c *toolcrib.ToolCall) []byte {
	dst = s.part(dst, toolcrib.RoleAssistant)
	sent := sentCall{id: c.ID, wireID: ownID(c), name: sentName(c.Name)}
	signature := openCall(s.model, c.Signature)
	if signature == "" && len(s.calls) == 0 && s.traits.signed() {
		signature = noSignature
	}
	s.calls = append(s.calls, sent)
	dst = append(dst, `{"functionCall":{`...)
	if sent.wireID != "" {
		dst = append(dst, `"id":`...)
		dst = append(wire.AppendString(dst, sent.wireID), ',')
	}
	dst = append(dst, `"name":`...)
	dst = wire.AppendString(dst, sent.name)
	dst = append(dst, `,"args":`...)
	dst = append(append(dst, wire.Arguments(c)...), '}')
	if signature != "" {
		dst = append(dst, `,"thoughtSignature":`...)
		dst = wire.AppendString(dst, signature)
	}
	return append(dst, '}')
}

// ownID returns the ID that the API assigned to a call, or "" if it assigned none or a duplicate:
// then ID is the loop's own, call_<n>.
func ownID(c *toolcrib.ToolCall) string {
	if c.ProviderID != "" {
		return ""
	}
	if n, ok := strings.CutPrefix(c.ID, "call_"); ok && n != "" && strings.Trim(n, "0123456789") == "" {
		return ""
	}
	return c.ID
}
