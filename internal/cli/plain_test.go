package cli_test

import (
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// racyShare returns how many scripts there are for each that runs with the race detector. With it a process takes
// four times as long to start, and the scripts start thousands. So with -short most of them run the binary as it
// is shipped: always the same ones, so that what fails can be run again. scripts/sweep runs all with the detector.
func racyShare() uint32 {
	if testing.Short() {
		return 16
	}
	return 1
}

// plainBinary returns the folder of toolcrib as it is shipped, which is built once for all
// tests; if "", the scripts run the test's own.
func plainBinary(t *testing.T) string {
	t.Helper()
	dir, err := builtPlain()
	if err != nil {
		t.Logf("all scripts run with the race detector: %v", err)
	}
	return dir
}

// builtPlain builds beside the test's own programs, so that it is removed with them.
var builtPlain = sync.OnceValues(func() (string, error) {
	if !raceDetector {
		return "", nil
	}
	own, err := exec.LookPath("toolcrib")
	if err != nil {
		return "", err
	}
	dir := filepath.Join(filepath.Dir(own), "plain")
	cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "toolcrib"), "github.com/toolcrib/toolcrib/cmd/toolcrib")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS="+os.Getenv("GOFLAGS")+" -buildvcs=false") // compiled as the rest
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return dir, nil
})

// shippedPath returns a PATH whose toolcrib is, with -short, the one that is shipped.
func shippedPath(t *testing.T) string {
	t.Helper()
	path := os.Getenv("PATH")
	if plain := plainBinary(t); plain != "" && testing.Short() {
		return plain + string(os.PathListSeparator) + path
	}
	return path
}

// choose puts the plain binary first on the path of most scripts.
func choose(env *testscript.Env, plain string) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(strings.TrimPrefix(filepath.Base(env.WorkDir), "script-")))
	if plain != "" && h.Sum32()%racyShare() != 0 {
		env.Setenv("PATH", plain+string(os.PathListSeparator)+env.Getenv("PATH"))
	}
}
