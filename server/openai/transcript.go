package openai

import (
	"encoding/base64"
	"slices"
	"strconv"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
)

// transcript collects messages. The results of a turn must follow its calls.
type transcript struct {
	*Ask
	open  []string // calls of the last reply that have no result yet
	param string   // param of the last reply with calls
}

// piece is a piece of a message: a text or a file.
type piece struct {
	text string
	file *toolcrib.OutputFile
}

func (t *transcript) last() *toolcrib.Message {
	if len(t.Messages) == 0 {
		return &toolcrib.Message{}
	}
	return &t.Messages[len(t.Messages)-1]
}

// system adds to the system text.
func (t *transcript) system(param string, pieces []piece) error {
	for _, p := range pieces {
		if p.file != nil {
			return bad(param, "must be text")
		}
		if t.System != "" && p.text != "" {
			t.System += "\n\n"
		}
		t.System += p.text
	}
	return nil
}

func (t *transcript) user(param string, pieces []piece) error {
	if err := t.closed(param); err != nil {
		return err
	}
	m := toolcrib.Message{Role: toolcrib.RoleUser}
	var files []toolcrib.OutputFile
	for _, p := range pieces {
		if p.file != nil {
			files = append(files, *p.file)
			continue
		}
		m.Parts = append(m.Parts, toolcrib.Part{Text: p.text})
	}
	if strings.TrimSpace(m.Text()) == "" && len(files) == 0 {
		return bad(param, "is empty")
	}
	if len(files) > 0 {
		if t.Files == nil {
			t.Files = map[int][]toolcrib.OutputFile{}
		}
		t.Files[len(t.Messages)] = files
	}
	t.Messages = append(t.Messages, m)
	return nil
}

// reply adds a reply of the model. Consecutive replies are one message.
func (t *transcript) reply(param, text string, calls ...toolcrib.ToolCall) error {
	if strings.TrimSpace(text) == "" && len(calls) == 0 {
		return nil
	}
	if len(t.Messages) == 0 { // some clients begin with the agent; models require a user first
		t.Messages = append(t.Messages, toolcrib.TextMessage(toolcrib.RoleUser, "(The conversation begins.)"))
	}
	if t.last().Role != toolcrib.RoleAssistant {
		if err := t.closed(param); err != nil {
			return err
		}
		t.Messages = append(t.Messages, toolcrib.Message{Role: toolcrib.RoleAssistant})
	}
	m := t.last()
	if text != "" {
		m.Parts = append(m.Parts, toolcrib.Part{Text: text})
	}
	for i := range calls {
		c := &calls[i]
		if c.ID == "" || slices.Contains(t.open, c.ID) || !toolcrib.ValidToolName(c.Name) {
			return bad(param, "a call needs a unique ID and the name of a tool")
		}
		m.Parts = append(m.Parts, toolcrib.Part{ToolCall: c})
		t.open, t.param = append(t.open, c.ID), param
	}
	return nil
}

// call returns a call from a client, where the arguments are a text.
func call(id, name, arguments string) toolcrib.ToolCall {
	c := toolcrib.ToolCall{ID: id, Name: name}
	var err error
	if c.Arguments, err = guard.Arguments([]byte(arguments)); err != nil {
		c.Arguments, c.Broken, c.Problem = []byte("{}"), arguments, err.Error()
	}
	return c
}

func (t *transcript) result(param, id, text string) error {
	at := slices.Index(t.open, id)
	if at < 0 {
		return bad(param, "does not match an open call of the previous assistant message: %s", strconv.Quote(id))
	}
	t.open = slices.Delete(t.open, at, at+1)
	if t.last().Role != toolcrib.RoleTool {
		t.Messages = append(t.Messages, toolcrib.Message{Role: toolcrib.RoleTool})
	}
	asked := t.Messages[len(t.Messages)-2].ToolCalls()
	order := func(id string) int {
		return slices.IndexFunc(asked, func(c *toolcrib.ToolCall) bool { return c.ID == id })
	}
	m, r := t.last(), toolcrib.ToolResult{CallID: id, Name: asked[order(id)].Name, Content: text}
	m.Parts = append(m.Parts, toolcrib.Part{ToolResult: &r})
	slices.SortFunc(m.Parts, func(a, b toolcrib.Part) int {
		return order(a.ToolResult.CallID) - order(b.ToolResult.CallID)
	})
	return nil
}

// closed returns an error if a call has no result.
func (t *transcript) closed(param string) error {
	if len(t.open) > 0 {
		return bad(param, "comes before the result of call %s of %s", strconv.Quote(t.open[0]), t.param)
	}
	return nil
}

// end ends the transcript, and sets the results that a run may be waiting for.
func (t *transcript) end(param string) error {
	switch {
	case len(t.open) > 0:
		return bad(param, "call %s of %s has no result", strconv.Quote(t.open[0]), t.param)
	case len(t.Messages) == 0 || t.last().Role == toolcrib.RoleAssistant:
		return bad(param, "must end with a user message or with tool results")
	}
	from := len(t.Messages)
	for from > 0 && t.Messages[from-1].Role == toolcrib.RoleUser {
		from--
	}
	if from == 0 || t.Messages[from-1].Role != toolcrib.RoleTool {
		return nil
	}
	for _, p := range t.Messages[from-1].Parts {
		t.Results = append(t.Results, *p.ToolResult)
	}
	for i, m := range t.Messages[from:] {
		t.Said = append(t.Said, m.Text())
		t.SaidFiles = t.SaidFiles || len(t.Files[from+i]) > 0
	}
	return nil
}

// Before returns the conversation before the last message as a text.
func (a *Ask) Before() string {
	var b strings.Builder
	b.WriteString(a.System)
	for _, m := range a.Messages[:len(a.Messages)-1] {
		if b.Len() > 0 {
			b.WriteString("\n\n")
		}
		b.WriteString(string(m.Role) + ": " + m.Text())
		for _, p := range m.Parts {
			if p.ToolResult != nil {
				b.WriteString(p.ToolResult.Content)
			}
		}
	}
	return b.String()
}

// inline returns the file in a data: URL. Other URLs are not fetched.
func inline(param, url, name string) (*toolcrib.OutputFile, error) {
	head, data, ok := strings.Cut(url, ",")
	kind, isData := strings.CutPrefix(head, "data:")
	kind, isBase64 := strings.CutSuffix(kind, ";base64")
	if !ok || !isData || !isBase64 || kind == "" {
		return nil, bad(param, "must be a base64 data: URL; other URLs are not fetched")
	}
	content, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return nil, bad(param, "is not valid base64")
	}
	return &toolcrib.OutputFile{MediaType: kind, Name: name, Data: content}, nil
}
