package shell

import (
	"fmt"

	"github.com/toolcrib/toolcrib/tool/shell/internal/jail"
)

// What a job may have at most, all of its processes together. A call of programs of the
// built-in table runs unasked, so it gets less.
const (
	maxProcesses = 512
	maxThreads   = 8192
	maxFiles     = 1 << 20 // by which the number of free ones may shrink
)

// bounds are these numbers, for one job.
type bounds struct {
	processes, threads  int
	memory, disk, files uint64
}

func boundsOf(writes bool) bounds {
	b := bounds{
		processes: maxProcesses, threads: maxThreads, memory: jail.MaxTableMemory, disk: jail.MaxDisk, files: maxFiles,
	}
	if writes {
		b.memory = jail.MaxMemory
	}
	return b
}

// exceeded is why a job was killed.
type exceeded string

func (e exceeded) Error() string { return string(e) }

// Report is what the machine has to keep programs in.
//
// Landlock lets the programs of the built-in table read the workspace and the system's own files and write nothing but
// a folder of their own that is removed; all others may write the workspace too. It can neither keep them from single
// files inside the workspace, nor from changing the rights and times of the user's files elsewhere: for these it takes
// bubblewrap. Where toolcrib has its own process over the programs (Helper), also those that leave the process group
// are ended; bubblewrap ends them for certain, by a process namespace.
type Report struct {
	Helper bool // [Main] was called, so that programs can be started in a sandbox
	// of the kernel; 0 = none. From 3 on files cannot be truncated, from 4 on TCP, from 6 on signals are held back
	LandlockABI int
	Seccomp     bool   // system calls can be taken away
	Bubblewrap  string // path of a bwrap that works; "" = none
	// Mounts is set if the copy may mount in bubblewrap's namespaces, which saves time: protected names that do not exist
	// get their stand-ins while these are made.
	Mounts  bool
	Problem string // why there is no sandbox; "" = there is one
}

// sandboxed reports whether there is any sandbox.
func (r Report) sandboxed() bool { return r.Helper && (r.LandlockABI > 0 || r.Bubblewrap != "") }

// describe says in words what keeps a program in that is not in the table.
func (r Report) describe(network bool) string {
	net := "No network."
	switch {
	case network:
		net = "The network is open."
	case r.Bubblewrap == "" && !r.Seccomp && r.LandlockABI < 4:
		net = "The network CANNOT be held back here."
	}
	switch {
	case !r.sandboxed():
		return "There is NO sandbox (" + r.Problem + "): it can read, write and send whatever the user can."
	case r.Bubblewrap != "":
		return "Sandbox: bubblewrap; only the workspace can be written, protected files in it cannot. " + net
	}
	return fmt.Sprintf("Sandbox: Landlock (ABI %d); only the workspace can be written, but protected files in it CAN be, "+
		"which is found afterwards and reported; rights and times of files elsewhere are not held. ", r.LandlockABI) + net
}
