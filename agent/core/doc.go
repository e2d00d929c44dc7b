// Package core is the pure part of the loop. [Fold] applies the events of a journal to the [State] of
// a run, and [Next] returns the next [Step] of a run in that state.
//
// The package has no clock, no randomness, no goroutine and no input or output, and cannot import
// a tool, the gate, a journal that stores events, or a context; the tests of internal/imports check
// that. So a state depends on the events of its journal alone: resuming a run means folding its journal
// and continuing, and replaying one means folding it and comparing.
package core
