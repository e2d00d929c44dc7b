// Package celrule has the rules of a configuration: conditions over a call's
// arguments, written in CEL, that allow, ask about or deny it (contract §2,
// rules). A [Set] of them is the gate's [gate.Rules].
//
// Everything about a rule that can be wrong is found when it is loaded: [New]
// compiles and type-checks every condition, compares the arguments it names with
// the tools' schemas, and returns all problems with their place in the file.
// What can only be seen at a call (an argument that is not there, a division by
// zero, work beyond the bounds) is an error of that rule, and the gate refuses the
// call.
//
// # Bounds
//
// Neither a hostile rule nor hostile arguments can make a decision long or large.
// A condition has at most [MaxExpression] characters, 64 levels and 3 loops in
// each other; all conditions for one call together may cost at most [MaxCost]
// units, each some 100 ns of work at most; no value that a condition makes has more than a
// million parts, where ten bytes of text are one. Cel-go holds them to both; what costs more
// than it looks (searching, replacing, joining, regular expressions) is measured before it is
// done, not afterwards.
//
// The language, as its users see it, is described in docs/rules.md.
package celrule
