//go:build unix && !linux

package shell

import (
	"context"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/shell/internal/jail"
)

// watch does nothing on this system.
func (l *launcher) watch(context.Context, context.CancelCauseFunc) <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

// Starting a process is fast without a sandbox, so none is prepared.
type (
	sandboxed         struct{}
	preparedSandboxes struct{}
)

func (*sandboxed) end() {}

func (*shell) takePrepared(toolcrib.RunID) *launcher { return nil }

func (*shell) prepare(toolcrib.Call, *plan) {}

func (l *launcher) temporary() string { return l.scratch }

func (*launcher) fits(string, *plan) bool { return false }

func (s *shell) launch(l *launcher) (func(stop <-chan struct{}) jail.Outcome, error) {
	return l.direct()
}
