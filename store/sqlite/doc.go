// Package sqlite is the store of toolcrib in one SQLite file: the journal, the
// projections of runs, contents, overrides and the system journal.
//
// The file is in WAL mode and may be used by several processes at once. Each
// process has one connection that writes, owned by one goroutine, which gathers
// what many runs append at the same time into one transaction. An append that
// holds a barrier event is committed with a full sync (synchronous=FULL), any
// other without one: it survives the death of the process at once, and the loss
// of power with the next barrier (design.md §2).
//
// It wraps modernc.org/sqlite, which needs no C compiler.
package sqlite
