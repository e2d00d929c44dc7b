//go:build unix && !linux

package shell

import (
	"context"
	"syscall"
)

// Here a program is ended by its group only.
func dieWithParent(*syscall.SysProcAttr) {}

func limit(int, bool) {}

// watch has nothing to look at here.
func (l *launcher) watch(context.Context, context.CancelCauseFunc) <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

// Probe tells what there is to keep programs in: nothing on this system. Judging
// holds all the same.
func Probe() Report { return Report{Problem: Problem()} }

// Problem returns why there is no sandbox, as [Probe] reports it.
func Problem() string { return "there is none for this system" }

// Main returns at once on this system, where no process is re-executed.
func Main() {}

func (s *shell) launch(l *launcher) (func(stop <-chan struct{}) outcome, error) { return l.direct() }
