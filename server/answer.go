package server

import (
	"bytes"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// statuses maps codes to HTTP statuses. Any other code is an internal error.
var statuses = map[toolcrib.Code]int{
	toolcrib.CodeBadRequest: 400, toolcrib.CodeSchemaMismatch: 400, toolcrib.CodeUnauthorized: 401,
	toolcrib.CodeTokenInvalid: 401, toolcrib.CodeTokenRevoked: 401, toolcrib.CodeForbidden: 403,
	toolcrib.CodeScopeInsufficient: 403, toolcrib.CodeNotFound: 404, toolcrib.CodeTimeout: 408,
	toolcrib.CodeConflict: 409, toolcrib.CodeTokenExpired: 410, toolcrib.CodeTooLarge: 413,
	toolcrib.CodeRateLimited: 429, toolcrib.CodeCapacityExceeded: 429, toolcrib.CodeNotImplemented: 501,
	toolcrib.CodeProviderFailed: 502, toolcrib.CodeOverloaded: 503, toolcrib.CodeSignature: 401, toolcrib.CodeRevoked: 403,
	toolcrib.CodeFederation: 403, toolcrib.CodeExpired: 410, toolcrib.CodePartition: 503,
}

// maxMessage bounds the message of an error, in bytes: it may repeat input.
const maxMessage = 4 << 10

// errGone is matched if a client has disconnected, or has not read a response in time.
var errGone = errors.New("the client does not read")

// storeRetry is the Retry-After while the store cannot be used.
const storeRetry = 5 * time.Second

// leastRetry is the shortest Retry-After.
const leastRetry = time.Second

// known returns the error that a client may read: err itself if it was made for the client, or one that
// says only that something failed. The cause is logged for the operator.
func (s *Server) known(err error, id string) *toolcrib.Error {
	if errors.Is(err, errGone) {
		s.Log.Debug("a client has gone", "request_id", id, "error", err)
		return toolcrib.Errorf(toolcrib.CodeInternal, "")
	}
	for _, cause := range []error{
		store.ErrUnavailable, store.ErrUnreachable, store.ErrUnsuitable, store.ErrReadOnly, store.ErrDamaged, store.ErrFull,
		store.ErrLocked, store.ErrReplaced, store.ErrLost, store.ErrClosed,
	} {
		if errors.Is(err, cause) {
			s.Log.Error("the store cannot be used", "request_id", id, "error", err)
			return &toolcrib.Error{
				Code: toolcrib.CodeOverloaded, Message: "the store cannot be used at the moment", RetryAfter: storeRetry,
			}
		}
	}
	var e *toolcrib.Error
	var wrong config.Error
	code := toolcrib.CodeOf(err)
	switch {
	case errors.As(err, &wrong): // may name files, which must not be disclosed to clients
		s.Log.Error("the configuration cannot be used", "request_id", id, "error", err)
		return toolcrib.Errorf(toolcrib.CodeBadRequest, "the server's configuration: %s; search the server's log for request_id",
			wrong.WithoutFiles())
	case statuses[code] == 0:
		s.Log.Error("a request failed", "request_id", id, "error", err)
		return toolcrib.Errorf(toolcrib.CodeInternal, "internal error; search the server's log for request_id")
	case errors.As(err, &e):
		shown := *e
		if status := statuses[code]; status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
			shown.RetryAfter = max(shown.RetryAfter, leastRetry)
		}
		return &shown
	case code == toolcrib.CodeNotFound:
		return toolcrib.Errorf(code, "not found")
	}
	return toolcrib.Errorf(code, "it was changed by another request; read it again")
}

// known is [Server.known] for the principal: only administrators read errors of the configuration.
func (c *call) known(err error, id string) *toolcrib.Error {
	if c.r.Context().Err() != nil { // causes failures elsewhere
		err = errors.Join(errGone, err)
	}
	e := c.Server.known(err, id)
	var wrong config.Error
	if e.Code == toolcrib.CodeBadRequest && errors.As(err, &wrong) && !c.Service.Env.ReadsDetails(c.who) {
		e.Message = "the server's configuration cannot be used; its administrators find request_id in the log"
	}
	return e
}

