package shell

import (
	"fmt"
)

// job is what is run, by this process or by the re-executed one that sandboxes
// itself first (see [Main]). It is passed to it as JSON.
type job struct {
	Dir   string   `json:"dir"` // the workspace, absolute
	Env   []string `json:"env"`
	Steps []step   `json:"steps"`
	Rules *rules   `json:"rules,omitempty"` // nil = no Landlock
	// Offline takes away the sockets; with Loopback, which says that the job has a network of its
	// own with nothing else in it, those of other kinds than the internet's.
	Offline  bool `json:"offline,omitempty"`
	Loopback bool `json:"loopback,omitempty"`
	// Watch is set if programs may start others: these are watched, and ended.
	Watch bool `json:"watch,omitempty"`
	// Held is what must be mounted as it was meant, before anything runs.
	Held []held `json:"held,omitempty"`
}

// step is a pipeline, and what joins it to the one before.
type step struct {
	Join     string    `json:"join,omitempty"` // "", ";", "&&" or "||"
	Commands []command `json:"commands"`
}

// skipped reports whether a step is passed over after the exit status of the last
// one that ran.
func (s step) skipped(status int) bool {
	return s.Join == "&&" && status != 0 || s.Join == "||" && status == 0
}

// command is one program, found and judged.
type command struct {
	Path    string   `json:"path"`
	Args    []string `json:"args"`               // with the name first
	In      string   `json:"in,omitempty"`       // a regular file, relative to the workspace, links resolved
	NoInput bool     `json:"no_input,omitempty"` // nothing to read, whatever is piped
	Out     sink     `json:"out"`
	Err     sink     `json:"err"`
}

// rules is what Landlock grants.
type rules struct {
	Read    []string `json:"read"`    // files and folders with all below: read and run
	Data    []string `json:"data"`    // read, and not run
	Write   []string `json:"write"`   // read, run and written
	Folders []string `json:"folders"` // only listed
	Closed  bool     `json:"closed"`  // no TCP, from ABI 4 on
	ABI     int      `json:"abi"`     // of the kernel, as probed
}

// held is a path of the workspace that bubblewrap mounts over itself: a protected one, to
// be read only, and each folder above it, so that it cannot be renamed. Dev and Ino tell
// in the sandbox whether it is still what was meant.
type held struct {
	Path string `json:"path"`
	Dev  uint64 `json:"dev"`
	Ino  uint64 `json:"ino"`

	open bool // to be written
}

// outcome is how a job ended.
type outcome struct {
	Exit   int    `json:"exit"`
	Signal string `json:"signal,omitempty"`
	// Stopped is set if it was ended from outside.
	Stopped bool `json:"stopped,omitempty"`
	// Problem is what kept a program from starting, Program its name; Setup is a
	// sandbox that could not be made.
	Problem string `json:"problem,omitempty"`
	Program string `json:"program,omitempty"`
	Setup   string `json:"setup,omitempty"`
}

// What a job may have at most, all of its processes together. A call of programs of the
// built-in table runs unasked, so it gets less.
const (
	maxProcesses   = 512
	maxThreads     = 8192
	maxMemory      = 4 << 30 // bytes, in memory or swapped out
	maxTableMemory = 1 << 30
	maxDisk        = 8 << 30 // bytes by which the room on a disk may shrink; half of what is free, if that is less
	maxFiles       = 1 << 20 // the same for the number of files
)

// bounds are these numbers, for one job.
type bounds struct {
	processes, threads  int
	memory, disk, files uint64
}

func boundsOf(writes bool) bounds {
	b := bounds{processes: maxProcesses, threads: maxThreads, memory: maxTableMemory, disk: maxDisk, files: maxFiles}
	if writes {
		b.memory = maxMemory
	}
	return b
}

// exceeded is why a job was killed.
type exceeded string

func (e exceeded) Error() string { return string(e) }

// Report is what the machine has to keep programs in.
//
// Landlock lets the programs of the built-in table read the workspace and the
// system's own files and write nothing but a folder of their own that is removed;
// all others may write the workspace too. It can neither keep them from single files inside
// the workspace, nor from changing the rights and times of the user's files
// elsewhere: for these it takes bubblewrap. Where toolcrib has its own process
// over the programs (Helper), also those that leave the process group are ended;
// bubblewrap ends them for certain, by a process namespace.
type Report struct {
	Helper bool // [Main] was called, so that programs can be started in a sandbox
	// of the kernel; 0 = none. From 3 on files cannot be truncated, from 4 on TCP, from 6 on signals are held back
	LandlockABI int
	Seccomp     bool   // system calls can be taken away
	Bubblewrap  string // path of a bwrap that works; "" = none
	Problem     string // why there is no sandbox; "" = there is one
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
