// Package journal defines the events of a run and how they are stored: the bodies of events, their
// JSON, the hash chain over them, and the view for clients. It has values only. The journals that
// store them are in other packages.
//
// Bodies contain all data from which the loop's pure core rebuilds the state of a run. They are plain
// JSON; fields are added, never renamed.
package journal
