package wire

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
)

// History keeps the encoded messages, tools and extra fields of the requests of a
// conversation, so that each request encodes only what was added.
// The adapters combine the pieces.
type History struct {
	Messages []byte // the encoded messages
	Tools    []byte
	Head     []byte

	ToolNames []string          // names of the encoded tools
	Notices   []toolcrib.Notice // notices of the current request
	Extra     Extra
	Files     Attachments

	client    *Client
	sent      int
	epoch     int
	model     string
	system    string
	toolsHash string
	hasTools  bool
	leftOut   []toolcrib.Notice // about tools that were left out
}

// History returns an empty history, for an API that accepts these files.
func (c *Client) History(rules FileRules) History {
	return History{client: c, Files: Attachments{Rules: rules}}
}

// firstMessages is the initial capacity for the encoded messages of a run, which
// avoids repeated copying while they grow.
const firstMessages = 4 << 10

// Begin starts a request. It returns the messages of req that are not encoded yet, and
// whether the encoded ones were dropped because something before them has changed.
// The adapter writes the reserved fields itself.
func (h *History) Begin(ctx context.Context, req *toolcrib.Request, reserved ...string) (messages []toolcrib.Message,
	fresh bool, err error,
) {
	h.Notices = nil
	if h.Extra, err = ParseExtra(req.Extra, reserved...); err != nil {
		return nil, false, h.Unsent(err.Error())
	}
	if h.sent == 0 || h.epoch != req.Epoch || h.sent > len(req.Messages) || h.model != req.Model ||
		h.system != req.System {
		if h.Messages == nil {
			h.Messages = make([]byte, 0, firstMessages)
		}
		h.Messages, fresh = h.Messages[:0], true
		h.sent, h.epoch, h.model, h.system = 0, req.Epoch, req.Model, req.System
	}
	h.Files.Begin(ctx, req, fresh)
	messages = req.Messages[h.sent:]
	h.sent = len(req.Messages)
	return messages, fresh, nil
}

// End is called after the messages are encoded. It encodes the tools of req if they have changed, and fails if the
// request ended while a file was read.
func (h *History) End(req *toolcrib.Request, form *ToolForm) error {
	if err := h.Files.Err(); err != nil {
		h.drop() // a file may be missing
		return err
	}
	if !h.hasTools || req.ToolsHash == "" || req.ToolsHash != h.toolsHash {
		h.Tools, h.ToolNames, h.leftOut = h.Tools[:0], h.ToolNames[:0], nil
		h.toolsHash, h.hasTools = req.ToolsHash, true
		h.addTools(req.Tools, form)
	}
	h.Notices = append(slices.Concat(h.leftOut, h.Notices), h.Files.Notices...)
	return nil
}

func (h *History) drop() { *h = h.client.History(h.Files.Rules) }

// Unsent returns the error of a request that cannot be sent.
func (h *History) Unsent(message string) error {
	h.drop()
	return &toolcrib.ModelError{
		Class: toolcrib.ErrBadRequest, Provider: h.client.opts.Name, Unsent: true, Message: message,
	}
}

// Ignored adds a notice that a parameter is not sent, and why.
func (h *History) Ignored(parameter, why string) {
	h.Notices = append(h.Notices, Notice(NoticeParameterIgnored, "%s is not sent: %s", parameter, why))
}

// Streams reports whether the reply is requested as a stream.
func (h *History) Streams() bool {
	return !h.client.opts.NoStream && string(h.Extra.Get("stream")) != "false"
}

// Choice returns the mode of a tool choice to send, or "" to send none.
func (h *History) Choice(choice toolcrib.ToolChoice) string {
	switch {
	case len(h.Tools) == 0:
		return ""
	case choice.Mode == toolcrib.ChoiceName && !slices.Contains(h.ToolNames, choice.Name):
		h.Ignored("tool_choice", "tool "+choice.Name+" is not in the request")
		return ""
	}
	return choice.Mode
}

// Blank reports whether s contains only white space.
func Blank(s string) bool { return strings.TrimSpace(s) == "" }

// Own reports whether a block of reasoning is from that model.
func Own(t *toolcrib.Thinking, model string) bool {
	return t.Model == "" || t.Model == model || strings.HasSuffix(t.Model, "/"+model)
}

// BareModel returns the name of a model without the prefixes of gateways, in lower case.
func BareModel(model string) string {
	return strings.ToLower(model[strings.LastIndexByte(model, '/')+1:])
}

// FileText returns the text that replaces a file in a request; the content of files is not
// part of a transcript.
func FileText(f *toolcrib.File) string {
	return "[file " + cmp.Or(f.Name, f.Ref) + ", " + f.MediaType + "]"
}

// WithSchemaInstruction returns a system text with an instruction to answer with JSON that is
// valid against a schema, for models and APIs that have no parameter for it. The
// same schema always gives the same bytes. An empty, null or invalid schema adds nothing.
func WithSchemaInstruction(system string, schema json.RawMessage) string {
	var compact bytes.Buffer
	if len(bytes.TrimSpace(schema)) == 0 || json.Compact(&compact, schema) != nil || compact.String() == "null" {
		return system
	}
	if Blank(system) {
		system = ""
	} else {
		system += "\n\n"
	}
	return system + "When you give your final answer, give it as one JSON value that is valid against the JSON Schema " +
		"below: no text around it and no code fence. You may call tools before that.\n" + compact.String()
}
