// Package accesstest has the suites that every [access.Directory], [access.Tokens]
// and [access.Quota] must pass.
package accesstest

import (
	"errors"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
)

const by = "local:tester"

// refused checks that an error is a refusal with the code.
func refused(t *testing.T, err error, code toolcrib.Code) {
	t.Helper()
	var e *toolcrib.Error
	if !errors.As(err, &e) || e.Code != code || e.Message == "" {
		t.Errorf("got %v, want a refusal with %s", err, code)
	}
}

// done ends the test if a change was not made.
func done(t *testing.T) func(access.Change, error) {
	return func(_ access.Change, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
}
