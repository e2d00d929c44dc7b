package process

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// machine returns the ID of the running system.
func machine() string {
	boot, _ := unix.Sysctl("kern.bootsessionuuid") // "" if it cannot be read
	return boot
}

// zombie is the state of a process whose parent has not waited for it (SZOMB).
const zombie = 5

// look returns when a process started, in microseconds, and whether it has ended.
func look(pid int) (started int64, ended bool) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return 0, errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
	}
	at := info.Proc.P_starttime
	return at.Sec*1e6 + int64(at.Usec), info.Proc.P_stat == zombie
}
