// Command toolcrib is the command line of toolcrib.
package main

import (
	"os"

	"github.com/toolcrib/toolcrib/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }
