// Package celrule implements the rules of a configuration: conditions over the arguments of a call,
// written in CEL, that allow, ask about or deny it. A [Set] of them implements [gate.Rules].
//
// Mistakes in a rule are found when it is loaded: [New] compiles every condition, type-checks it
// with the types that the tools' schemas give the arguments, and returns the problems with their
// place in the file. A failure that only a call can show (a missing argument, a division by zero,
// work beyond the bounds) is an error of that rule, and the gate refuses the call.
//
// # Bounds
//
// Rules come from a trusted file, arguments do not: no arguments can make a decision slow or large.
// A condition has at most [MaxExpression] characters, 64 levels and loops nested 3 deep. All
// conditions for one call together may cost at most [MaxCost] units, each at most about 100 ns of
// work. No value that a condition makes has more than a million parts, where ten bytes of text are
// one part. The cel-go library enforces these; operations that cost more than they seem to
// (searching, replacing, joining, regular expressions) are measured before they run.
//
// The language, as its users see it, is described in docs/rules.md.
package celrule
