// Package startup makes short commands cheaper: importing it puts the first garbage collection off.
//
// What the packages of the program allocate when it starts is just about what the first collection
// waits for, and nearly all of it stays. So that collection would take a fifth of the CPU time of a
// short command, and free almost nothing. Every later one is as usual.
package startup

import (
	"os"
	"runtime"
	"runtime/debug"
)

// firstGC is the GOGC value until the first collection, which then begins at 16 MB of heap instead of 4.
const firstGC = 400

// The package imports little, so that Go initialises it before most others.
func init() {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return // it was decided by whoever started the program
	}
	usual := debug.SetGCPercent(firstGC)
	// Whatever nothing refers to is found by the first collection.
	runtime.AddCleanup(new([64]byte), func(percent int) { debug.SetGCPercent(percent) }, usual)
}
