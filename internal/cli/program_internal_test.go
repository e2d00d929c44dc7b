package cli

import (
	"runtime/debug"
	"testing"
)

// The commands that are printed begin as the program was started: by go run from its temporary folder, from its
// cache the next time, or of a version from anywhere.
func TestProgram(t *testing.T) {
	const cached = "/home/ann/.cache/go-build/b7/b7331e568a41cb665585fba852cc564c6ae74315df8aff4ddb69bf3d6328dffd-d/toolcrib"
	const pkg = "github.com/toolcrib/toolcrib/cmd/toolcrib"
	for _, test := range []struct {
		path, version string
		inClone       bool
		want          string
	}{
		{"/usr/local/bin/toolcrib", "v1.2.3", false, "toolcrib"},
		{"/home/ann/toolcrib/toolcrib", "(devel)", true, "toolcrib"},
		{"/tmp/go-build2068933518/b001/exe/toolcrib", "(devel)", true, "go run ./cmd/toolcrib"},
		{cached, "(devel)", true, "go run ./cmd/toolcrib"},
		{cached, "(devel)", false, "go run " + pkg},
		{cached, "v1.2.3", false, "go run " + pkg + "@v1.2.3"},
	} {
		info := &debug.BuildInfo{Path: pkg, Main: debug.Module{Version: test.version}}
		if got := startedBy(test.path, info, test.inClone); got != test.want {
			t.Errorf("%s %s: %q, want %q", test.path, test.version, got, test.want)
		}
	}
}
