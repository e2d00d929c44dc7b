//go:build !linux

package shell

import "github.com/toolcrib/toolcrib"

// Waits reports whether a sandbox waits for a job.
func Waits(toolcrib.Tool) bool { return false }
