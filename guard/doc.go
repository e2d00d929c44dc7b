// Package guard contains the pure functions between tools and models: strict reading
// of tool arguments, and all processing that makes a tool's output safe to be read by a
// model or a person.
//
//   - [Arguments] and [Canonical] read JSON strictly and return its canonical form.
//   - [Clean], [CleanStream], [CleanJSON] and [Visible] remove or show hidden characters.
//   - [Truncate] cuts by type; [Fit] turns a tool's output into the text that a model reads.
//   - [WrapUntrusted] and [WrapToolResult] fence untrusted data.
//   - [Masker], [MaskStream] and [ArgumentStream] replace known secrets by marks, and
//     find them in the arguments of calls; [RedactEnv] and [RedactText] hide text that
//     looks like a secret.
//   - [EscapeJSON] escapes characters that a terminal would interpret.
//   - [Nearest] finds the valid name that is closest to a misspelled one.
//   - [Refusal], [ErrorJSON] and [FaultJSON] write the text that a model reads instead of
//     a result.
//
// Nothing here does I/O, reads a clock or keeps state between calls. All
// functions are safe for concurrent use and do not panic on any input.
//
// JSON strings are written in one way throughout, that of encoding/json without
// HTML escaping: quote and backslash escaped, the short escapes \b \f \n \r \t,
// other control characters and U+2028, U+2029 as \u and four lower-case digits,
// everything else unescaped. So a length computed here is the length that
// encoding/json writes.
package guard
