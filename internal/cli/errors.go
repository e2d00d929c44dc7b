package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/store"
)

// The exit codes of contract §3.
const (
	exitOK       = 0
	exitFailed   = 1
	exitUsage    = 2
	exitParked   = 3
	exitLimit    = 4
	exitRefused  = 5 // of tools call
	exitHangup   = 129
	exitCanceled = 130
	exitTerm     = 143
)

// exitError ends the command with a code. Message goes to standard error; empty =
// everything was said already.
type exitError struct {
	code    int
	message string
}

func (e *exitError) Error() string { return e.message }

func usagef(format string, args ...any) error {
	return &exitError{code: exitUsage, message: fmt.Sprintf(format, args...)}
}

func failedf(format string, args ...any) error {
	return &exitError{code: exitFailed, message: fmt.Sprintf(format, args...)}
}

// silent ends the command with a code and without a word.
func silent(code int) error {
	if code == exitOK {
		return nil
	}
	return &exitError{code: code}
}

// codeOf tells the exit code of an error.
func codeOf(err error) int {
	var exit *exitError
	var usage *agent.UsageError
	var broken config.Errors
	var value config.Error
	var cancelled *agent.CancelError
	var untrusted *trust.UntrustedError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &usage), errors.As(err, &broken), errors.As(err, &value), errors.As(err, &untrusted):
		return exitUsage
	case errors.As(err, &cancelled), errors.Is(err, context.Canceled):
		return exitCanceled
	case errors.Is(err, errTerminated):
		return exitTerm
	case errors.Is(err, errHangup):
		return exitHangup
	}
	return exitFailed
}

// storeFailed tells whether the store itself could not do its work.
func storeFailed(err error) bool {
	var failed *store.Error
	return errors.As(err, &failed)
}
