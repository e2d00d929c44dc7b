// Command tamper changes every byte of a database with finished runs, one after
// another, and then every kind of row, and prints how each change is found: when
// the database is opened, by its chains, seal and projections, or by SQLite's own
// check. A change that nobody finds must have changed no row. It fails if one is
// missed.
//
//	go run ./tamper [-v]
//
// The work is that of TestTampered… in store/sqlite, which takes a sample; this
// takes some minutes on two processors.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
)

func main() {
	verbose := flag.Bool("v", false, "print each test, not only what it found")
	flag.Parse()
	if err := run(*verbose); err != nil {
		fmt.Fprintln(os.Stderr, "tamper:", err)
		os.Exit(1)
	}
}

func run(verbose bool) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	module, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/toolcrib/toolcrib").Output()
	if err != nil {
		return fmt.Errorf("find the module: %w", err)
	}
	test := exec.CommandContext(ctx, "go", "test", "-count=1", "-timeout=6h", "-v", "-run=Tampered", "./store/sqlite",
		"-tamper=all")
	test.Dir, test.Stderr = strings.TrimSpace(string(module)), os.Stderr
	out, err := test.Output()
	for line := range strings.Lines(string(out)) {
		if verbose || err != nil || strings.Contains(line, "_test.go:") {
			fmt.Print(line)
		}
	}
	return err
}
