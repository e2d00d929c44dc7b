package wire

import (
	"bytes"
	"cmp"
	"strings"

	"github.com/toolcrib/toolcrib"
)

// History is what a conversation remembers of the requests that it has sent, so
// that only what is new is encoded: the encoded messages, tools and extra fields.
// The adapters put the pieces together.
type History struct {
	Messages []byte // encoded so far
	Tools    []byte
	Head     []byte

	ToolNames []string // the tools that were encoded
	Notices   []toolcrib.Notice
	Extra     Extra

	sent      int
	epoch     int
	model     string
	system    string
	toolsHash string
	hasTools  bool
	extraRaw  []byte
	hasExtra  bool
}

// maxKept bounds a buffer that is kept for another run.
const maxKept = 1 << 20

// firstMessages is what is set aside for the encoded messages of a run at first:
// more than that is copied again and again while it grows.
const firstMessages = 4 << 10

// New returns the messages of req that are not encoded yet, and whether the
// encoded ones were dropped because something before them has changed.
func (h *History) New(req *toolcrib.Request) (messages []toolcrib.Message, fresh bool) {
	if h.sent == 0 || h.epoch != req.Epoch || h.sent > len(req.Messages) || h.model != req.Model ||
		h.system != req.System {
		if h.Messages == nil {
			h.Messages = make([]byte, 0, firstMessages)
		}
		h.Messages, fresh = h.Messages[:0], true
		h.sent, h.epoch, h.model, h.system = 0, req.Epoch, req.Model, req.System
	}
	messages = req.Messages[h.sent:]
	h.sent = len(req.Messages)
	return messages, fresh
}

// ToolsChanged reports whether the tools must be encoded again, and starts again if
// so.
func (h *History) ToolsChanged(req *toolcrib.Request) bool {
	key := req.ToolsHash
	if h.hasTools && key != "" && key == h.toolsHash {
		return false
	}
	h.Tools, h.ToolNames, h.Notices = h.Tools[:0], h.ToolNames[:0], nil
	h.toolsHash, h.hasTools = key, true
	return true
}

// ReadExtra reads req.Extra, once for each content.
func (h *History) ReadExtra(req *toolcrib.Request, reserved ...string) error {
	if h.hasExtra && bytes.Equal(h.extraRaw, req.Extra) {
		return nil
	}
	x, err := ParseExtra(req.Extra, reserved...)
	if err != nil {
		return err
	}
	h.Extra, h.extraRaw, h.hasExtra = x, bytes.Clone(req.Extra), true
	return nil
}

// Blank reports whether s holds nothing but white space.
func Blank(s string) bool { return strings.TrimSpace(s) == "" }

// FileText replaces a file in a request: its content is not part of a
// transcript.
func FileText(f *toolcrib.File) string {
	return "[file " + cmp.Or(f.Name, f.Ref) + ", " + f.MediaType + "]"
}
