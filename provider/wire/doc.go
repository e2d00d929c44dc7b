// Package wire is shared by the adapters of HTTP model APIs: the client with
// its timeouts and bounds, a reader of server-sent events, a JSON cursor for the
// hot path, the encoding of strings, and the classes of errors.
//
// It does not know any vendor. Everything in it is bounded.
package wire
