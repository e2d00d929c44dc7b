// Package ollama contains only tests: our adapters talk to a real Ollama, built from its Go module, which serves a
// model of a few hundred kilobytes that the tests create. Its matrices let each token determine the next, so that
// it plays a script: a tool call, an answer, JSON, thinking. The tests therefore check Ollama's own templates,
// parsers, streams and errors, on its native API and on the APIs that it shares with OpenAI and Anthropic.
//
// The build takes some minutes and needs a C++ compiler and two headers (Debian: nlohmann-json3-dev and
// libstb-dev), so the tests do not run with -short.
package ollama
