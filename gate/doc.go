// Package gate is the one place that decides about tools: which of them a run is offered, and
// whether a call may run, is refused, or must be approved by a person.
//
// A [Gate] is made once from the tools and the current policy, and is safe for use by many
// goroutines. [Gate.Offer] makes the offer of a request, [Gate.Judge] judges all calls of a turn,
// and [Gate.Explain] reports the answers of the layers, with the same code. Only a [Permit] that
// Judge returned can run a tool. [Gate.SetTools] replaces the tools at any time; each offer, turn
// and explanation uses one set.
//
// Every step narrows, and no step restores what another refused. The layers ([Layer]) come first,
// then the steps that look at the arguments. A person is asked only about a call that would
// otherwise run. The zero value, an error, a panic and an empty answer all mean no.
package gate
