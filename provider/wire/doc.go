// Package wire is what the adapters of HTTP model APIs share: the client with
// its timeouts and bounds, a reader of server-sent events, a JSON cursor for the
// hot path, the encoding of strings, and the classes of errors.
//
// It is no adapter itself and does not know any vendor. Everything in it is bounded; the
// defaults are those of contract §2.
package wire
