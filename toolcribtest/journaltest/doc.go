// Package journaltest is the conformance suite of [toolcrib.Journal] and
// [toolcrib.Contents]: every implementation must pass it.
package journaltest
