// Package offline is the built-in model that needs no network: a few rules over the
// last prompt, so that a newcomer sees a real run within a minute (contract §4). It is
// no language model, and says so.
//
// It drives the tools that it is offered, reads their real results in the messages of
// the request, and keeps nothing between two requests: the same messages always get
// the same reply.
package offline
