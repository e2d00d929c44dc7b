// Package jail runs one job: in this process, or in a copy of it that restricts itself first.
//
// Go initialises packages in the order of their import paths, each after those that it imports. The copy ends in this
// package's init function, so it never initialises what comes later. For this the package imports little.
package jail

// Job is what is run, by this process or by the copy that sandboxes itself first. It is passed to it as JSON.
type Job struct {
	Dir   string   `json:"dir"` // the workspace, absolute
	Env   []string `json:"env"`
	Steps []Step   `json:"steps"`
	Rules *Rules   `json:"rules,omitempty"` // nil = no Landlock
	// Offline takes away the sockets; with Loopback, which says that the job has a network of its
	// own with nothing else in it, those of other kinds than the internet's.
	Offline  bool `json:"offline,omitempty"`
	Loopback bool `json:"loopback,omitempty"`
	// Watch is set if programs may start others: these are watched, and ended.
	Watch bool `json:"watch,omitempty"`
	// Held is what must be mounted as it was meant, before anything runs. With Mounts the copy mounts it.
	Held   []Held `json:"held,omitempty"`
	Mounts bool   `json:"mounts,omitempty"`
}

// Step is a pipeline, and what joins it to the one before.
type Step struct {
	Join     string    `json:"join,omitempty"` // "", ";", "&&" or "||"
	Commands []Command `json:"commands"`
}

// skipped reports whether a step is passed over after the exit status of the last
// one that ran.
func (s Step) skipped(status int) bool {
	return s.Join == "&&" && status != 0 || s.Join == "||" && status == 0
}

// Command is one program, found and judged.
type Command struct {
	Path    string   `json:"path"`
	Args    []string `json:"args"`               // with the name first
	In      string   `json:"in,omitempty"`       // a regular file, relative to the workspace, links resolved
	NoInput bool     `json:"no_input,omitempty"` // nothing to read, whatever is piped
	Out     Sink     `json:"out"`
	Err     Sink     `json:"err"`
}

// Rules is what Landlock grants.
type Rules struct {
	Read    []string `json:"read"`    // files and folders with all below: read and run
	Data    []string `json:"data"`    // read, and not run
	Write   []string `json:"write"`   // read, run and written
	Folders []string `json:"folders"` // only listed
	Watched []string `json:"watched"` // read by the copy, and not by what it starts
	Closed  bool     `json:"closed"`  // no TCP, from ABI 4 on
	ABI     int      `json:"abi"`     // of the kernel, as probed
}

// Held is a path of the workspace that is mounted over itself: a protected one, to be read
// only, and each folder above it, so that it cannot be renamed. Dev and Ino tell
// in the sandbox whether it is still what was meant.
type Held struct {
	Path string `json:"path"`
	Dev  uint64 `json:"dev"`
	Ino  uint64 `json:"ino"`

	Open bool `json:"open,omitempty"` // to be written
}

// Outcome is how a job ended.
type Outcome struct {
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

// Sink is where one of a command's two outputs goes.
type Sink string

// Sinks.
const (
	ToOut  Sink = "out" // the next command of the pipe, or the result
	ToErr  Sink = "err" // the errors of the result
	ToNull Sink = "null"
)

// Bounds of a job, all of its processes together. Programs of the built-in table run unasked, so they get less.
const (
	MaxMemory      = 4 << 30 // bytes, in memory or swapped out
	MaxTableMemory = 1 << 30
	MaxDisk        = 8 << 30 // bytes by which the room on a disk may shrink; half of what is free, if that is less
)
