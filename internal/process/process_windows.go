package process

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// machine returns the name of the machine. A start of the system is told by the start of the process.
func machine() string {
	host, _ := os.Hostname() // "" if it cannot be read
	return host
}

// look returns when a process started, in nanoseconds, and whether it has ended.
func look(pid int) (started int64, ended bool) {
	const access = windows.PROCESS_QUERY_LIMITED_INFORMATION | windows.SYNCHRONIZE
	h, err := windows.OpenProcess(access, false, uint32(pid))
	if err != nil {
		return 0, errors.Is(err, windows.ERROR_INVALID_PARAMETER)
	}
	defer windows.CloseHandle(h) //nolint:errcheck // only read
	var created, exited, kernel, user windows.Filetime
	if windows.GetProcessTimes(h, &created, &exited, &kernel, &user) == nil {
		started = created.Nanoseconds()
	}
	event, err := windows.WaitForSingleObject(h, 0)
	return started, err == nil && event == windows.WAIT_OBJECT_0
}