// fail writes an error.
func (s *Server) fail(w http.ResponseWriter, err error) { s.failAs(w, 0, err) }

// failAs writes an error. If status is 0, it is that of the code.
func (s *Server) failAs(w http.ResponseWriter, status int, err error) {
	s.failWith(w, status, err, s.known(err, w.Header().Get("X-Request-ID")))
}

// failWith writes err as e, which the client may read.
func (s *Server) failWith(w http.ResponseWriter, status int, err error, e *toolcrib.Error) {
	id := w.Header().Get("X-Request-ID")
	if status == 0 {
		status = statuses[e.Code]
	}
	if status == 0 {
		status = http.StatusInternalServerError
	}
	f := s.failure(e, id)
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(int64((e.RetryAfter+time.Second-1)/time.Second), 10))
	}
	if status == http.StatusUnauthorized && w.Header().Get("WWW-Authenticate") == "" {
		w.Header().Set("WWW-Authenticate", `Bearer realm="toolcrib"`)
	}
	if _, ok := w.(v1Writer); ok {
		s.v1Failure(w, status, err, e, f)
		return
	}
	s.answer(w, status, f)
}

func (s *Server) failure(e *toolcrib.Error, id string) api.Failure {
	message := guard.Clip(s.Service.Env.Mask.Mask(guard.Visible(e.Message)), maxMessage)
	f := api.Failure{Error: e.Code, Message: message, RequestID: id}
	f.RetryAfter = e.RetryAfter.Milliseconds()
	if e.Ref != "" {
		f.Details = map[string]any{"ref": e.Ref}
	}
	return f
}

// answer writes a value as JSON.
func (s *Server) answer(w http.ResponseWriter, status int, v any) {
	text, err := guard.EncodeJSON(v, false)
	if err != nil {
		s.Log.Error("an answer cannot be written", "request_id", w.Header().Get("X-Request-ID"), "error", err)
		status, text = http.StatusInternalServerError, []byte(`{"error":"internal_error","message":"the answer cannot be written"}`)
	}
	written(w, status, text)
}

// written writes a JSON text. If the client does not read it in time, the connection ends.
func written(w http.ResponseWriter, status int, text []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)) // if the connection supports it
	w.WriteHeader(status)
	_, _ = w.Write(text) // the client may have disconnected
}

// stream writes events as Server-Sent Events.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	begun   bool
}

func (s *Server) stream(w http.ResponseWriter) *stream {
	return &stream{w: w, control: http.NewResponseController(w)}
}

// begin sends the header at once, so that a client knows that the stream is open.
func (e *stream) begin() error {
	h := e.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // for nginx and others
	e.begun = true
	e.w.WriteHeader(http.StatusOK)
	return e.control.Flush()
}

// frame writes one event.
func (e *stream) frame(f journal.Frame) error {
	data, err := guard.EncodeJSON(f.Data, false)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if f.Seq > 0 {
		b.WriteString("id: " + strconv.FormatInt(int64(f.Seq), 10) + "\n")
	}
	b.WriteString("event: " + f.Event + "\ndata: ")
	b.Write(data) // one line, including the newline
	b.WriteByte('\n')
	return e.write(b.Bytes())
}

// ping keeps proxies from closing a stream on which nothing happens.
func (e *stream) ping() error { return e.write([]byte(": ping\n\n")) }

func (e *stream) write(p []byte) error {
	_ = e.control.SetWriteDeadline(time.Now().Add(writeTimeout)) // if the connection supports it
	_, err := e.w.Write(p)
	if err == nil {
		err = e.control.Flush()
	}
	if err != nil {
		return errors.Join(errGone, err)
	}
	return nil
}
