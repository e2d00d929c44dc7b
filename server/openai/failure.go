package openai

import (
	"errors"
	"net/http"

	"github.com/toolcrib/toolcrib"
)

// ErrorBody is the body of an answer that is an error.
type ErrorBody struct {
	Error      ErrorDetail `json:"error"`
	RequestID  string      `json:"request_id"`
	RetryAfter int64       `json:"retry_after_ms,omitempty"`
}

// ErrorDetail says what is wrong.
type ErrorDetail struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    string  `json:"code"`
}

// kinds are the types of errors by their statuses; any other is a server_error, or from 400 on an
// invalid_request_error.
var kinds = map[int]string{
	http.StatusUnauthorized: "authentication_error", http.StatusForbidden: "permission_error",
	http.StatusTooManyRequests: "rate_limit_error",
}

// NewErrorBody is the error of a request; e is what the client may read of cause.
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

// Again reports whether a request that has failed may succeed later. Official clients ask again by
// themselves unless they are told not to.
func Again(status int, cause error) bool {
	var own *Error
	if errors.As(cause, &own) && own.Lasts {
		return false
	}
	return status == http.StatusRequestTimeout || status == http.StatusTooManyRequests ||
		status >= http.StatusInternalServerError
}
