package modeltest

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/toolcrib/toolcrib"
)

// play answers one request with one step.
func (s *Server) play(w http.ResponseWriter, r *http.Request, step Step, body []byte) {
	if s.dialect == Gemini {
		body = geminiAsk(r)
	}
	if !sleep(r, step.Latency) {
		return
	}
	if step.Hang {
		<-r.Context().Done()
		return
	}
	for name, value := range step.Header {
		w.Header().Set(name, value)
	}
	if step.Status != 0 && !step.MidStream {
		s.fail(w, step.Status, step.ErrorType, step.ErrorText)
		return
	}
	frames, kind := s.frames(step, body)
	w.Header().Set("Content-Type", kind)
	if step.Cut == 0 && kind != s.dialect.streamType() {
		w.Header().Set("Content-Length", strconv.Itoa(len(frames[0])))
	}
	flush := http.NewResponseController(w)
	sent := 0
	for i, f := range frames {
		if i > 0 && step.TokenTime > 0 {
			_ = flush.Flush()
			if !sleep(r, step.TokenTime) {
				return
			}
		}
		if step.Cut > 0 && sent+len(f) >= step.Cut {
			_, _ = w.Write(f[:step.Cut-sent])
			_ = flush.Flush()
			panic(http.ErrAbortHandler) // ends the connection in the middle
		}
		if _, err := w.Write(f); err != nil {
			return
		}
		sent += len(f)
	}
}

const (
	streamType = "text/event-stream"
	jsonType   = "application/json"
)

func sleep(r *http.Request, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-r.Context().Done():
		return false
	}
}

func (s *Server) frames(step Step, body []byte) (frames [][]byte, contentType string) {
	if step.Raw != nil {
		if contentType = step.ContentType; contentType == "" {
			contentType = s.dialect.streamType()
		}
		return [][]byte{step.Raw}, contentType
	}
	var ask struct {
		Stream bool `json:"stream"`
	}
	_ = json.Unmarshal(body, &ask) // a body that is not JSON was refused before
	if !ask.Stream {
		return [][]byte{s.dialect.JSON(step.Reply)}, jsonType
	}
	chunk := s.opts.ChunkBytes
	if chunk <= 0 {
		chunk = 16
	}
	frames = s.dialect.Frames(step.Reply, chunk)
	if step.MidStream {
		failed := s.dialect.errorBody(step.ErrorType, step.ErrorText)
		if s.dialect == Anthropic {
			failed = sseEvent("error", failed)
		} else if s.dialect == Ollama {
			failed = append(failed, '\n')
		} else if s.dialect == Responses {
			failed = responsesError(step.ErrorType, step.ErrorText)
		} else {
			failed = sseEvent("", failed)
		}
		frames = append(frames[:len(frames)/2], failed)
	}
	return frames, s.dialect.streamType()
}

// JSON encodes a reply in one piece.
func (d Dialect) JSON(r toolcrib.Reply) []byte {
	if d == Anthropic {
		return anthropicJSON(r)
	}
	if d == Ollama {
		return ollamaJSON(r)
	}
	if d == Responses {
		return responsesJSON(r)
	}
	if d == Gemini {
		return geminiJSON(r)
	}
	return openAIJSON(r)
}

// Frames encodes a reply as server-sent events, with at most chunk bytes of text
// in one.
func (d Dialect) Frames(r toolcrib.Reply, chunk int) [][]byte {
	if d == Anthropic {
		return anthropicFrames(r, chunk)
	}
	if d == Ollama {
		return ollamaFrames(r, chunk)
	}
	if d == Responses {
		return responsesFrames(r, chunk)
	}
	if d == Gemini {
		return geminiFrames(r, chunk)
	}
	return openAIFrames(r, chunk)
}

func sseEvent(name string, data []byte) []byte {
	out := make([]byte, 0, len(data)+len(name)+16)
	if name != "" {
		out = append(append(append(out, "event: "...), name...), '\n')
	}
	return append(append(append(out, "data: "...), data...), "\n\n"...)
}

// pieces cuts a text into pieces of about n bytes, at characters.
func pieces(s string, n int) []string {
	var out []string
	start := 0
	for i := range s {
		if i-start >= n {
			out = append(out, s[start:i])
			start = i
		}
	}
	if start < len(s) {
		out = append(out, s[start:])
	}
	return out
}

func reasonOf(r toolcrib.Reply) toolcrib.FinishReason {
	switch {
	case r.Finish.Reason != "":
		return r.Finish.Reason
	case len(r.Message.ToolCalls()) > 0:
		return toolcrib.FinishToolCalls
	}
	return toolcrib.FinishStop
}

func modelOf(r toolcrib.Reply) string {
	if r.Finish.Model != "" {
		return r.Finish.Model
	}
	return "model-a"
}

// arguments are sent as a string, {} for none.
func arguments(c *toolcrib.ToolCall) string {
	switch {
	case c.Broken != "":
		return c.Broken
	case len(c.Arguments) == 0:
		return "{}"
	}
	return string(c.Arguments)
}
