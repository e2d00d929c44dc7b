package render

import (
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// Rememberable tells whether an approval of any of the calls can hold for later
// ones. What tools.settings.X.confirm: always asks is asked each time (contract §2).
func Rememberable(calls []journal.ApprovalItem) bool {
	return slices.ContainsFunc(calls, rememberable)
}

func rememberable(c journal.ApprovalItem) bool {
	return !strings.HasSuffix(c.Reason, "tools.settings."+c.Name+".confirm is "+string(gate.ConfirmAlways))
}

// RememberText says for which later calls an approval of these holds.
func RememberText(calls []journal.ApprovalItem, r journal.Remember) string {
	var parts []string
	for _, c := range calls {
		if !rememberable(c) {
			continue
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
	if len(parts) == 0 {
		return "nothing of this can be remembered"
	}
	where := "in this " + r.Scope
	if r.Scope == journal.RememberUser {
		where = "for this user"
	}
	return "not asked again " + where + ": " + strings.Join(parts, "; ")
}
