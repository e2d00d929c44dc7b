package modeltest

import (
	"bytes"
	"io"
	"net/http"
	"strings"
)

// This file holds what the dialects of servers on one's own machine, Ollama and
// llama-server, do in their own way.

const ndjsonType = "application/x-ndjson"

// streamType is the content type of a stream.
func (d Dialect) streamType() string {
	if d == Ollama {
		return ndjsonType
	}
	return streamType
}

// frame makes one frame of a stream.
func (d Dialect) frame(data []byte) []byte {
	if d == Ollama {
		return append(bytes.Clone(data), '\n')
	}
	return sseEvent("", data)
}

// endless are ways to continue with a stream for size bytes and more, without an
// end; text is a frame with text.
func (d Dialect) endless(text []byte, size int) map[string][]byte {
	repeat := func(piece string) []byte { return bytes.Repeat([]byte(piece), 1+size/len(piece)) }
	if d == Ollama {
		return map[string][]byte{
			"text": repeat(string(text)), "one line": append([]byte(`{"message":{"content":"`), repeat("a")...), "blank lines": repeat("\n"),
		}
	}
	return map[string][]byte{
		"text": repeat(string(text)), "one line": append([]byte(`data: "`), repeat("a")...), "comments": repeat(": ping\n\n"), "data lines": repeat("data:\n"),
	}
}

// statusOfKind is the HTTP status that a kind of error has where an API tells
// kinds by their status.
func statusOfKind(kind string) int {
	switch kind {
	case "authentication_error":
		return http.StatusUnauthorized
	case "permission_error":
		return http.StatusForbidden
	case "not_found_error":
		return http.StatusNotFound
	case "request_too_large":
		return http.StatusRequestEntityTooLarge
	case "rate_limit_error":
		return http.StatusTooManyRequests
	case "overloaded_error", "unavailable_error":
		return http.StatusServiceUnavailable
	case "api_error", "server_error":
		return http.StatusInternalServerError
	}
	return http.StatusBadRequest
}

// localError is an error in the shape of d. Ollama's is a text; with the status
// beside it, as it passes on those of ollama.com.
func localError(d Dialect, kind, message string) []byte {
	status := statusOfKind(kind)
	if d == Ollama {
		return encode(map[string]any{"StatusCode": status, "Status": http.StatusText(status), "error": message})
	}
	return encode(map[string]any{"error": map[string]any{"code": status, "type": kind, "message": message}})
}

// localRoutes adds what only servers of these dialects have beside their chat.
func (s *Server) localRoutes(mux *http.ServeMux) {
	answer := func(pattern, body string) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, maxRequest))
			if !s.authorized(r) {
				s.fail(w, http.StatusUnauthorized, "authentication_error", "unauthorized")
				return
			}
			w.Header().Set("Content-Type", jsonType)
			_, _ = io.WriteString(w, body)
		})
	}
	switch s.dialect {
	case Ollama:
		answer("GET /api/tags", `{"models":[{"name":"model-a","model":"model-a","size":1},{"name":"model-b","model":"model-b","size":2}]}`)
		answer("POST /api/show", OllamaShow("completion", "tools", "vision", "thinking"))
	case LlamaCpp:
		answer("GET /health", `{"status":"ok"}`)
		answer("GET /props", LlamaCppProps(true))
	}
}

// OllamaShow is an answer of /api/show for a model with these capabilities.
func OllamaShow(capabilities ...string) string {
	return `{"license":"","parameters":"stop                           \"<|eot_id|>\"\nnum_ctx                        8192","details":{"family":"llama","families":["llama"]},` +
		`"model_info":{"general.architecture":"llama","llama.attention.head_count":32,"llama.context_length":131072},"capabilities":["` + strings.Join(capabilities, `","`) + `"]}`
}

// LlamaCppProps is an answer of /props for a model whose chat template knows
// tools, or does not.
func LlamaCppProps(tools bool) string {
	known := "false"
	if tools {
		known = "true"
	}
	return `{"default_generation_settings":{"n_ctx":8192},"total_slots":4,"model_path":"model-a.gguf","modalities":{"vision":true,"audio":false},` +
		`"chat_template_caps":{"supports_tools":` + known + `,"supports_tool_calls":` + known + `,"supports_parallel_tool_calls":true},"build_info":"b9000-test"}`
}
