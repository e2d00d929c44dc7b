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

// Until the first collection another value holds, then one for a small heap, and the usual one once it is large; what
// the environment says always.
func TestCollections(t *testing.T) {
	if os.Getenv("STARTUP_TEST") != "" {
		first := percent()
		collected := func() int {
			before := percent()
			runtime.GC()
			for end := time.Now().Add(time.Minute); first == firstGC && percent() == before && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			return percent()
		}
		small := collected()
		large := make([]byte, smallHeap)
		t.Log("values: ", first, small, collected())
		runtime.KeepAlive(large)
		return
	}
	for gogc, want := range map[string]string{"": "values:  400 200 100", "50": "values:  50 50 50"} {
		again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=TestCollections", "-test.v")
		again.Env = append(os.Environ(), "STARTUP_TEST=1", "GOMEMLIMIT=", "GOGC="+gogc)
		if out, err := again.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("GOGC=%s: %v\n%s\nwant %s", gogc, err, out, want)
		}
	}
}
