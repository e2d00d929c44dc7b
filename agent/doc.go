// Package agent is the loop of toolcrib: ask the model, judge its calls, execute
// what is allowed, write it all down, and again (design.md §1, contract §5).
//
// The loop is a state machine with a pure core. [Fold] builds the [State] of a run
// from its journal, [Next] says what comes next; both touch nothing: no clock, no
// I/O, no randomness. The [Runner] is the thin shell that carries a step out and
// appends what happened. So resume is "fold and go on", and replay is "fold and
// compare".
package agent
