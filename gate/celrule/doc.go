// Package celrule implements the rules of a configuration: conditions over the arguments of a call,
// written in CEL, that allow, ask about or deny it. A [Set] of them implements [gate.Rules].
//
// Mistakes in a rule are found when it is loaded: [New] compiles and type-checks every condition,
// compares the arguments it names with the tools' schemas, and returns the problems with their
// place in the file. A failure that only a call can show (a missing argument, a division by zero,
// work beyond the bounds) is an error of that rule, and the gate refuses the call.
//
// # Bounds
//
// Neither hostile rules nor hostile arguments can make a decision slow or large. A condition has at
// most [MaxExpression] characters, 64 levels and 3 nested loops. All conditions for one call
// together may cost at most [MaxCost] units, each at most about 100 ns of work. No value that a
// condition makes has more than a million parts, where ten bytes of text are one part. The cel-go
// library enforces both; operations that cost more than they seem to (searching, replacing,
// joining, regular expressions) are measured before they run.
//
// The language, as its users see it, is described in docs/rules.md.
package celrule
