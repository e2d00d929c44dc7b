// Package startup makes short commands and small servers cheaper: importing it has the garbage collected less often.
//
// What the packages of the program allocate when it starts is just about what the first collection
// waits for, and nearly all of it stays. So that collection would take a fifth of the CPU time of a
// short command, and free almost nothing. Later ones come half as often as usual as long as little memory is in use.
package startup

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// firstGC is the GOGC value until the first collection, which then begins at 16 MB of heap instead of 4.
	firstGC = 400
	// smallGC is the GOGC value as long as no collection has left more than smallHeap bytes.
	smallGC   = 200
	smallHeap = 32 << 20
)

// The package imports little, so that Go initialises it before most others.
func init() {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return // it was decided by whoever started the program
	}
	afterNext(smallGC, debug.SetGCPercent(firstGC))
}

// afterNext sets the GOGC value after the next collection: next, or usual for good if more than smallHeap was left.
func afterNext(next, usual int) {
	// Whatever nothing refers to is found by the collection.
	runtime.AddCleanup(new([64]byte), func(usual int) {
		left := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		if metrics.Read(left); left[0].Value.Uint64() > smallHeap {
			debug.SetGCPercent(usual)
			return
		}
		afterNext(0, usual)
		if next != 0 { // else it stays
			debug.SetGCPercent(next)
		}
	}, usual)
}
