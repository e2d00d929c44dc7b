package modeltest

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/toolcrib/toolcrib"
)

func (s *Server) geminiHandler() http.Handler {
	mux := http.NewServeMux()
	for _, version := range []string{"", "/v1", "/v1beta"} {
		mux.HandleFunc("POST "+version+"/models/{call...}", s.serveGemini)
		mux.HandleFunc("GET "+version+"/models", s.geminiModels)
	}
	return mux
}

func (s *Server) serveGemini(w http.ResponseWriter, r *http.Request) {
	model, method := geminiCall(r)
	stream := method == "streamGenerateContent"
	if model == "" || !stream && method != "generateContent" || stream != (r.URL.Query().Get("alt") == "sse") {
		s.fail(w, http.StatusNotFound, "not_found_error", "no such method: "+r.URL.Path)
		return
	}
	s.serve(w, r)
}

// geminiCall splits MODEL:METHOD.
func geminiCall(r *http.Request) (model, method string) {
	call := r.PathValue("call")
	at := strings.LastIndexByte(call, ':')
	if at < 0 {
		return "", ""
	}
	return call[:at], call[at+1:]
}

// geminiAsk says in the words of the other dialects whether a stream was asked
// for: this API says so in the path.
func geminiAsk(r *http.Request) []byte {
	_, method := geminiCall(r)
	return encode(map[string]any{"stream": method == "streamGenerateContent"})
}

func geminiTurns(body []byte) (n int) {
	var doc struct {
		Contents []struct {
			Role string `json:"role"`
		} `json:"contents"`
	}
	if json.Unmarshal(body, &doc) != nil {
		return 0
	}
	for _, c := range doc.Contents {
		if c.Role == "model" {
			n++
		}
	}
	return n
}

func (s *Server) geminiModels(w http.ResponseWriter, r *http.Request) {
	if !s.authorized(r) {
		s.fail(w, http.StatusUnauthorized, "authentication_error", "API key not valid. Please pass a valid API key.")
		return
	}
	w.Header().Set("Content-Type", jsonType)
	_, _ = io.WriteString(w, `{"models":[{"name":"models/model-a","supportedGenerationMethods":["generateContent","countTokens"]},{"name":"models/model-b","supportedGenerationMethods":["generateContent"]},{"name":"models/embedding","supportedGenerationMethods":["embedContent"]}]}`)
}

// geminiError is the body of an error. kind is a name of the other dialects.
func geminiError(kind, message string) []byte {
	code, status := 400, "INVALID_ARGUMENT"
	switch kind {
	case "authentication_error":
		code, status = 401, "UNAUTHENTICATED"
	case "permission_error":
		code, status = 403, "PERMISSION_DENIED"
	case "not_found_error":
		code, status = 404, "NOT_FOUND"
	case "rate_limit_error":
		code, status = 429, "RESOURCE_EXHAUSTED"
	case "api_error":
		code, status = 500, "INTERNAL"
	case "overloaded_error":
		code, status = 503, "UNAVAILABLE"
	}
	return encode(map[string]any{"error": map[string]any{"code": code, "message": message, "status": status}})
}

func geminiReason(r toolcrib.Reply) string {
	switch reasonOf(r) {
	case toolcrib.FinishLength:
		return "MAX_TOKENS"
	case toolcrib.FinishFiltered:
		return "SAFETY"
	case toolcrib.FinishOther:
		return "OTHER"
	}
	return "STOP"
}

// geminiUsage counts reasoning beside the answer, not in it.
func geminiUsage(u toolcrib.TokenUsage) map[string]any {
	usage := map[string]any{
		"promptTokenCount": u.InputTokens, "candidatesTokenCount": u.OutputTokens - u.ReasoningTokens,
		"totalTokenCount": u.InputTokens + u.OutputTokens,
	}
	if u.CachedInputTokens > 0 {
		usage["cachedContentTokenCount"] = u.CachedInputTokens
	}
	if u.ReasoningTokens > 0 {
		usage["thoughtsTokenCount"] = u.ReasoningTokens
	}
	return usage
}

// geminiParts cuts texts into pieces of chunk bytes; 0 = not at all. A Redacted
// is a signature on an empty text.
func geminiParts(r toolcrib.Reply, chunk int) []map[string]any {
	parts := []map[string]any{}
	each := func(text string, thought bool) {
		if chunk <= 0 {
			chunk = max(len(text), 1)
		}
		for _, s := range pieces(text, chunk) {
			p := map[string]any{"text": s}
			if thought {
				p["thought"] = true
			}
			parts = append(parts, p)
		}
	}
	sign := func(p map[string]any, signature string) {
		if signature != "" {
			p["thoughtSignature"] = signature
		}
	}
	for i := range r.Message.Parts {
		p := &r.Message.Parts[i]
		switch {
		case p.Thinking != nil && p.Thinking.Redacted != "":
			parts = append(parts, map[string]any{"text": "", "thoughtSignature": p.Thinking.Redacted})
		case p.Thinking != nil:
			each(p.Thinking.Text, true)
			if len(parts) > 0 {
				sign(parts[len(parts)-1], p.Thinking.Signature)
			}
		case p.ToolCall != nil:
			call := map[string]any{"name": p.ToolCall.Name, "args": input(p.ToolCall)}
			if p.ToolCall.ID != "" {
				call["id"] = p.ToolCall.ID
			}
			one := map[string]any{"functionCall": call}
			sign(one, p.ToolCall.Signature)
			parts = append(parts, one)
		default:
			each(p.Text, false)
		}
	}
	return parts
}

func geminiDoc(r toolcrib.Reply, parts []map[string]any, reason string) map[string]any {
	candidate := map[string]any{"index": 0, "content": map[string]any{"role": "model", "parts": parts}}
	if reason != "" {
		candidate["finishReason"] = reason
	}
	doc := map[string]any{"candidates": []any{candidate}, "modelVersion": modelOf(r), "responseId": "resp_test"}
	if r.Finish.Usage.Reported {
		doc["usageMetadata"] = geminiUsage(r.Finish.Usage)
	}
	return doc
}

func geminiJSON(r toolcrib.Reply) []byte {
	return encode(geminiDoc(r, geminiParts(r, 0), geminiReason(r)))
}

func geminiFrames(r toolcrib.Reply, chunk int) [][]byte {
	var frames [][]byte
	for _, p := range geminiParts(r, chunk) {
		frames = append(frames, sseEvent("", encode(geminiDoc(r, []map[string]any{p}, ""))))
	}
	return append(frames, sseEvent("", encode(geminiDoc(r, []map[string]any{{"text": ""}}, geminiReason(r)))))
}
