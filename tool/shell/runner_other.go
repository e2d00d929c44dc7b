//go:build !unix

package shell

import (
	"context"

	"github.com/toolcrib/toolcrib"
)

// supported is false: without process groups processes cannot be ended reliably, so the tool
// refuses every call.
const supported = false

func notFolder(error) bool { return false }

func (s *shell) run(context.Context, toolcrib.Call, *plan, func([]byte), func()) (ran, error) {
	return ran{}, toolcrib.Failf(toolcrib.PermissionDenied, "%s is not available on this system", Name)
}

func findIn(_ []string, name string, _ bool) (string, error) {
	return "", toolcrib.Failf(toolcrib.NotFound, "%s", name)
}

type (
	installed         struct{}
	preparedSandboxes struct{}
)

func (*Options) install() *installed { return nil }

func (*installed) folders(string) []string { return nil }

// Tidy does nothing on this system, where no command creates stand-ins.
func Tidy(string, []string, []string) {}

// SearchPath returns nothing on this system, where no program is run.
func SearchPath([]string, string) (use, out []string) { return nil, nil }

// Missing returns nothing on this system.
func Missing([]string, []string) []string { return nil }
