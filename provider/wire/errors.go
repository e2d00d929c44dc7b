package wire

import (
	"bytes"
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
)

// Bounds of the parts of an error.
const (
	maxMessage    = 300     // bytes of ModelError.Message
	maxDetail     = 8 << 10 // bytes of ModelError.Detail
	maxErrorBody  = 64 << 10
	maxRetryAfter = 24 * time.Hour
)

// Classify returns the class of an error from the HTTP status (0 for an error
// event inside a stream) and the API's error. Type and code have precedence
// over the status; the message is only searched for a context that is too
// long, which several APIs report in no other way, and if there is no status.
func Classify(status int, e APIError) toolcrib.ErrorClass {
	tooLong := false // the message may report a context that is too long
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired, http.StatusPaymentRequired:
		return toolcrib.ErrAuth
	case 0, http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusInternalServerError:
		tooLong = true
	}
	if c := classOfWord(e.Code); c != "" {
		return c
	}
	if c := classOfWord(e.Type); c != "" && (c != toolcrib.ErrOverloaded || !faultOfRequest(status)) {
		return c
	}
	switch {
	case status == http.StatusRequestEntityTooLarge, tooLong && Says(e.Message, contextPhrases[:]...):
		return toolcrib.ErrContextLength
	case status == http.StatusTooManyRequests:
		return toolcrib.ErrRateLimit
	case status == http.StatusRequestTimeout, status == http.StatusGatewayTimeout, status == 524:
		return toolcrib.ErrTimeout
	case status >= 500:
		return toolcrib.ErrOverloaded
	case status >= 400, slices.Contains(badRequests[:], e.Type):
		return toolcrib.ErrBadRequest
	case status > 0:
	case Says(e.Message, "too many requests", "rate limit", "rate_limit"):
		return toolcrib.ErrRateLimit
	case Says(e.Message, "insufficient balance", "insufficient_balance", "invalid api key", "incorrect api key"):
		return toolcrib.ErrAuth
	case Says(e.Message, "overloaded", "temporarily unavailable"):
		return toolcrib.ErrOverloaded
	}
	return toolcrib.ErrOther
}

// badRequests are types of errors inside a stream, which have no status.
var badRequests = [...]string{
	"invalid_request_error", "not_found_error", "INVALID_ARGUMENT", "FAILED_PRECONDITION", "NOT_FOUND", "OUT_OF_RANGE",
	"UNIMPLEMENTED",
}

// faultOfRequest reports whether a status means that the request is at fault, even
// if the type is api_error for every error, as Ollama's is.
func faultOfRequest(status int) bool {
	return status == http.StatusBadRequest || status == http.StatusNotFound || status == http.StatusUnprocessableEntity
}

func classOfWord(word string) toolcrib.ErrorClass {
	switch strings.ToLower(word) {
	case "context_length_exceeded", "exceed_context_size_error", "model_context_window_exceeded", "request_too_large":
		return toolcrib.ErrContextLength
	case "invalid_api_key", "authentication_error", "permission_error", "invalid_authentication",
		"insufficient_quota", "billing_error", "account_deactivated",
		"unauthenticated", "permission_denied": // these, and others in upper case, are names of google.rpc.Code
		return toolcrib.ErrAuth
	case "rate_limit_error", "rate_limit_exceeded", "rate_limit", "tokens", "requests", "resource_exhausted":
		return toolcrib.ErrRateLimit
	case "overloaded_error", "engine_overloaded", "server_error", "api_error", "internal_server_error",
		"service_unavailable", "unavailable_error", "unavailable", "internal", "aborted", "unknown":
		return toolcrib.ErrOverloaded
	case "timeout_error", "timeout", "deadline_exceeded":
		return toolcrib.ErrTimeout
	case "content_filter", "content_policy_violation", "responsibleaipolicyviolation", "invalid_prompt", "cyber_policy":
		return toolcrib.ErrRefused
	}
	return ""
}

// Says reports whether a message contains one of the phrases, which are in lower case.
func Says(message string, phrases ...string) bool {
	m := strings.ToLower(message)
	return slices.ContainsFunc(phrases, func(phrase string) bool { return strings.Contains(m, phrase) })
}

var contextPhrases = [...]string{
	"prompt is too long", "maximum context length", "context length exceeded", "longer than the context length",
	"exceeds the context length", "exceed_context_size", "exceeds the maximum number of tokens",
	"exceeds the context window", "context window exceeded", "exceed context limit",
	"exceeds the available context size", "input is too long", "too many tokens in the prompt",
	"reduce the length of the messages",
}

