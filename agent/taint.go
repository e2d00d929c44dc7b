package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// NoticeCanaryLeak tells that the model repeated untrusted data (X12).
const NoticeCanaryLeak = "canary_leak"

// maxTaint bounds how many sources of untrusted data a run names; one more changes
// nothing in what is decided.
const maxTaint = 64

// newCanary makes the token that marks untrusted data of one run (contract §7).
func (r *Runner) newCanary() string {
	sum := sha256.Sum256([]byte(r.NewID("canary_")))
	return guard.CanaryPrefix + strings.ToUpper(hex.EncodeToString(sum[:8]))
}

// taint notes a source of untrusted data that the run has read.
func (s *State) taint(source string) {
	if source == "" {
		source = "unknown"
	}
	if len(s.Taint) < maxTaint && !slices.Contains(s.Taint, source) {
		s.Taint = append(s.Taint, source)
	}
}

// canary is what must not show up in what the model says; "" as long as it has not
// seen it.
func (s *State) canary() string {
	if len(s.Taint) == 0 {
		return ""
	}
	return s.Start.Canary
}

// redactCanary takes the canary out of a reply and its calls, and tells what to
// write down about it.
func (d *driver) redactCanary(reply *toolcrib.Reply, calls []journal.ToolCall) []toolcrib.Body {
	canary := d.s.canary()
	if canary == "" {
		return nil
	}
	answered, called := 0, 0
	for i := range reply.Message.Parts {
		if p := &reply.Message.Parts[i]; p.ToolCall == nil && p.Thinking == nil {
			var n int
			p.Text, n = guard.RedactCanary(p.Text, canary)
			answered += n
		}
	}
	for i := range calls {
		// In canonical JSON a token of letters and digits stands as it is.
		arguments, n := guard.RedactCanary(string(calls[i].Arguments), canary)
		if n > 0 {
			calls[i].Arguments = []byte(arguments)
		}
		broken, m := guard.RedactCanary(calls[i].Broken, canary)
		calls[i].Broken = broken
		called += n + m
	}
	var bodies []toolcrib.Body
	leak := func(n int, where string) {
		if n > 0 {
			bodies = append(bodies, &journal.Notice{Notice: toolcrib.Notice{
				Code:    NoticeCanaryLeak,
				Message: fmt.Sprintf("the model repeated the mark of untrusted data in %s (%d times); it was taken out", where, n),
			}})
		}
	}
	leak(answered, "its text")
	leak(called, "the arguments of calls")
	return bodies
}

// forAPerson are the calls of the turn that nothing but a person's word lets pass.
func (t *Turn) forAPerson() map[string]bool {
	var ids map[string]bool
	for _, c := range t.open() {
		if c.Verdict.ForAPerson() {
			if ids == nil {
				ids = make(map[string]bool)
			}
			ids[c.ID] = true
		}
	}
	return ids
}

// approvedByAll is what --approve all says to an approval: everything, but for what only a
// person can answer (contract §6). nil = there is nothing that it covers.
func (d *driver) approvedByAll(required *journal.ConfirmationRequired) *journal.ConfirmationResolved {
	r := &journal.ConfirmationResolved{
		ApprovalID: required.ApprovalID, Digest: required.Digest, Decision: journal.DecisionApprove, By: ByAll, User: d.s.Start.Principal.User,
	}
	person := d.s.Turn.forAPerson()
	if len(person) == 0 {
		return r
	}
	r.Open, r.Decision, r.Calls = true, journal.DecisionMixed, make(map[string]journal.CallDecision)
	for _, c := range required.Calls {
		if !person[c.ID] {
			r.Calls[c.ID] = journal.CallDecision{Decision: journal.DecisionApprove}
		}
	}
	if len(r.Calls) == 0 {
		return nil
	}
	return r
}
