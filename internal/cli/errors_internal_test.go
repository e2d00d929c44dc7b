package cli

import (
	"fmt"
	"testing"

	"github.com/toolcrib/toolcrib"
)

// An error names its code once, whatever it wraps.
func TestErrorText(t *testing.T) {
	for want, err := range map[string]error{
		"not found: run x":                toolcrib.Errorf(toolcrib.CodeNotFound, "run x"),
		"not found: session a":            toolcrib.Errorf(toolcrib.CodeNotFound, "%v", fmt.Errorf("session a: %w", toolcrib.ErrNotFound)),
		"not found: b; see c":             toolcrib.Errorf(toolcrib.CodeNotFound, "not found: b; see c"),
		"conflict: it is used":            fmt.Errorf("conflict: %w", toolcrib.Errorf(toolcrib.CodeConflict, "it is used")),
		"must be a number":                toolcrib.Errorf(toolcrib.CodeBadRequest, "must be a number"),
		"forbidden: this is for managers": toolcrib.Errorf(toolcrib.CodeForbidden, "this is for managers"),
	} {
		if got := errorText(err); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
