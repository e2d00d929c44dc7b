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
// as a bad request, and the time to wait inside the body (google.rpc.RetryInfo).
func refine(err error, advice string) error {
	var e *toolcrib.ModelError
	if !errors.As(err, &e) {
		return err
	}
	switch {
	case e.Class == toolcrib.ErrBadRequest && (strings.Contains(e.Detail, "API_KEY_INVALID") ||
		wire.Says(e.Message, "api key not valid", "api key expired")):
		e.Class = toolcrib.ErrAuth
		if e.Message += " (check api_key)"; advice != "" {
			e.Message += "; " + advice
		}
	case e.Status == 499: // CANCELLED: by the API, since the caller is still here
		e.Class = toolcrib.ErrOverloaded
	}
	if e.RetryAfter == 0 && e.Class.Retryable() {
		e.RetryAfter = retryDelay(e.Detail)
	}
	return err
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
