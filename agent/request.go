package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"mime"
	"slices"
	"strconv"
	"strings"

	"github.com/toolcrib/toolcrib"
)

// buildRequest makes the provider-neutral request of a step. specs are the offered tools, if any. It
// is pure.
func buildRequest(s *State, step Step, specs []toolcrib.Spec, offerHash string) *toolcrib.Request {
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

// requestHash is SHA-256 over the whole input of the model, in a fixed layout of fields with their
// lengths. Only new messages are hashed: the state has the digest of the others. For a request that is
// not part of the conversation, s is nil.
func requestHash(s *State, req *toolcrib.Request) string {
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

// estimateReply estimates the output tokens of a reply if the provider reports none.
func estimateReply(r *toolcrib.Reply) int64 {
	return tokens(int64(len(appendMessage(nil, &r.Message))))
}

// canonicalEmpty is the arguments of a call without any (N13).
var canonicalEmpty = json.RawMessage("{}")

// RequestHash returns the hash of a step's request, given the offer that was sent with it, or "".
// Replay compares it with the journal's.
func RequestHash(s *State, step Step, offerHash string) string {
	if step.Condense != nil {
		return requestHash(nil, summaryRequest(s, step))
	}
	var specs []toolcrib.Spec
	if offerHash != "" {
		specs = make([]toolcrib.Spec, 1)
	}
	return requestHash(s, buildRequest(s, step, specs, offerHash))
}

// Rounds returns the number of the round that a request of this step belongs to.
func Rounds(s *State, step Step) int {
	if step.Closing {
		return s.Iterations
	}
	return s.Iterations + 1
}

// attachmentSource is the name of attached files as a source of untrusted data.
const attachmentSource = "attachment"

// Limits on the files of one task.
const (
	maxTaskFiles    = 16
	maxHistoryFiles = 64
)

// checkFiles refuses files that no request can contain.
func checkFiles(task *Task) error {
	files := task.allFiles()
	if n := len(task.Files); n > maxTaskFiles {
		return usagef("%d files are attached, at most %d can be", n, maxTaskFiles)
	}
	if n := len(files) - len(task.Files); n > maxHistoryFiles {
		return usagef("%d files are attached to earlier messages, at most %d can be", n, maxHistoryFiles)
	}
	for i, f := range files {
		if why := unfit(f); why != "" {
			return usagef("attached file %d (%s) %s", i+1, f.Name, why)
		}
	}
	return nil
}

// allFiles returns the files of the prompt, followed by those of the history.
func (t *Task) allFiles() []toolcrib.OutputFile {
	all := slices.Clip(t.Files)
	for i := range t.History {
		all = append(all, t.HistoryFiles[i]...)
	}
	return all
}

// place adds files to their messages in the history, and returns those of the prompt.
func (t *Task) place(parts []toolcrib.Part) (prompt []toolcrib.Part) {
	prompt, rest := parts[:len(t.Files)], parts[len(t.Files):]
	if len(rest) == 0 {
		return prompt
	}
	t.History = slices.Clone(t.History)
	for i := range t.History {
		m, n := &t.History[i], len(t.HistoryFiles[i])
		m.Parts = append(slices.Clip(m.Parts), rest[:n]...)
		rest = rest[n:]
	}
	return prompt
}

// unfit returns the reason why a file cannot be part of a transcript, or "".
func unfit(f toolcrib.OutputFile) string {
	if _, _, err := mime.ParseMediaType(f.MediaType); err != nil || !strings.Contains(f.MediaType, "/") {
		return fmt.Sprintf("has no usable media type (%q)", f.MediaType)
	}
	switch {
	case len(f.Data) == 0:
		return "is empty"
	case len(f.Data) > toolcrib.MaxFileBytes:
		return fmt.Sprintf("has %d bytes, at most %d can be sent", len(f.Data), toolcrib.MaxFileBytes)
	}
	return ""
}

// keptFile is a file to be stored in the content store.
type keptFile struct {
	ref  string // unique in the run
	data []byte
}

// reference makes the part of a transcript that refers to a file. It names the run that stores the
// file, because later runs of the session have it in their transcripts too.
func (r *Runner) reference(run toolcrib.RunID, ref string, f toolcrib.OutputFile) (toolcrib.File, keptFile) {
	data := f.Data
	if isText(f.MediaType) {
		data = []byte(r.Mask.Clean(string(data)))
	}
	return toolcrib.File{
		Ref: string(run) + "/" + ref, MediaType: f.MediaType, Name: r.Mask.Clean(f.Name), Bytes: int64(len(data)),
	}, keptFile{ref: ref, data: data}
}

// isText reports whether a file of this media type is read as text.
func isText(media string) bool {
	kind, _, err := mime.ParseMediaType(media)
	if err != nil {
		return false
	}
	_, suffix, _ := strings.Cut(kind, "+")
	return strings.HasPrefix(kind, "text/") || suffix == "json" || suffix == "xml" ||
		slices.Contains([]string{"application/json", "application/xml", "application/yaml"}, kind)
}

// attach stores the files of a task in the content store, before the run begins.
func (r *Runner) attach(ctx context.Context, run toolcrib.RunID, files []toolcrib.OutputFile) ([]toolcrib.Part, error) {
	var parts []toolcrib.Part
	for i, f := range files {
		file, kept := r.reference(run, fmt.Sprintf("file_%d", i+1), f)
		if err := r.Contents.Put(ctx, run, kept.ref, kept.data); err != nil {
			return nil, fmt.Errorf("store the attached file %s: %w", f.Name, err)
		}
		parts = append(parts, toolcrib.Part{File: &file})
	}
	return parts, nil
}

// openFile returns the file that a reference refers to.
func (r *Runner) openFile(ctx context.Context, ref string) ([]byte, error) {
	run, key, ok := strings.Cut(ref, "/")
	if !ok {
		return nil, fmt.Errorf("file %q: %w", ref, toolcrib.ErrNotFound)
	}
	data, size, err := r.Contents.Range(ctx, toolcrib.RunID(run), key, 0, toolcrib.MaxFileBytes)
	if err == nil && size > toolcrib.MaxFileBytes {
		err = fmt.Errorf("file %s has %d bytes, at most %d can be sent", ref, size, toolcrib.MaxFileBytes)
	}
	return data, err
}

// files returns the files of an output that can be shown to a model. Its text mentions those left out.
func (x *execution) files(f *flight, ref string, out *toolcrib.Output) []toolcrib.File {
	var files []toolcrib.File
	left := ""
	for i, file := range out.Files {
		why := unfit(file)
		if why == "" && len(files) == toolcrib.MaxOutputFiles {
			why = fmt.Sprintf("is one too many: a result has at most %d", toolcrib.MaxOutputFiles)
		}
		if why != "" {
			left += fmt.Sprintf("\n[file %d of this result was left out: it %s]", i+1, why)
			continue
		}
		shown, kept := x.d.r.reference(x.d.s.Run, fmt.Sprintf("%s_%d", ref, i+1), file)
		files = append(files, shown)
		f.files = append(f.files, kept)
	}
	if left != "" && out.JSON == nil {
		out.Text += left
	}
	return files
}
