package openai

import (
	"errors"
	"net/http"

	"github.com/toolcrib/toolcrib"
)

// ErrorBody is the body of an error response.
type ErrorBody struct {
	Error      ErrorDetail `json:"error"`
	RequestID  string      `json:"request_id"`
	RetryAfter int64       `json:"retry_after_ms,omitempty"`
}

// ErrorDetail describes an error.
type ErrorDetail struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    string  `json:"code"`
}

// kinds has the types of errors by status. Any other 4xx is an invalid_request_error, all else a server_error.
var kinds = map[int]string{
	http.StatusUnauthorized: "authentication_error", http.StatusForbidden: "permission_error",
	http.StatusTooManyRequests: "rate_limit_error",
}

// NewErrorBody returns the body for cause. e is the part of it that the client may read.
func NewErrorBody(cause error, e *toolcrib.Error, message string, status int, id string) ErrorBody {
	f := ErrorBody{
		Error:     ErrorDetail{Message: message, Type: kinds[status], Code: string(e.Code)},
		RequestID: id, RetryAfter: e.RetryAfter.Milliseconds(),
	}
	if f.Error.Type == "" && status < http.StatusInternalServerError {
		f.Error.Type = "invalid_request_error"
	} else if f.Error.Type == "" {
		f.Error.Type = "server_error"
	}
	var own *Error
	if errors.As(cause, &own) {
		if own.Param != "" {
			f.Error.Param = &own.Param
			f.Error.Message = own.Param + ": " + message
		}
		if own.Code != "" {
			f.Error.Code = own.Code
		}
	}
	return f
}

// Again reports whether a failed request may succeed later. Official clients retry by default.
func Again(status int, cause error) bool {
	var own *Error
	if errors.As(cause, &own) && own.Lasts {
		return false
	}
	return status == http.StatusRequestTimeout || status == http.StatusTooManyRequests ||
		status >= http.StatusInternalServerError
}
