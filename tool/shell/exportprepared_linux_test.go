package shell

import (
	"os/exec"

	"github.com/toolcrib/toolcrib"
)

// Waits reports whether a sandbox waits for a job.
func Waits(made toolcrib.Tool) bool { return len(Waiting(made)) > 0 }

// Waiting returns the processes of the sandboxes that wait for a job.
func Waiting(made toolcrib.Tool) (all []*exec.Cmd) {
	s := made.(*shell)
	s.prepared.mu.Lock()
	defer s.prepared.mu.Unlock()
	for _, of := range s.prepared.of {
		select {
		case <-of.ready:
			if l := of.launcher; l != nil && !l.gone() {
				all = append(all, l.copy.cmd)
			}
		default:
		}
	}
	return all
}
