//go:build unix && !linux

package shell

import (
	"context"

	"github.com/toolcrib/toolcrib/tool/shell/internal/jail"
)

// watch has nothing to look at here.
func (l *launcher) watch(context.Context, context.CancelCauseFunc) <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

func (s *shell) launch(l *launcher) (func(stop <-chan struct{}) jail.Outcome, error) {
	return l.direct()
}
