// Package process identifies processes, so that one process can see that another has ended.
package process

import "os"

// ID identifies a process on its machine, also after another one got its number.
type ID struct {
	// Machine is equal for processes that see each other: those of one machine, since it started, with the
	// same process numbers. If "", no other process can be looked at.
	Machine string
	PID     int
	Started int64 // when the process started, in a unit of the system; 0 if unknown
}

// Self returns the ID of this process.
func Self() ID {
	pid := os.Getpid()
	started, _ := look(pid)
	return ID{Machine: machine(), PID: pid, Started: started}
}

// EndedFor reports whether a process is known to have ended, as seen from the process self. If it cannot be
// looked at, it may be running.
func (id ID) EndedFor(self ID) bool {
	if id.Machine == "" || id.Machine != self.Machine || id.PID <= 0 {
		return false
	}
	started, ended := look(id.PID)
	return ended || id.Started != 0 && started != 0 && id.Started != started
}
