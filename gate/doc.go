// Package gate is the one place that decides about tools (contract §6): which
// of them a run is offered, and whether a call may run, is refused, or must be
// put to a person.
//
// A [Gate] is made once from the tools and today's policy, and is safe for use by
// many goroutines. [Gate.Offer] makes the offer of a request, [Gate.Judge] judges
// all calls of a turn, [Gate.Explain] reports what the layers answer, with the same
// same code. Only a [Permit] that Judge returned can run a tool. [Gate.SetTools] replaces
// the tools while it runs; an offer, a turn and an explanation are each of one set.
//
// Everything narrows and nothing gives back: the layers ([Layer]) come first, the
// steps that look at the arguments after them, and a person is only asked about a
// call that would otherwise run. The zero value, an error, a panic and an empty
// answer all mean no.
package gate
