package gemini

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// refine reads what only this API says in this way. A key that is refused comes
// as a bad request, a context that is too long in words only, and the time to
// wait inside the body (google.rpc.RetryInfo).
func refine(err error) error {
	var e *toolcrib.ModelError
	if !errors.As(err, &e) {
		return err
	}
	if e.Class == toolcrib.ErrOther && e.Status < 400 {
		if class := classOfStatus(member(e.Detail, `"status"`)); class != "" {
			e.Class = class
		}
	}
	switch {
	case e.Class == toolcrib.ErrBadRequest && badKey(e):
		e.Class = toolcrib.ErrAuth
		e.Message += " (check api_key)"
	case e.Class == toolcrib.ErrBadRequest && tooLong(e):
		e.Class = toolcrib.ErrContextLength
	case e.Class == toolcrib.ErrBadRequest && saysNoFunctions(e.Message):
		e.NoTools = true
	case e.Status == 499: // CANCELLED: by the API, since the caller is still here
		e.Class = toolcrib.ErrOverloaded
	}
	if e.RetryAfter == 0 && e.Class.Retryable() {
		e.RetryAfter = retryDelay(e.Detail)
	}
	return err
}

func badKey(e *toolcrib.ModelError) bool {
	return strings.Contains(e.Detail, "API_KEY_INVALID") || strings.Contains(strings.ToLower(e.Message), "api key not valid") ||
		strings.Contains(strings.ToLower(e.Message), "api key expired")
}

func tooLong(e *toolcrib.ModelError) bool {
	m := strings.ToLower(e.Message)
	return strings.Contains(m, "exceeds the maximum number of tokens") || strings.Contains(m, "input token count") && strings.Contains(m, "exceed")
}

func saysNoFunctions(message string) bool {
	m := strings.ToLower(message)
	return strings.Contains(m, "function calling is not enabled for") || strings.Contains(m, "tool use is not enabled for") ||
		strings.Contains(m, "function calling is unsupported for") || strings.Contains(m, "tool use with function calling is unsupported") && !strings.Contains(m, "mime type")
}

// classOfStatus maps the names of google.rpc.Code, for errors that came without
// an HTTP status.
func classOfStatus(status string) toolcrib.ErrorClass {
	switch status {
	case "UNAUTHENTICATED", "PERMISSION_DENIED":
		return toolcrib.ErrAuth
	case "RESOURCE_EXHAUSTED":
		return toolcrib.ErrRateLimit
	case "UNAVAILABLE", "INTERNAL", "ABORTED", "UNKNOWN":
		return toolcrib.ErrOverloaded
	case "DEADLINE_EXCEEDED":
		return toolcrib.ErrTimeout
	case "INVALID_ARGUMENT", "FAILED_PRECONDITION", "NOT_FOUND", "OUT_OF_RANGE", "UNIMPLEMENTED":
		return toolcrib.ErrBadRequest
	}
	return ""
}

// retryDelay finds "retryDelay": "34.07s". The body may have been cut, so it is
// not read as JSON.
func retryDelay(detail string) time.Duration {
	value, ok := strings.CutSuffix(member(detail, `"retryDelay"`), "s")
	if !ok {
		return 0
	}
	return wire.RetryAfter(http.Header{"Retry-After": {value}}, time.Now())
}

// member finds the first string under a name in a text that begins as JSON.
func member(text, name string) string {
	_, rest, ok := strings.Cut(text, name)
	if !ok {
		return ""
	}
	rest, ok = strings.CutPrefix(strings.TrimLeft(rest, " \t\r\n"), ":")
	if !ok {
		return ""
	}
	rest, ok = strings.CutPrefix(strings.TrimLeft(rest, " \t\r\n"), `"`)
	if !ok {
		return ""
	}
	value, _, ok := strings.Cut(rest, `"`)
	if !ok || len(value) > 64 {
		return ""
	}
	return value
}
