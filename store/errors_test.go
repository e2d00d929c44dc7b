package store_test

import (
	"errors"
	"io"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store"
)

// Front ends see codes, whatever the cause and the path are.
func TestErrorCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want toolcrib.Code
	}{
		{store.ErrLocked, toolcrib.CodeOverloaded},
		{store.ErrFull, toolcrib.CodeCapacityExceeded},
		{store.ErrTooLarge, toolcrib.CodeTooLarge},
		{store.ErrBadCursor, toolcrib.CodeBadRequest},
		{store.ErrSessionName, toolcrib.CodeBadRequest},
		{store.ErrCorrupt, toolcrib.CodeInternal},
		{store.ErrDamaged, toolcrib.CodeInternal},
		{&store.SessionBusyError{}, toolcrib.CodeConflict},
		{&store.OpenRunError{}, toolcrib.CodeConflict},
	} {
		wrapped := &store.Error{Kind: c.err, Path: "x", Err: io.ErrUnexpectedEOF}
		if got := toolcrib.CodeOf(wrapped); got != c.want || !errors.Is(wrapped, c.err) || !errors.Is(wrapped, io.ErrUnexpectedEOF) {
			t.Errorf("%v: %s, want %s", c.err, got, c.want)
		}
	}
}
