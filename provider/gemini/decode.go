package gemini

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// NoticeStopped is the code of the notice with the API's reason why a
// reply was stopped or a prompt blocked.
const NoticeStopped = "provider_stopped"

type decoder struct {
	model string // bare name of the requested model
	tools []string

	calls    int
	said     wire.Said
	finish   toolcrib.Finish
	reason   string // finishReason as sent
	message  string // finishMessage
	blocked  string // promptFeedback.blockReason
	text     wire.Runes
	thinking wire.Runes
}

// chunk is one GenerateContentResponse: of a stream, or a whole reply.
type chunk struct {
	Candidates []candidate             `json:"candidates"`
	Usage      wire.Optional[usage]    `json:"usageMetadata"`
	Feedback   wire.Optional[feedback] `json:"promptFeedback"`
	Model      string                  `json:"modelVersion"` // in every chunk
	ID         string                  `json:"responseId"`   // in every chunk
	Error      json.RawMessage         `json:"error"`
}

type feedback struct {
	Reason  string `json:"blockReason"`
	Message string `json:"blockReasonMessage"`
}

type candidate struct {
	Content struct {
		Parts []part `json:"parts"`
	} `json:"content"`
	Reason  string `json:"finishReason"`
	Message string `json:"finishMessage"`
}

// part is one part of a content; code, images and tools run by the API are ignored.
type part struct {
	Text      wire.Text           `json:"text"`
	Thought   bool                `json:"thought"`
	Signature string              `json:"thoughtSignature"`
	Snake     string              `json:"thought_signature"` // the spelling of some gateways
	Call      wire.Optional[call] `json:"functionCall"`
}

