package shell

import "fmt"

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
	Helper      bool   // [Main] was called, so that programs can be started in a sandbox
	LandlockABI int    // of the kernel; 0 = none. From 3 on files cannot be truncated, from 4 on TCP, from 6 on signals are held back
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
