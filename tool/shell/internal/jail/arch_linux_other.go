//go:build linux && !amd64 && !arm64

package jail

// seccompArch: no system calls are taken away on this machine type.
const seccompArch = 0

func filterCalls(_, _ bool) error { return nil }
