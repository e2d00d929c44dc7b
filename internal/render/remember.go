package render

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// Rememberable reports whether an approval of any of the calls can hold for later
// ones without a question. What tools.settings.X.confirm: always asks is asked each
// time (contract §2), and so is what taint asks (contract §6).
func Rememberable(calls []journal.ApprovalItem) bool {
	return slices.ContainsFunc(calls, func(c journal.ApprovalItem) bool { return rememberable(c) && !grave(c) })
}

// grave reports whether a call is asked about for more than the policy of confirming:
// for what the run has read, say. Nothing that is remembered lifts that.
func grave(c journal.ApprovalItem) bool {
	return slices.ContainsFunc(c.Questions, func(q journal.Question) bool { return q.Reason != toolcrib.ReasonNeedsConfirmation })
}

// tainted reports whether a call is asked about because of what the run has read.
func tainted(c journal.ApprovalItem) bool {
	return slices.ContainsFunc(c.Questions, func(q journal.Question) bool { return q.Reason == toolcrib.ReasonTaintedFlow })
}

// Storable reports whether anything of these approvals can be remembered at all: what
// tools.settings.X.confirm: always asks cannot.
func Storable(calls []journal.ApprovalItem) bool { return slices.ContainsFunc(calls, rememberable) }

func rememberable(c journal.ApprovalItem) bool {
	return len(gate.RememberKinds(&c)) > 0 && !slices.ContainsFunc(c.Questions, func(q journal.Question) bool {
		return q.Setting == gate.ConfirmSetting(c.Name) && q.Mode == string(gate.ConfirmAlways)
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
		if !rememberable(c) || !ok {
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
		still = "; asked about all the same by " + strings.Join(rules, ", ")
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
