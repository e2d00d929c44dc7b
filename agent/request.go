package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"hash"
	"io"
	"strconv"

	"github.com/toolcrib/toolcrib"
)

// buildRequest makes the provider-neutral request that a step asks for. specs
// are the offered tools, or none. It is pure.
func buildRequest(s *State, step Step, specs []toolcrib.Spec, offerHash string) *toolcrib.Request {
	a, m := &s.Start.Agent, &s.Start.Models[step.Model]
	req := &toolcrib.Request{
		Model:           m.ID,
		System:          s.Start.System,
		Messages:        s.Messages,
		Temperature:     a.Temperature,
		MaxOutputTokens: step.Reserve.MaxOutput,
		Reasoning:       m.Reasoning,
		OutputSchema:    a.OutputSchema,
		Extra:           m.Extra,
		Epoch:           s.Epoch,
	}
	if len(specs) > 0 {
		req.Tools, req.ToolsHash, req.ToolChoice = specs, offerHash, step.Choice
	}
	return req
}

// requestHash is SHA-256 over all that the model is told, in a fixed layout of
// fields with their lengths. It costs what is new: the digest of the messages is
// carried along in the state.
func requestHash(s *State, req *toolcrib.Request) string {
	h := cloneHash(s.digest)
	field(h, req.Model)
	field(h, req.System)
	field(h, req.ToolsHash)
	field(h, req.ToolChoice.Mode)
	field(h, req.ToolChoice.Name)
	if req.Temperature != nil {
		field(h, strconv.FormatFloat(*req.Temperature, 'g', -1, 64))
	} else {
		field(h, "")
	}
	field(h, strconv.Itoa(req.MaxOutputTokens))
	field(h, req.Reasoning)
	field(h, string(req.OutputSchema))
	field(h, string(req.Extra))
	return hex.EncodeToString(h.Sum(nil))
}

func cloneHash(h hash.Hash) hash.Hash {
	if c, ok := h.(hash.Cloner); ok {
		if n, err := c.Clone(); err == nil {
			return n
		}
	}
	// Every hash of the standard library can be cloned; a fresh one would only
	// make the digest cover less.
	return sha256.New()
}

// writeMessage writes all of a message that a model can see, field by field with
// lengths, so that no two messages give the same bytes.
func writeMessage(w io.Writer, m *toolcrib.Message) {
	field(w, string(m.Role))
	for i := range m.Parts {
		p := &m.Parts[i]
		switch {
		case p.Thinking != nil:
			field(w, "thinking")
			field(w, p.Thinking.Text)
			field(w, p.Thinking.Signature)
			field(w, p.Thinking.Redacted)
		case p.ToolCall != nil:
			field(w, "call")
			field(w, p.ToolCall.ID)
			field(w, p.ToolCall.Name)
			_, _ = w.Write(p.ToolCall.Arguments) // a hash and a counter never fail
			field(w, p.ToolCall.Signature)
		case p.ToolResult != nil:
			field(w, "result")
			field(w, p.ToolResult.CallID)
			field(w, p.ToolResult.Content)
			field(w, strconv.FormatBool(p.ToolResult.IsError))
		case p.File != nil:
			field(w, "file")
			field(w, p.File.Ref)
			field(w, p.File.MediaType)
		default:
			field(w, "text")
			field(w, p.Text)
		}
	}
}

func field(w io.Writer, s string) {
	_, _ = io.WriteString(w, strconv.Itoa(len(s)))
	_, _ = io.WriteString(w, ":")
	_, _ = io.WriteString(w, s)
}

// counter counts what is written to it.
type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error)       { c.n += int64(len(p)); return len(p), nil }
func (c *counter) WriteString(s string) (int, error) { c.n += int64(len(s)); return len(s), nil }

// bytesPerToken is a cautious mean over languages and JSON: real ratios are 3 to
// 4.5. What the provider reports corrects it from the second request on.
const bytesPerToken = 3.5

// estimateInput estimates the input tokens of the next request.
func estimateInput(s *State, toolBytes int64) int64 {
	if s.size.reported > 0 {
		return s.size.reported + tokens(s.size.bytes-s.size.reportedBytes)
	}
	return tokens(s.size.bytes + int64(len(s.Start.System)) + toolBytes)
}

func tokens(bytes int64) int64 {
	if bytes <= 0 {
		return 0
	}
	return int64(float64(bytes)/bytesPerToken) + 1
}

// estimateReply estimates the output tokens of a reply whose provider reports none.
func estimateReply(r *toolcrib.Reply) int64 {
	n := &counter{}
	writeMessage(n, &r.Message)
	return tokens(n.n)
}

// offerBytes is the size of the offered specs as a model is shown them.
func offerBytes(specs []toolcrib.Spec) int64 {
	var n int64
	for i := range specs {
		n += int64(len(specs[i].Name) + len(specs[i].Description) + len(specs[i].Parameters) + 40)
	}
	return n
}

// canonicalEmpty is what a call without arguments gets (N13).
var canonicalEmpty = json.RawMessage("{}")
