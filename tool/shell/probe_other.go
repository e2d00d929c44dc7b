//go:build !linux

package shell

// Probe reports what there is to keep programs in: nothing on this system. Judging holds all
// the same.
func Probe() Report { return Report{Problem: Problem()} }

// Problem returns why there is no sandbox, as [Probe] reports it.
func Problem() string { return "there is none for this system" }

// Main returns at once on this system, where no process is re-executed.
func Main() {}
