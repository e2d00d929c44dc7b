// Package app is the whole of toolcrib as a program of one's own, with further tools.
package app

import (
	"os"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/cli"
	"github.com/toolcrib/toolcrib/tool/shell"
)

// Options are the options of [Main]. The zero value is toolcrib as it is released.
type Options struct {
	// Tools are offered in addition to the built-in ones, under the same policy: each layer of the gate applies to
	// them, and their calls are journaled. A tool with the name of a built-in one is an error at the start.
	Tools []toolcrib.Tool
}

// Main runs the command line of the process, and exits. It must be the first call of the main function: a process that
// keeps other programs in their sandbox is a copy of this one.
func Main(o Options) {
	shell.Main()
	os.Exit(cli.Main(os.Args[1:], o.Tools...))
}
