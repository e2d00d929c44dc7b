package shell

import (
	"fmt"

	"github.com/toolcrib/toolcrib/tool/shell/internal/jail"
	"github.com/toolcrib/toolcrib/tool/shell/internal/line"
)

// Bounds of a job, over all of its processes. A line that only reads runs unasked, so its bounds are lower.
const (
	maxProcesses = 512
	maxThreads   = 8192
	maxFiles     = 1 << 20 // by which the number of free inodes may shrink

	maxReadMemory = 2 << 30 // bytes, in the sandbox in which any program can only read
	maxReadDisk   = 2 << 30
)

// bounds are the bounds of one job.
type bounds struct {
	processes, threads  int
	memory, disk, files uint64
}

func boundsOf(sandbox line.Sandbox) bounds {
	b := bounds{
		processes: maxProcesses, threads: maxThreads, memory: jail.MaxTableMemory, disk: jail.MaxDisk, files: maxFiles,
	}
	switch sandbox {
	case line.WritesWorkspace:
		b.memory = jail.MaxMemory
	case line.ReadsWorkspace:
		b.memory, b.disk = maxReadMemory, maxReadDisk
	}
	return b
}

// exceeded is the error for a job that was killed because it exceeded its bounds.
type exceeded string

func (e exceeded) Error() string { return string(e) }

// Report describes the sandbox of the machine.
//
// With Landlock, programs of the built-in table can read the workspace and files of the system, and write only a
// temporary folder; other programs can also write the workspace. Landlock cannot protect single files in the workspace,
// nor the permissions and times of the user's other files: this needs bubblewrap. With Helper, programs that leave
// their process group are ended by a process of toolcrib above them; bubblewrap ends them reliably, by a namespace.
type Report struct {
	Helper bool // whether [Main] was called, so that programs can be started in a sandbox
	// LandlockABI is the version of Landlock in the kernel, or 0. It restricts truncation of files from 3 on, TCP from 4
	// on, and signals from 6 on.
	LandlockABI int
	Seccomp     bool   // whether system calls can be filtered
	Bubblewrap  string // path of a working bwrap, or ""
	// Mounts reports whether the sandboxed copy of this program may mount in bubblewrap's namespaces. This saves time:
	// stand-ins for missing protected names are created while the namespaces are.
	Mounts bool
	// Joins reports whether a copy may join the network namespace of another, so that the calls of a run that may write
	// share a loopback interface. It takes bubblewrap 0.4.0 or later, which is not set-user-ID.
	Joins   bool
	Problem string // why there is no sandbox, or ""
}

// sandboxed reports whether there is any sandbox.
func (r Report) sandboxed() bool { return r.Helper && (r.LandlockABI > 0 || r.Bubblewrap != "") }

// describe says how a program that is not in the built-in table is confined. net is the text about its network.
func (r Report) describe(net string) string {
	if net == noNetwork && r.Bubblewrap == "" && !r.Seccomp && r.LandlockABI < 4 {
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
