// Package toolcribtest has fakes for testing what is built on toolcrib: a clock
// that stands still, a model that says what it is told to, a tool that records
// its calls. None of them touches a network, a disk or the real time.
//
// The packages below it hold one suite for each interface, to run against every
// implementation: tooltest, modeltest, journaltest, gatetest.
package toolcribtest
