package toolcrib_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/toolcrib/toolcrib"
)

func TestCodeOf(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want toolcrib.Code
	}{
		{nil, ""},
		{io.EOF, toolcrib.CodeInternal},
		{fmt.Errorf("run: %w", toolcrib.ErrNotFound), toolcrib.CodeNotFound},
		{fmt.Errorf("run: %w", toolcrib.ErrConflict), toolcrib.CodeConflict},
		{fmt.Errorf("run: %w", toolcrib.Errorf(toolcrib.CodeForbidden, "no")), toolcrib.CodeForbidden},
		{&toolcrib.Error{Code: toolcrib.CodeOverloaded, Err: toolcrib.ErrNotFound}, toolcrib.CodeOverloaded},
	} {
		if got := toolcrib.CodeOf(tt.err); got != tt.want {
			t.Errorf("CodeOf(%v) = %q, want %q", tt.err, got, tt.want)
		}
	}
	if err := toolcrib.Errorf(toolcrib.CodeNotFound, "no run %d", 1); !errors.Is(err, toolcrib.ErrNotFound) ||
		errors.Is(err, toolcrib.ErrConflict) || err.Error() != "no run 1" {
		t.Errorf("%v", err)
	}
	if err := (&toolcrib.Error{Code: toolcrib.CodeInternal, Err: io.EOF}); !errors.Is(err, io.EOF) {
		t.Error("the cause is lost")
	}
}
