//go:build unix

package stat

import (
	"syscall"
	"time"
)

// CPU is the CPU time of this process and of those that it waited for, with theirs, user and system.
func CPU() (sum time.Duration) {
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if syscall.Getrusage(who, &u) == nil {
			sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return sum
}
