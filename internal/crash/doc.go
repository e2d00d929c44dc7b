// Package crash is the crash test: it starts a run in a process of its own, kills that process
// (SIGKILL) at a chosen point, continues in further processes as a person would, and compares the
// result with that of an undisturbed run.
//
// If runs start child runs, the person resumes the topmost run, and decides for any run that waits; the invariants are
// checked for each run and for the records that runs have of each other.
//
// The points are: before, during and after each append to the journal, before and after each result that is stored,
// and before, during and after each effect of a tool. An undisturbed run determines their number; Harness.Play kills at
// any number of them, one in each process.
//
// A killed process loses no page that it has passed to the system, so power loss is not tested here: a
// test of the store's counters asserts that each kind of barrier is committed with a full sync.
//
// TestCrash_Sample plays a seeded sample of the points, TestCrash_Sweep all of them. TestServe_Sample does it with
// servers and their clients, TestServe_Cluster with database, bus and network too, TestServe_Nodes with three nodes.
package crash
