// Package journal names what can happen in a run, and how it is stored: the
// bodies of events, their JSON, the hash chain over them, the view that clients
// see (contract §8), and a journal in memory.
//
// A body holds all that the loop's pure core needs to rebuild the state of a run
// at that point. Bodies are plain JSON; fields are added, never renamed.
package journal
