package startup

import (
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

// percent returns the GOGC value that holds now.
func percent() int {
	now := debug.SetGCPercent(firstGC)
	debug.SetGCPercent(now)
	return now
}

// Until the first collection another value holds, afterwards the usual one; what the environment says always.
func TestFirstCollection(t *testing.T) {
	if os.Getenv("STARTUP_TEST") != "" {
		first := percent()
		runtime.GC()
		for end := time.Now().Add(time.Minute); first == firstGC && percent() == firstGC && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		t.Log("values: ", first, percent())
		return
	}
	for gogc, want := range map[string]string{"": "values:  400 100", "50": "values:  50 50"} {
		again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=TestFirstCollection", "-test.v")
		again.Env = append(os.Environ(), "STARTUP_TEST=1", "GOMEMLIMIT=", "GOGC="+gogc)
		if out, err := again.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("GOGC=%s: %v\n%s\nwant %s", gogc, err, out, want)
		}
	}
}
