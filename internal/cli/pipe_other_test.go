//go:build !unix

package cli_test

import "github.com/rogpeppe/go-internal/testscript"

func makePipe(ts *testscript.TestScript, _ string) string {
	ts.Fatalf("no named pipes here")
	return ""
}