type call struct {
	ID   string          `json:"id"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

// usage has the numbers of tokens; each chunk has the sums so far, but not all of them.
type usage struct {
	Prompt   float64 `json:"promptTokenCount"`
	Cached   float64 `json:"cachedContentTokenCount"`
	Tool     float64 `json:"toolUsePromptTokenCount"`
	Answer   float64 `json:"candidatesTokenCount"`
	Thoughts float64 `json:"thoughtsTokenCount"`
}

func (d *decoder) Complete() bool { return d.reason != "" || d.blocked != "" }

// Frame decodes one chunk of a stream. The stream has no end marker, and chunks
// may follow the one with the reason, so it is read to its end.
func (d *decoder) Frame(f wire.Frame, emit wire.Emit) (alive, done bool, err error) {
	_, err = d.read(f.Data, emit)
	return true, false, err
}

// Whole decodes a reply that is not a stream; it has the form of one chunk.
func (d *decoder) Whole(body []byte, emit wire.Emit) error {
	known, err := d.read(body, emit)
	if err == nil && !known {
		return wire.NotAReply("content", body)
	}
	return err
}

// read decodes one GenerateContentResponse. known reports whether data was one.
func (d *decoder) read(data []byte, emit wire.Emit) (known bool, err error) {
	var k chunk
	if err := wire.Read(data, &k); err != nil {
		return false, err
	}
	known = k.Candidates != nil || k.Usage.Present || k.Feedback.Present
	if !known || len(k.Error) > 0 {
		if err := wire.Failure(data); err != nil {
			return known, err
		}
	}
	d.finish.Model, d.finish.RequestID = cmp.Or(d.finish.Model, k.Model), cmp.Or(d.finish.RequestID, k.ID)
	if k.Usage.Present {
		d.count(&k.Usage.Value)
	}
	f := &k.Feedback.Value
	if !strings.HasSuffix(f.Reason, "_UNSPECIFIED") {
		d.blocked = cmp.Or(f.Reason, d.blocked)
	}
	d.message = cmp.Or(f.Message, d.message)
	if len(k.Candidates) == 0 {
		return known, nil
	}
	c := &k.Candidates[0] // only one was requested
	before := d.reason
	if c.Reason != "FINISH_REASON_UNSPECIFIED" {
		d.reason = cmp.Or(c.Reason, d.reason)
	}
	d.message = cmp.Or(c.Message, d.message)
	for i := range c.Content.Parts {
		if err := d.say(&c.Content.Parts[i], emit); err != nil {
			return known, err
		}
	}
	if before == "" && d.reason == "MALFORMED_FUNCTION_CALL" {
		d.malformed(emit)
	}
	return known, nil
}

// say passes on the contents of a part. The signature of a text is passed on before the text,
// with the length of the text; see result.go.
func (d *decoder) say(p *part, emit wire.Emit) error {
	signature := cmp.Or(p.Signature, p.Snake)
	switch {
	case p.Call.Present:
		call := &p.Call.Value
		args := string(call.Args)
		if args == "" || args == "null" {
			args = "{}" // a call without arguments (N13)
		}
		if d.said.Again(d.reason != "", call.ID, call.Name, args) {
			return nil
		}
		return d.emitCall(&toolcrib.ToolCallDelta{
			ID: call.ID, Name: call.Name, Arguments: args, Signature: sealCall(d.model, signature),
		}, emit)
	case p.Thought:
		if s := d.thinking.Add(p.Text); s != "" {
			emit(toolcrib.Delta{Thinking: s})
		}
		if signature != "" {
			emit(toolcrib.Delta{Signature: signature})
		}
		return nil
	}
	s := d.text.Add(p.Text)
	if signature != "" {
		emit(toolcrib.Delta{Redacted: sealText(len(s), signature)})
	}
	if s != "" {
		emit(toolcrib.Delta{Text: s})
	}
	return nil
}

func (d *decoder) emitCall(delta *toolcrib.ToolCallDelta, emit wire.Emit) error {
	if d.calls == wire.MaxCalls {
		return wire.TooManyCalls()
	}
	delta.Index = d.calls
	d.calls++
	emit(toolcrib.Delta{ToolCall: delta})
	return nil
}

// malformed passes on a call that the model wrote and the API could not read. It
// has the API's message instead of arguments, so that the loop refuses it
// (parse_error) and the model can fix it. Without tools there is nothing to fix.
func (d *decoder) malformed(emit wire.Emit) {
	if len(d.tools) == 0 {
		return
	}
	said := d.message
	if said == "" {
		said = "malformed function call"
	}
	// There are fewer calls than MaxCalls: a reply with more has failed before.
	_ = d.emitCall(&toolcrib.ToolCallDelta{Name: calledTool(said, d.tools), Arguments: said}, emit)
}

// calledTool returns the tool that a text such as print(default_api.f(x=1)) calls.
func calledTool(said string, tools []string) string {
	words := strings.FieldsFunc(said, func(r rune) bool {
		return r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
	if i := slices.IndexFunc(words, func(w string) bool { return slices.Contains(tools, w) }); i >= 0 {
		return words[i]
	}
	return ""
}

func (d *decoder) count(now *usage) {
	u := &d.finish.Usage
	answer := max(u.OutputTokens-u.ReasoningTokens, wire.Int(now.Answer), 0)
	u.ReasoningTokens = max(u.ReasoningTokens, wire.Int(now.Thoughts))
	u.OutputTokens = answer + u.ReasoningTokens
	u.InputTokens = max(u.InputTokens, wire.Int(max(now.Prompt, 0)+max(now.Tool, 0)))
	u.CachedInputTokens = min(max(u.CachedInputTokens, wire.Int(now.Cached)), u.InputTokens)
	u.Reported = true
}

// Finish maps the reason to a toolcrib.Finish.
func (d *decoder) Finish() toolcrib.Finish {
	f := d.finish
	reason := d.reason
	if reason == "" {
		reason = d.blocked
		f.Reason = toolcrib.FinishFiltered
	} else {
		f.Reason = d.mapped()
	}
	if f.Reason == toolcrib.FinishFiltered || f.Reason == toolcrib.FinishOther || reason == "MALFORMED_FUNCTION_CALL" {
		said := reason
		if d.message != "" {
			said += ": " + wire.Line(d.message)
		}
		f.Notices = []toolcrib.Notice{wire.Notice(NoticeStopped, "the API ended the reply: %s", wire.Line(said))}
	}
	return f
}

func (d *decoder) mapped() toolcrib.FinishReason {
	switch d.reason {
	case "STOP":
		if d.calls > 0 {
			return toolcrib.FinishToolCalls
		}
		return toolcrib.FinishStop
	case "MALFORMED_FUNCTION_CALL":
		if d.calls > 0 {
			return toolcrib.FinishToolCalls
		}
		return toolcrib.FinishOther
	case "MAX_TOKENS":
		return toolcrib.FinishLength
	case "SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR",
		"IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION":
		return toolcrib.FinishFiltered
	}
	return toolcrib.FinishOther
}
