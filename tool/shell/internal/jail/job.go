// Package jail runs one job: in this process, or in a copy of it that restricts itself first.
//
// Go initializes packages in the order of their import paths, each after those that it imports. The copy exits in this
// package's init function, so that it does not initialize later packages. For this the package imports little.
package jail

// Job is a command line, to be run by this process or by a copy of it that restricts itself first. The copy gets it as
// JSON.
type Job struct {
	Dir   string   `json:"dir"` // absolute path of the workspace
	Env   []string `json:"env"`
	Steps []Step   `json:"steps"`
	Rules *Rules   `json:"rules,omitempty"` // Landlock rules, or nil
	// Offline refuses sockets. With Loopback, which says that the job has a network namespace with only
	// the loopback device, internet sockets are allowed.
	Offline  bool `json:"offline,omitempty"`
	Loopback bool `json:"loopback,omitempty"`
	// Proxied are the names of variables that are set to the URL of a proxy on the loopback. The copy listens there and
	// gives the socket to the process that started it.
	Proxied []string `json:"proxied,omitempty"`
	// With Shares the copy gives its network namespace, and the user namespace that owns it, to the process that started
	// it. With Join it joins a network namespace: the files are open in the copy.
	Shares bool `json:"shares,omitempty"`
	Join   bool `json:"join,omitempty"`
	// Watch says that programs may start others, which must be watched and ended.
	Watch bool `json:"watch,omitempty"`
	// Strict says that programs may only read: system calls by which they could change anything else are
	// refused.
	Strict bool `json:"strict,omitempty"`
	// Held are mounts that must exist before a program runs. With Mounts the copy makes them, and mounts Cache.
	Held   []Held `json:"held,omitempty"`
	Mounts bool   `json:"mounts,omitempty"`
	Cache  *Cache `json:"cache,omitempty"`
}

// Step is a pipeline.
type Step struct {
	Join     string    `json:"join,omitempty"` // operator before it: "", ";", "&&" or "||"
	Commands []Command `json:"commands"`
}

// skipped reports whether a step is skipped after a step with this exit status.
func (s Step) skipped(status int) bool {
	return s.Join == "&&" && status != 0 || s.Join == "||" && status == 0
}

// Command is one program with its arguments.
type Command struct {
	Path    string   `json:"path"`
	Args    []string `json:"args"`               // beginning with the name
	In      string   `json:"in,omitempty"`       // regular file, relative to the workspace, links resolved
	NoInput bool     `json:"no_input,omitempty"` // whether the input is empty, even in a pipe
	Input   []byte   `json:"input,omitempty"`    // its input; nil if there is another
	Out     Sink     `json:"out"`
	Err     Sink     `json:"err"`
}

// Rules are Landlock rules. Those for folders apply to everything below, except Folders.
type Rules struct {
	Read    []string `json:"read"`    // may be read and executed
	Data    []string `json:"data"`    // may be read
	Write   []string `json:"write"`   // may be read, executed and written
	Folders []string `json:"folders"` // may be listed
	Watched []string `json:"watched"` // may be read by the copy, but not by programs
	Closed  bool     `json:"closed"`  // refuse TCP, from ABI 4 on
	ABI     int      `json:"abi"`     // version of Landlock in the kernel
}

// Held is a path in the workspace that is mounted over itself: a protected path, read-only, or a
// folder above one, so that it cannot be renamed. Dev and Ino identify the file, to verify in the
// sandbox that it was not replaced.
type Held struct {
	Path string `json:"path"`
	Dev  uint64 `json:"dev"`
	Ino  uint64 `json:"ino"`

	Open bool `json:"open,omitempty"` // whether it can be written
}

// Cache is a folder with build caches that stay as they are: what a job writes to At is in Upper. Work is a folder for
// the file system. All are folders of the same file system, except Lower.
type Cache struct {
	Lower string `json:"lower"`
	Upper string `json:"upper"`
	Work  string `json:"work"`
	At    string `json:"at"`
}

// Outcome is how a job ended.
type Outcome struct {
	Exit    int    `json:"exit"`
	Signal  string `json:"signal,omitempty"`
	Stopped bool   `json:"stopped,omitempty"` // whether it was stopped from outside
	Problem string `json:"problem,omitempty"` // why a program could not be started
	Program string `json:"program,omitempty"` // name of that program
	Setup   string `json:"setup,omitempty"`   // why the sandbox could not be created
	// Unreachable reports whether a program of a job with Loopback tried to reach more than the loopback.
	Unreachable bool `json:"unreachable,omitempty"`
	// Refused reports whether one tried to connect to a port of the loopback on which nothing listened.
	Refused bool `json:"refused,omitempty"`
}

// Sink is the destination of stdout or stderr of a command.
type Sink string

// Sinks.
const (
	ToOut  Sink = "out" // the next command of the pipeline, or stdout of the result
	ToErr  Sink = "err" // stderr of the result
	ToNull Sink = "null"
)

// Bounds of a job, over all of its processes. Programs of the built-in table run unasked, so their bound is lower.
const (
	MaxMemory      = 4 << 30 // bytes, including swapped ones
	MaxTableMemory = 1 << 30 // the same for programs of the built-in table
	MaxDisk        = 8 << 30 // bytes by which the free space on a disk may shrink, but at most half of it
)
