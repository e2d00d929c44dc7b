package render

import (
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// It is said what an approval does not lift: what taint, a rule or a setting asks
// (contract §6).
func TestH16_RememberText(t *testing.T) {
	const (
		confirm = "write_file writes (idempotent_write); tools.confirm is writes"
		always  = "write_file writes (idempotent_write); tools.settings.write_file.confirm is always"
		tainted = "the run has read untrusted data (web_fetch), and write_file writes; "
		text    = "not asked again in this run: any call of write_file that does no more than this one"
		taint   = "; where a run has read untrusted data, as this one has, it is asked about all the same"
	)
	for reason, want := range map[string]string{
		confirm:                                text,
		always:                                 "nothing of this can be remembered",
		"rule a asks; " + always:               "nothing of this can be remembered",
		"rule a asks: Look; " + confirm:        text + "; asked about all the same by rule a",
		"rule a asks":                          text + "; asked about all the same by rule a",
		tainted + confirm:                      text + taint,
		tainted + "rule a asks: b; " + confirm: text + "; asked about all the same by rule a" + taint,
	} {
		item := journal.ApprovalItem{Name: "write_file", Effect: toolcrib.EffectIdempotentWrite, Reason: reason}
		calls := []journal.ApprovalItem{item, item}
		if got := RememberText(calls, journal.Remember{Scope: journal.RememberRun}); got != want {
			t.Errorf("%s: %s, want %s", reason, got, want)
		}
		if Storable(calls) != (want != "nothing of this can be remembered") {
			t.Errorf("%s: storable is %v", reason, Storable(calls))
		}
	}
}

// A decision that names every call is told as one where they agree.
func TestDecision(t *testing.T) {
	yes, edited, no := journal.CallDecision{Decision: journal.DecisionApprove}, journal.CallDecision{Decision: journal.DecisionApprove, Arguments: []byte("{}")}, journal.CallDecision{Decision: journal.DecisionDeny}
	for _, c := range []struct {
		decision string
		open     bool
		calls    map[string]journal.CallDecision
		want     string
		edited   bool
	}{
		{journal.DecisionApprove, false, nil, journal.DecisionApprove, false},
		{journal.DecisionMixed, false, nil, journal.DecisionMixed, false},
		{journal.DecisionMixed, false, map[string]journal.CallDecision{"a": edited}, journal.DecisionApprove, true},
		{journal.DecisionMixed, false, map[string]journal.CallDecision{"a": edited, "b": yes}, journal.DecisionApprove, true},
		{journal.DecisionMixed, false, map[string]journal.CallDecision{"a": edited, "b": no, "c": yes}, journal.DecisionMixed, true},
		{journal.DecisionMixed, false, map[string]journal.CallDecision{"a": no, "b": no}, journal.DecisionDeny, false},
		{journal.DecisionMixed, true, map[string]journal.CallDecision{"a": edited}, journal.DecisionMixed, true},
	} {
		word, changed := Decision(&journal.ConfirmationResolved{Decision: c.decision, Open: c.open, Calls: c.calls})
		if word != c.want || changed != c.edited {
			t.Errorf("%+v: %s, %v", c, word, changed)
		}
	}
}
