package cli_test

import (
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// cmdStreams fails unless the kept events of the files, one after the other, are what
// stdout has: streams FILE... after `runs events RUN --json`.
func cmdStreams(ts *testscript.TestScript, _ bool, args []string) {
	kept := func(text string) (lines []string) {
		for _, l := range strings.Split(strings.TrimSpace(text), "\n") {
			if strings.HasPrefix(l, `{"seq":`) {
				lines = append(lines, l)
			}
		}
		return lines
	}
	var streamed []string
	for _, file := range args {
		streamed = append(streamed, kept(ts.ReadFile(file))...)
	}
	want := strings.Join(kept(ts.ReadFile("stdout")), "\n")
	if got := strings.Join(streamed, "\n"); got != want {
		ts.Fatalf("the streams together are not what was kept; they are:\n%s", got)
	}
}
