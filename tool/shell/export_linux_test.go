//go:build amd64 || arm64

package shell

// DeniedCalls are the system calls that no job may make.
func DeniedCalls() []uint32 { return deniedCalls() }
