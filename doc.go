// Package toolcrib defines the basic types of toolcrib, the runtime between language models and tools:
// messages and their parts, tools and models, principals, runs, events, and the three interfaces that
// connect everything else ([Tool], [Model], [Journal]).
//
// The package imports only the standard library and does no I/O. The loop is in package agent, the
// decisions in package gate, the durable record in packages journal and store.
//
// Stored data is plain JSON of the types here and in package journal. Fields are added, never renamed
// and never given another meaning, so that an old journal can always be read.
package toolcrib
