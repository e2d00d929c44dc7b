package process

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// machine returns the ID of the running system with those of the namespaces on which process numbers and
// start times depend.
func machine() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	pids, failed := os.Readlink("/proc/self/ns/pid")
	if err != nil || failed != nil {
		return ""
	}
	times, _ := os.Readlink("/proc/self/ns/time") // older kernels have none
	return strings.TrimSpace(string(boot)) + " " + pids + " " + times
}

// look returns when a process started, in clock ticks since the system did, and whether it has ended.
func look(pid int) (started int64, ended bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil { // it may belong to another user, from whom it is hidden
		return 0, errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
	}
	// The second field is a name in parentheses, which may contain both. The third is the state, the 22nd the start.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 20 {
		return 0, false
	}
	started, _ = strconv.ParseInt(fields[19], 10, 64) // 0 if it cannot be read
	return started, fields[0] == "Z" || fields[0] == "X"
}
