package access

import (
	"fmt"
	"net/http"
	"time"

	"github.com/toolcrib/toolcrib"
)

// Code is an error code of contract §9.
type Code string

const (
	CodeBadRequest        Code = "bad_request"
	CodeUnauthorized      Code = "unauthorized"
	CodeForbidden         Code = "forbidden"
	CodeNotFound          Code = "not_found"
	CodeConflict          Code = "conflict"
	CodeTokenInvalid      Code = "token_invalid"
	CodeTokenExpired      Code = "token_expired" // also: not valid yet
	CodeTokenRevoked      Code = "token_revoked"
	CodeScopeInsufficient Code = "token_scope_insufficient"
	CodeRateLimited       Code = "rate_limited"
	CodeCapacityExceeded  Code = "capacity_exceeded"
	CodeInternal          Code = "internal_error"
)

// Status is the HTTP status that goes with the code; 500 for a code that is not known.
func (c Code) Status() int {
	switch c {
	case CodeBadRequest:
		return http.StatusBadRequest
	case CodeUnauthorized, CodeTokenInvalid, CodeTokenRevoked:
		return http.StatusUnauthorized
	case CodeForbidden, CodeScopeInsufficient:
		return http.StatusForbidden
	case CodeNotFound:
		return http.StatusNotFound
	case CodeConflict:
		return http.StatusConflict
	case CodeTokenExpired:
		return http.StatusGone
	case CodeRateLimited, CodeCapacityExceeded:
		return http.StatusTooManyRequests
	}
	return http.StatusInternalServerError
}

// Error is a refusal in the words of contract §9. Message is for whoever asked: it
// says what is wrong and what to do, and holds no secret. Err is the cause, for
// operators; it may be nil.
type Error struct {
	Code       Code
	Message    string
	RetryAfter time.Duration // when asking again may help; 0 = not known
	Err        error
}

func (e *Error) Error() string { return e.Message }

// Unwrap makes the cause known to [errors.Is], and with it [toolcrib.ErrNotFound]
// and [toolcrib.ErrConflict] for the codes of the same names.
func (e *Error) Unwrap() []error {
	var all []error
	switch e.Code {
	case CodeNotFound:
		all = append(all, toolcrib.ErrNotFound)
	case CodeConflict:
		all = append(all, toolcrib.ErrConflict)
	}
	if e.Err != nil {
		all = append(all, e.Err)
	}
	return all
}

func refusef(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}
