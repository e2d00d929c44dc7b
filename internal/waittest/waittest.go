// Package waittest has tests wait for what another goroutine, process or server does, where it sends no event.
package waittest

import "time"

// Patience bounds each wait: a machine that has other things to do makes no test fail.
const Patience = 3 * time.Minute

// every is the time between two looks.
const every = 10 * time.Millisecond

// T is the part of [testing.TB] that is needed, which is also in a script of testscript.
type T interface {
	Fatalf(format string, args ...any)
}

// Until returns as soon as is returns true. The test fails if that takes longer than [Patience].
func Until(t T, what string, is func() bool) {
	if t, ok := t.(interface{ Helper() }); ok {
		t.Helper()
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for end := time.Now().Add(Patience); !is(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("it never came to: %s", what)
		}
	}
}
