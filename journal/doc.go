// Package journal defines the events of a run and how they are stored: the
// bodies of events, their JSON, the hash chain over them, the view for
// clients, and a journal in memory.
//
// Bodies contain all data from which the loop's pure core rebuilds the state of a run.
// They are plain JSON; fields are added, never renamed.
package journal
