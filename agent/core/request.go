package core

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"slices"
	"strconv"
	"strings"

	"github.com/toolcrib/toolcrib"
)

// BuildRequest makes the provider-neutral request of a step. specs are the offered tools, if any. It
// is pure.
func BuildRequest(s *State, step Step, specs []toolcrib.Spec, offerHash string) *toolcrib.Request {
	a, m := &s.Start.Agent, &s.Models[step.Model]
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
		Replaced:        s.replaced,
	}
	if step.Closing && s.atLimit() {
		req.Messages = append(slices.Clip(s.Messages), toolcrib.TextMessage(toolcrib.RoleUser, TextIterationLimit))
	}
	if len(specs) > 0 {
		req.Tools, req.ToolsHash, req.ToolChoice = specs, offerHash, step.Choice
	}
	return req
}

// HashRequest is SHA-256 over the whole input of the model, in a fixed layout of fields with their
// lengths. Only new messages are hashed: the state has the digest of the others. For a request that is
// not part of the conversation, s is nil.
func HashRequest(s *State, req *toolcrib.Request) string {
	var h hash.Hash
	var b []byte
	known := 0 // number of messages in the digest of the state
	if s != nil {
		h, known = s.cloneDigest(), len(s.Messages)
	} else {
		h = sha256.New()
	}
	for i := known; i < len(req.Messages); i++ {
		_, _ = h.Write(appendMessage(nil, &req.Messages[i])) // a hash never fails
	}
	if s != nil {
		b = s.scratch[:0]
	}
	b = appendField(b, req.Model)
	b = appendField(b, req.System)
	b = appendField(b, req.ToolsHash)
	b = appendField(b, req.ToolChoice.Mode)
	b = appendField(b, req.ToolChoice.Name)
	temperature := ""
	if req.Temperature != nil {
		temperature = strconv.FormatFloat(*req.Temperature, 'g', -1, 64)
	}
	b = appendField(b, temperature)
	b = appendField(b, strconv.Itoa(req.MaxOutputTokens))
	b = appendField(b, req.Reasoning)
	b = appendField(b, req.OutputSchema)
	b = appendField(b, req.Extra)
	if len(req.OutputSchema) > 0 {
		b = appendField(b, req.OutputSchema)
	}
	_, _ = h.Write(b) // a hash never fails
	b = h.Sum(b[:0])
	n := len(b)
	b = hex.AppendEncode(b, b)
	if s != nil {
		s.scratch = b
	}
	return string(b[n:])
}

// cloneDigest copies the digest of the messages, so that more can be added to the copy.
func (s *State) cloneDigest() hash.Hash {
	if from, ok := s.digest.(hash.Cloner); ok {
		if h, err := from.Clone(); err == nil {
			return h
		}
	}
	// SHA-256 of the standard library can be copied; otherwise a new hash would cover less.
	return sha256.New()
}

// appendMessage appends all fields of a message that a model sees, with their lengths, so that
// different messages give different bytes.
func appendMessage(b []byte, m *toolcrib.Message) []byte {
	b = appendField(b, string(m.Role))
	for i := range m.Parts {
		p := &m.Parts[i]
		switch {
		case p.Thinking != nil:
			b = appendField(b, "thinking")
			b = appendField(b, p.Thinking.Text)
			b = appendField(b, p.Thinking.Signature)
			b = appendField(b, p.Thinking.Redacted)
		case p.ToolCall != nil:
			b = appendField(b, "call")
			b = appendField(b, p.ToolCall.ID)
			b = appendField(b, p.ToolCall.Name)
			b = appendField(b, p.ToolCall.Arguments)
			b = appendField(b, p.ToolCall.Signature)
			if p.ToolCall.Broken != "" || p.ToolCall.Problem != "" {
				// A model that calls tools in its text is shown its own text.
				b = appendField(b, p.ToolCall.Broken)
				b = appendField(b, p.ToolCall.Problem)
			}
		case p.ToolResult != nil:
			b = appendField(b, "result")
			b = appendField(b, p.ToolResult.CallID)
			b = appendField(b, p.ToolResult.Content)
			b = appendField(b, strconv.FormatBool(p.ToolResult.IsError))
			for _, f := range p.ToolResult.Files {
				b = appendField(b, f.Ref)
				b = appendField(b, f.MediaType)
			}
		case p.File != nil:
			b = appendField(b, "file")
			b = appendField(b, p.File.Ref)
			b = appendField(b, p.File.MediaType)
		default:
			b = appendField(b, "text")
			b = appendField(b, p.Text)
		}
	}
	return b
}

