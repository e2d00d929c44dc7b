// Package modeltest tests models: one conformance suite for every
// [toolcrib.Model], a hostile HTTP suite for adapters of model APIs, strict
// checkers of the requests that OpenAI's and Anthropic's APIs accept, servers that
// play those APIs from a script, and recorded replies.
//
// The servers and checkers need no test: programs and benchmarks can use them too.
package modeltest
