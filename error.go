package toolcrib

import (
	"errors"
	"fmt"
	"time"
)

// Code is the kind of an [Error]. It determines the exit status of a command and the status of an HTTP response.
type Code string

// The codes of errors.
const (
	CodeBadRequest        Code = "bad_request"
	CodeSchemaMismatch    Code = "schema_mismatch"
	CodeUnauthorized      Code = "unauthorized"
	CodeTokenInvalid      Code = "token_invalid"
	CodeTokenRevoked      Code = "token_revoked"
	CodeForbidden         Code = "forbidden"
	CodeScopeInsufficient Code = "token_scope_insufficient"
	CodeSignature         Code = "invalid_signature"    // of a message between nodes
	CodeRevoked           Code = "revoked"              // who issued the token, or the node
	CodeFederation        Code = "federation_forbidden" // between communities of nodes
	CodeNotFound          Code = "not_found"
	CodeTimeout           Code = "timeout"
	CodeConflict          Code = "conflict"
	CodeTokenExpired      Code = "token_expired" // also if not valid yet
	CodeExpired           Code = "expired"       // a message between nodes; also if not valid yet
	CodeTooLarge          Code = "too_large"
	CodeRateLimited       Code = "rate_limited"
	CodeCapacityExceeded  Code = "capacity_exceeded"
	CodeInternal          Code = "internal_error"
	CodeNotImplemented    Code = "not_implemented"
	CodeProviderFailed    Code = "provider_failed"
	CodeOverloaded        Code = "overloaded"
	CodePartition         Code = "partition" // the connection to the other node was lost; the call may have happened
)

// Error is an error for the caller of an operation. Message says what is wrong, where, and what to do;
// it contains no secret. Callers distinguish errors by Code only.
type Error struct {
	Code       Code
	Message    string
	RetryAfter time.Duration // delay before a retry may help; 0 if unknown
	Ref        string        // reference of the details for an operator, or ""
	Err        error         // the cause, for operators; may be nil
}

// Errorf returns an [*Error].
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

func (e *Error) Error() string { return e.Message }

func (e *Error) Unwrap() error { return e.Err }

// Is makes [ErrNotFound] and [ErrConflict] match the codes of the same names.
func (e *Error) Is(target error) bool {
	return target == ErrNotFound && e.Code == CodeNotFound || target == ErrConflict && e.Code == CodeConflict
}

// CodeOf returns the code of the first [*Error] in err's tree. Otherwise it returns not_found or conflict for
// errors that wrap [ErrNotFound] and [ErrConflict], internal_error for other errors, and "" for nil.
func CodeOf(err error) Code {
	var e *Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &e):
		return e.Code
	case errors.Is(err, ErrNotFound):
		return CodeNotFound
	case errors.Is(err, ErrConflict):
		return CodeConflict
	}
	return CodeInternal
}

// ErrConflict is returned if another writer has appended to the journal.
var ErrConflict = errors.New("journal: another writer was first")

// ErrProtected is the cause of a tool's refusal of a protected path: the gate reports it as
// [ReasonProtectedPath].
var ErrProtected = errors.New("protected path")

// ErrNotFound is returned for an unknown run, ref or name.
var ErrNotFound = errors.New("not found")
