//go:build unix && !linux

package shell

import (
	"context"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/shell/internal/jail"
)

// watch has nothing to look at here.
func (l *launcher) watch(context.Context, context.CancelCauseFunc) <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

// Here a process is started quickly, so none waits for a job.
type (
	sandboxed struct{}
	spares    struct{}
)

func (*sandboxed) end() {}

func (*shell) takeSpare(toolcrib.RunID) *launcher { return nil }

func (*shell) spare(toolcrib.Call, *plan) {}

func (*launcher) fits(string, *plan) bool { return false }

func (s *shell) launch(l *launcher) (func(stop <-chan struct{}) jail.Outcome, error) {
	return l.direct()
}
