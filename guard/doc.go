// Package guard holds the pure functions between tools and models: strict reading
// of tool arguments, and everything that makes a tool's output fit to be read by a
// model or a person (contract §7, §11; rows C10, C14, N13, N24).
//
//   - [Arguments] and [Canonical] read JSON strictly and give it one spelling.
//   - [Clean], [CleanStream], [CleanJSON] and [Visible] take out or show hidden characters.
//   - [Truncate] cuts by type; [Fit] goes from a tool's output to what is read.
//   - [WrapUntrusted] and [WrapToolResult] fence untrusted data.
//   - [Masker], [MaskStream] and [ArgumentStream] put marks in place of known secrets, and
//     find them in the arguments of calls; [RedactEnv] and [RedactText] hide what looks
//     like one.
//   - [EscapeJSON] escapes what a terminal would act on.
//   - [Nearest] finds the name that a wrong one may have meant.
//   - [Refusal], [ErrorJSON] and [FaultJSON] write what a model reads instead of a
//     result.
//
// Nothing here does I/O, looks at a clock or keeps state between calls. All
// functions are safe for concurrent use and never panic, whatever the bytes.
//
// One spelling of JSON strings is used throughout, that of encoding/json without
// HTML escaping: quote and backslash escaped, the short escapes \b \f \n \r \t,
// other control characters and U+2028, U+2029 as \u and four lower-case digits,
// everything else as it is. So a length computed here is the length that
// encoding/json writes.
package guard
