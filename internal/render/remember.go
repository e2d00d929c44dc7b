package render

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/internal/propose"
	"github.com/toolcrib/toolcrib/journal"
)

// tainted reports whether a call is asked about because of what the run has read.
func tainted(c journal.ApprovalItem) bool {
	return slices.ContainsFunc(c.Questions, func(q journal.Question) bool {
		return q.Reason == toolcrib.ReasonTaintedFlow
	})
}

// RememberedText says which calls an approval that is remembered is about, in its
// workspace.
func RememberedText(m gate.Remembered) string {
	const most = 400 // columns
	text := line(m.Tool, 64)
	if m.Path != "" {
		name := m.Path
		if rel, err := filepath.Rel(m.Workspace, m.Path); err == nil && filepath.IsLocal(rel) {
			name = filepath.ToSlash(rel)
		}
		switch {
		case !m.Folder:
			text += " to " + line(name, most)
		case name == ".":
			text += " to files in the workspace"
		default:
			text += " to files in " + line(name, most) + "/"
		}
	}
	switch {
	case m.Arguments != nil:
		return text + " with exactly these arguments: " + Arguments(m.Arguments, most)
	case m.Path == "":
		return "any call of " + text + " that does no more than this one"
	}
	return text
}

// RememberText says for which later calls an approval of these holds.
func RememberText(calls []journal.ApprovalItem, r journal.Remember) string {
	var parts, rules []string
	place := ""
	add := func(list *[]string, text string) {
		if !slices.Contains(*list, text) {
			*list = append(*list, text)
		}
	}
	for _, c := range calls {
		m, ok := gate.Remember(r, &journal.ConfirmationResolved{}, &c)
		if !propose.Storable([]journal.ApprovalItem{c}) || !ok {
			continue
		}
		for _, q := range c.Questions {
			switch {
			case q.Rule != "":
				add(&rules, "rule "+line(q.Rule, 64))
			case q.Reason == toolcrib.ReasonNeedsConfirmation && q.Setting == "":
				add(&rules, line(c.Name, 64)+" itself")
			}
		}
		add(&parts, RememberedText(m))
		place = m.Workspace
	}
	if len(parts) == 0 {
		return "nothing of this can be remembered"
	}
	still := ""
	if len(rules) > 0 {
		still = "; asked about anyway by " + strings.Join(rules, ", ")
	}
	if slices.ContainsFunc(calls, tainted) {
		still += "; where a run has read untrusted data, as this one has, it is asked about all the same"
	}
	where := "in this " + r.Scope
	if r.Scope == journal.RememberUser {
		where = "for this user"
	}
	if r.Scope != journal.RememberRun && place != "" {
		where += " in the workspace " + place
	}
	return "not asked again " + where + ": " + strings.Join(parts, "; ") + still
}
