package core

import "slices"

// NoticeCanaryLeak reports that the model repeated untrusted data.
const NoticeCanaryLeak = "canary_leak"

// maxTaint bounds the sources of untrusted data that a run names; more of them change no decision.
const maxTaint = 64

// taint records a source of untrusted data that the run has read.
func (s *State) taint(source string) {
	if source == "" {
		source = "unknown"
	}
	if len(s.Taint) < maxTaint && !slices.Contains(s.Taint, source) {
		s.Taint = append(s.Taint, source)
	}
}

// Canary returns the token that the model must not repeat, or "" if it has not seen it yet.
func (s *State) Canary() string {
	if len(s.Taint) == 0 {
		return ""
	}
	return s.Start.Canary
}
