package propose

import (
	"encoding/json"
	"path/filepath"
	"slices"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// Asked returns a rule that would let calls like this one pass; nil if none is narrow
// enough, or none would lift the question: a rule of the configuration asks, taint does,
// or tools.settings.X.confirm: always.
func Asked(c *journal.ApprovalItem) *Rule {
	if len(c.Questions) != 1 || c.Questions[0].Setting == "" || !Rememberable([]journal.ApprovalItem{*c}) {
		return nil
	}
	return For(c)
}

// Rememberable reports whether an approval of any of the calls can hold for later
// ones without a question. What tools.settings.X.confirm: always asks is asked each
// time (contract §2), and so is what taint asks (contract §6).
func Rememberable(calls []journal.ApprovalItem) bool {
	return slices.ContainsFunc(calls, func(c journal.ApprovalItem) bool { return rememberable(c) && !grave(c) })
}

// grave reports whether a call is asked about for more than the policy of confirming:
// for what the run has read, say. Nothing that is remembered lifts that, except for a program
// that is not listed: exactly that line.
func grave(c journal.ApprovalItem) bool {
	return slices.ContainsFunc(c.Questions, func(q journal.Question) bool {
		return q.Reason != toolcrib.ReasonNeedsConfirmation && (q.Reason != toolcrib.ReasonUnlistedProgram || !ofLine(c))
	})
}

func ofLine(c journal.ApprovalItem) bool { return c.Binding != nil && c.Binding.CommandLine }

// Always returns what "always" says on a terminal: for the rest of the run, and for nothing but
// command lines with programs that are not listed, for this user in this workspace.
func Always(calls []journal.ApprovalItem) journal.Remember {
	unlisted := func(q journal.Question) bool { return q.Reason == toolcrib.ReasonUnlistedProgram }
	if len(calls) == 0 || slices.ContainsFunc(calls, func(c journal.ApprovalItem) bool {
		return !ofLine(c) || !slices.ContainsFunc(c.Questions, unlisted)
	}) {
		return journal.Remember{Scope: journal.RememberRun}
	}
	return journal.Remember{Scope: journal.RememberUser}
}

// Storable reports whether anything of these approvals can be remembered at all: what
// tools.settings.X.confirm: always asks cannot.
func Storable(calls []journal.ApprovalItem) bool { return slices.ContainsFunc(calls, rememberable) }

func rememberable(c journal.ApprovalItem) bool {
	return len(gate.RememberKinds(&c)) > 0 && !slices.ContainsFunc(c.Questions, func(q journal.Question) bool {
		return q.Setting == gate.ConfirmSetting(c.Name) && q.Mode == string(gate.ConfirmAlways)
	})
}

// Covers says which calls an approval that is remembered is about, in its workspace. Names and
// arguments are shown by line and arguments, in at most that many bytes or columns.
func Covers(m gate.Remembered, line func(string, int) string, arguments func(json.RawMessage, int) string) string {
	const most = 400
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
		return text + " with exactly these arguments: " + arguments(m.Arguments, most)
	case m.Path == "":
		return "any call of " + text + " that does no more than this one"
	}
	return text
}
