package render

import (
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// Rememberable tells whether an approval of any of the calls can hold for later
// ones without a question. What tools.settings.X.confirm: always asks is asked each
// time (contract §2), and so is what taint asks (contract §6).
func Rememberable(calls []journal.ApprovalItem) bool {
	return slices.ContainsFunc(calls, func(c journal.ApprovalItem) bool { return rememberable(c) && !tainted(c) })
}

// tainted tells whether a call is asked about because of what the run has read,
// which is the first of the gate's reasons.
func tainted(c journal.ApprovalItem) bool {
	return strings.HasPrefix(c.Reason, "the run has read untrusted data (")
}

// asking are the rules of the configuration that ask about a call: whatever is
// remembered, they ask all the same (contract §6).
func asking(c journal.ApprovalItem) []string {
	var rules []string
	for part := range strings.SplitSeq(c.Reason, "; ") {
		name, ok := strings.CutPrefix(part, "rule ")
		if name, _, found := strings.Cut(name, " asks"); ok && found {
			rules = append(rules, "rule "+line(name, 64))
		}
	}
	return rules
}

// Storable tells whether anything of these approvals can be remembered at all: what
// tools.settings.X.confirm: always asks can not.
func Storable(calls []journal.ApprovalItem) bool { return slices.ContainsFunc(calls, rememberable) }

func rememberable(c journal.ApprovalItem) bool {
	return !strings.HasSuffix(c.Reason, "tools.settings."+c.Name+".confirm is "+string(gate.ConfirmAlways))
}

// RememberText says for which later calls an approval of these holds.
func RememberText(calls []journal.ApprovalItem, r journal.Remember) string {
	var parts, rules []string
	for _, c := range calls {
		if !rememberable(c) {
			continue
		}
		for _, rule := range asking(c) {
			if !slices.Contains(rules, rule) {
				rules = append(rules, rule)
			}
		}
		m := gate.Remember(r, &journal.ConfirmationResolved{}, c.Name, c.Arguments, c.Effect)
		text := "any call of " + line(c.Name, 64) + " that does no more than this one"
		if m.Arguments != nil {
			text = line(c.Name, 64) + " with the same arguments"
		}
		if !slices.Contains(parts, text) {
			parts = append(parts, text)
		}
	}
	still := ""
	if len(rules) > 0 {
		still = "; asked about all the same by " + strings.Join(rules, ", ")
	}
	if slices.ContainsFunc(calls, tainted) {
		still += "; where a run has read untrusted data, as this one has, it is asked about all the same"
	}
	if len(parts) == 0 {
		return "nothing of this can be remembered"
	}
	where := "in this " + r.Scope
	if r.Scope == journal.RememberUser {
		where = "for this user"
	}
	return "not asked again " + where + ": " + strings.Join(parts, "; ") + still
}
