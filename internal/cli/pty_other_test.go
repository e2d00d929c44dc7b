//go:build !linux

package cli_test

import "github.com/rogpeppe/go-internal/testscript"

func cmdPTY(ts *testscript.TestScript, _ bool, _ []string) {
	ts.Fatalf("pty: only on Linux; guard the line with [linux]")
}

func answerPTY(ts *testscript.TestScript, _ string, _ []string, _ func(string, int) string) {
	cmdPTY(ts, false, nil)
}

func cmdPTYAhead(ts *testscript.TestScript, _ bool, _ []string) {
	ts.Fatalf("ptyahead: only on Linux; guard the line with [linux]")
}
