package cli

import (
	"os"

	"github.com/toolcrib/toolcrib/internal/config"
)

// RemoteCommands are the commands that work against a server.
var RemoteCommands = remoteCommands

// MainWith is [Main] with a function that may change each configuration before it is used.
func MainWith(args []string, before func(c *config.Config, dataDir string)) int {
	a := newApp(os.Stdin, os.Stdout, os.Stderr)
	a.before = before
	return a.main(args)
}