func appendField[T ~string | ~[]byte](b []byte, s T) []byte {
	b = strconv.AppendInt(b, int64(len(s)), 10)
	b = append(b, ':')
	return append(b, s...)
}

// bytesPerToken is a cautious mean over languages and JSON; actual ratios are 3 to 4.5. From the
// second request on, the provider's numbers correct it.
const bytesPerToken = 3.5

// fileTokens is the estimate for an image: APIs charge some hundred to some thousand tokens.
const fileTokens = 1500

// estimateInput estimates the input tokens of the next request.
func estimateInput(s *State, toolBytes int64) int64 {
	if s.size.reported > 0 {
		more := s.size.bytes - s.size.reportedBytes
		if s.Offer.Finder != "" { // tools found since
			more += max(0, toolBytes+int64(len(s.Start.System))-s.size.rest)
		}
		return s.size.reported + tokens(more)
	}
	return s.tokens(s.size.bytes + int64(len(s.Start.System)) + toolBytes)
}

func tokens(bytes int64) int64 { return tokensAt(bytes, bytesPerToken) }

func tokensAt(bytes int64, perToken float64) int64 {
	if bytes <= 0 {
		return 0
	}
	return int64(float64(bytes)/perToken) + 1
}

// tokens estimates tokens, by the ratio that the provider has reported for this run, if any.
func (s *State) tokens(bytes int64) int64 { return tokensAt(bytes, s.perToken()) }

func (s *State) perToken() float64 {
	if s.size.perToken > 0 {
		return s.size.perToken
	}
	return bytesPerToken
}

// learn saves the reported ratio of bytes to tokens before the messages that it is about change.
func (z *size) learn() {
	const least, most = 1, 8 // limits for any language and tokenizer
	if z.reported > 0 {
		z.perToken = min(max(float64(z.reportedBytes+z.rest)/float64(z.reported), least), most)
	}
	z.reported, z.reportedBytes = 0, 0
}

// messageBytes is the size of a message for estimates.
func messageBytes(m *toolcrib.Message) int64 {
	return int64(len(appendMessage(nil, m))) + filesBytes(m)
}

// filesBytes is the size of a message's files for estimates, in bytes of text.
func filesBytes(m *toolcrib.Message) (n int64) {
	for i := range m.Parts {
		if f := m.Parts[i].File; f != nil {
			n += fileBytes(f)
		}
		if r := m.Parts[i].ToolResult; r != nil {
			for k := range r.Files {
				n += fileBytes(&r.Files[k])
			}
		}
	}
	return n
}

func fileBytes(f *toolcrib.File) int64 {
	if strings.HasPrefix(f.MediaType, "image/") {
		return fileTokens * bytesPerToken
	}
	return max(f.Bytes/4, fileTokens*bytesPerToken)
}

// EstimateReply estimates the output tokens of a reply if the provider reports none.
func EstimateReply(r *toolcrib.Reply) int64 {
	return tokens(int64(len(appendMessage(nil, &r.Message))))
}

// RequestHash returns the hash of a step's request, given the offer that was sent with it, or "".
// Replay compares it with the journal's.
func RequestHash(s *State, step Step, offerHash string) string {
	if step.Condense != nil {
		return HashRequest(nil, SummaryRequest(s, step))
	}
	var specs []toolcrib.Spec
	if offerHash != "" {
		specs = make([]toolcrib.Spec, 1)
	}
	return HashRequest(s, BuildRequest(s, step, specs, offerHash))
}

// Rounds returns the number of the round that a request of this step belongs to.
func Rounds(s *State, step Step) int {
	if step.Closing {
		return s.Iterations
	}
	return s.Iterations + 1
}
