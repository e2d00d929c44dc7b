//go:build linux && !amd64 && !arm64

package jail

// seccompArch is 0: system calls are not filtered on this architecture.
const seccompArch = 0

func (*Job) filterCalls() error { return nil }