// noToolsPhrases are phrases with which APIs report that a model does not support tools.
// They have no error code for it. Lower case.
var noToolsPhrases = [...]string{
	"does not support tools",                        // Ollama
	"does not support tool calling",                 // several
	"does not support function calling",             // several
	"does not support tool use",                     // several
	"`tool calling` is not supported",               // Groq
	"tools are not supported",                       // several
	"tools is not supported",                        // OpenAI
	"'tools' is not supported",                      // OpenAI: Unsupported parameter
	"tool use is not supported",                     // several
	"tool calling is not supported",                 // Groq
	"function calling is not supported",             // Together
	"function calling is not enabled for",           // Mistral, Gemini
	"tool use is not enabled for",                   // Gemini
	"function calling is unsupported for",           // Gemini
	"tool use with function calling is unsupported", // Gemini
	"support tool use",                              // OpenRouter: No endpoints found that support tool use
	"requires --enable-auto-tool-choice",            // vLLM without a tool parser
	"tools param requires --jinja flag",             // llama.cpp
}

// SaysNoTools reports whether the message of an error says that the model, as it is
// served, does not support tools at all. A rejected tool choice, or a parameter that is
// rejected together with tools, is a different error.
func SaysNoTools(message string) bool {
	// With these phrases, tools are only rejected in combination with something else.
	return !Says(message, "reasoning_effort", "response_format", "mime type") && Says(message, noToolsPhrases[:]...)
}

// StatusError returns the error of a response whose status is not a success.
func StatusError(status int, h http.Header, body []byte) *toolcrib.ModelError {
	e, _ := ParseAPIError(body)
	class := Classify(status, e)
	if e.Message == "" {
		e.Message = plainBody(h.Get("Content-Type"), body)
	}
	return &toolcrib.ModelError{
		Class: class, Status: status, NoTools: class == toolcrib.ErrBadRequest && SaysNoTools(e.Message),
		RetryAfter: RetryAfter(h, time.Now()), Message: statusMessage(status, Line(e.Message)),
		Detail: Clip(string(body), maxDetail),
	}
}

// EventError returns the error of an error object inside a reply that began without one.
func EventError(body []byte) *toolcrib.ModelError {
	e, _ := ParseAPIError(body)
	class := Classify(0, e)
	for _, code := range [...]string{e.Code, e.Type} {
		if n, err := strconv.Atoi(code); class == toolcrib.ErrOther && err == nil && n >= 400 && n < 600 {
			class = Classify(n, APIError{})
		}
	}
	return &toolcrib.ModelError{
		Class: class, NoTools: SaysNoTools(e.Message), Detail: Clip(string(body), maxDetail),
		Message: cmp.Or(Line(e.Message), Line(string(body)), "the stream ended with an error"),
	}
}

func isPage(contentType string, body []byte) bool {
	return strings.Contains(strings.ToLower(contentType), "html") || bytes.HasPrefix(bytes.TrimSpace(body), []byte("<"))
}

func statusMessage(status int, said string) string {
	head := "HTTP " + strconv.Itoa(status)
	if said != "" {
		head += ": " + said
	}
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return head + " (check api_key)"
	case http.StatusProxyAuthRequired:
		return head + " (check proxy)"
	case http.StatusNotFound:
		return head + " (check base_url and the model's name)"
	}
	return head
}

// RetryAfter returns how long the API asks to wait: retry-after-ms, Retry-After in
// seconds (also fractions) or as a date (RFC 9110 §10.2.3), and the reset times of
// the x-ratelimit headers, such as 6m0s. It is at most a day, and 0 if the API does not ask.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	if d := numberOf(h.Get("Retry-After-Ms"), time.Millisecond); d > 0 {
		return d
	}
	if v := h.Get("Retry-After"); v != "" {
		if d := numberOf(v, time.Second); d > 0 {
			return d
		}
		if t, err := http.ParseTime(v); err == nil {
			return clampWait(t.Sub(now))
		}
	}
	var longest time.Duration
	for _, kind := range [...]string{"Requests", "Tokens"} {
		// Only a limit that is used up is waited for.
		if h.Get("X-Ratelimit-Remaining-"+kind) == "0" {
			longest = max(longest, duration(h.Get("X-Ratelimit-Reset-"+kind)))
		}
	}
	return longest
}

func duration(v string) time.Duration {
	if d, err := time.ParseDuration(v); err == nil {
		return clampWait(d)
	}
	return numberOf(v, time.Second)
}

func numberOf(v string, unit time.Duration) time.Duration {
	f, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
	if err != nil || !(f > 0) {
		return 0
	}
	if f > float64(maxRetryAfter)/float64(unit) {
		return maxRetryAfter
	}
	return clampWait(time.Duration(f * float64(unit)))
}

func clampWait(d time.Duration) time.Duration { return min(max(d, 0), maxRetryAfter) }

// Line returns the first line of a provider's message, shortened and printable. Text that
// looks like a key is removed: some APIs repeat a rejected key.
func Line(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if i := strings.IndexAny(s, "\r\n"); i >= 0 {
		s = s[:i]
	}
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) && r != ' ' {
			return ' '
		}
		return r
	}, s)
	return Clip(guard.RedactText(strings.Join(strings.Fields(s), " ")), maxMessage)
}

// Clip shortens s to at most n bytes, cut between characters.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return guard.Clip(s, n-len("…"))
}
