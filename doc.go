// Package toolcrib is a library to run language models with tools. A model asks for calls; each is judged before it
// runs, and everything that happens is recorded, so that a run can wait for a person, survive its process, and be
// checked later.
//
// This package has the types that all others share, and the three interfaces that connect them: [Tool], [Model] and
// [Journal]. It imports only the standard library. A program begins with these:
//
//   - agent runs tasks: its Runner asks the model, has the calls judged, and runs those that are allowed.
//   - tool makes a [Tool] of a Go function. The folders below it have the built-in tools.
//   - provider/openai, provider/anthropic, provider/gemini, provider/ollama and provider/llamacpp are models.
//     provider/script plays replies from a file.
//   - gate decides about calls, if a program needs more than the default: rules, switches, people.
//   - store/sqlite keeps runs on disk. Without it they are kept in memory.
//   - team asks several agents one question; mcp has the tools of MCP servers.
//   - toolcribtest has fakes for tests, and suites for implementations of the interfaces.
//
// Stored data is plain JSON of the types here and in package journal. Fields are added, never renamed
// and never given another meaning, so that an old journal can always be read.
package toolcrib
