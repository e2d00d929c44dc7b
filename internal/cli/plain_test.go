package cli_test

import (
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// With the race detector a process takes many times as long to start, and the
// scripts start thousands. So most of them run the binary as it is shipped, and one
// in five the one with the detector: always the same ones, so that what fails can be
// run again.
const racyShare = 5

// plainBinary builds toolcrib as it is shipped; "" = the scripts run the test's own.
func plainBinary(t *testing.T) string {
	t.Helper()
	if !raceDetector {
		return ""
	}
	dir := t.TempDir()
	cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "toolcrib"), "github.com/toolcrib/toolcrib/cmd/toolcrib")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Logf("all scripts run with the race detector: %v\n%s", err, out)
		return ""
	}
	return dir
}

// choose puts the plain binary first on the path of most scripts.
func choose(env *testscript.Env, plain string) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(strings.TrimPrefix(filepath.Base(env.WorkDir), "script-")))
	if plain != "" && h.Sum32()%racyShare != 0 {
		env.Setenv("PATH", plain+string(os.PathListSeparator)+env.Getenv("PATH"))
	}
}
