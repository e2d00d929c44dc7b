// Command toolcrib is the command line of toolcrib.
package main

import (
	"os"

	"github.com/toolcrib/toolcrib/internal/cli"
	"github.com/toolcrib/toolcrib/tool/shell"
)

func main() {
	// A copy of this process that keeps a program in its sandbox ends here.
	shell.Main()
	os.Exit(cli.Main(os.Args[1:]))
}
