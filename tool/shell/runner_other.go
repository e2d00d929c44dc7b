//go:build !unix

package shell

import (
	"context"

	"github.com/toolcrib/toolcrib"
)

// supported: without process groups nothing could be ended for certain, so the tool
// refuses every call here.
const supported = false

func notFolder(error) bool { return false }

func (s *shell) run(context.Context, toolcrib.Call, *plan, func([]byte), func()) (ran, error) {
	return ran{}, toolcrib.Failf(toolcrib.PermissionDenied, "%s is not available on this system", Name)
}

type ran struct {
	result
	stopped bool
}

func findIn(_ []string, name string, _ bool) (string, error) {
	return "", toolcrib.Failf(toolcrib.NotFound, "%s", name)
}

type (
	installed struct{}
	spares    struct{}
)

func (*Options) install() *installed { return nil }

func (*installed) folders(string) []string { return nil }

// Tidy does nothing here, where no command makes a stand-in.
func Tidy(string, []string, []string) {}

// SearchPath returns nothing here, where no program is run.
func SearchPath([]string, string) (use, out []string) { return nil, nil }

// Missing returns nothing here.
func Missing([]string, []string) []string { return nil }
