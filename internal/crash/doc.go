// Package crash is the crash test: it starts a run in a process of its own, kills
// that process (SIGKILL) at a chosen point, continues in further processes as a
// person would, and compares the end with that of a run that nobody disturbed
// (contract §5, design.md §2).
//
// Where runs start one another the person resumes the run at the top, and decides on
// whichever of them waits; the laws hold for each of them and for what they say of one
// another.
//
// The points are: before, during and after each append to the journal, before and
// after each result that is kept, and before, during and after each effect of a
// tool. An undisturbed run shows how many there are; Harness.Play kills at any
// number of them, one in each process.
//
// A killed process loses no page that it has given to the system, so power loss is
// not tested here: a test of the store's own counters asserts that each kind of
// barrier is committed with a full sync.
//
// TestCrash_Sample plays a seeded sample of this, TestCrash_Sweep all of it. TestServe_Sample does the
// same with servers and their clients. The package has tests only.
package crash
