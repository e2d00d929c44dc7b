package propose

import (
	"encoding/json"
	"path/filepath"
	"slices"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// Asked returns a rule that would allow calls like this one, or nil if none is narrow enough or no rule
// would prevent the question, which comes from a rule of the configuration, from taint, or from
// tools.settings.X.confirm: always.
func Asked(c *journal.ApprovalItem) *api.Rule {
	if len(c.Questions) != 1 || c.Questions[0].Setting == "" || !Rememberable([]journal.ApprovalItem{*c}) {
		return nil
	}
	return For(c)
}

// Rememberable reports whether an approval of any of the calls can apply to later ones without a
// question. Questions of tools.settings.X.confirm: always and of taint are asked each time.
func Rememberable(calls []journal.ApprovalItem) bool {
	return slices.ContainsFunc(calls, func(c journal.ApprovalItem) bool { return rememberable(c) && !grave(c) })
}

// grave reports whether a call needs approval for more than the policy of confirming, for example
// because the run has read untrusted data. A remembered approval cannot replace that, except for
// exactly the same command line with a program that is not listed.
func grave(c journal.ApprovalItem) bool {
	return slices.ContainsFunc(c.Questions, func(q journal.Question) bool {
		return q.Reason != toolcrib.ReasonNeedsConfirmation && (q.Reason != toolcrib.ReasonUnlistedProgram || !ofLine(c))
	})
}

func ofLine(c journal.ApprovalItem) bool { return c.Binding != nil && c.Binding.CommandLine }

// Always returns the scope of "always" on a terminal: the rest of the run, or, if all calls are command
// lines with programs that are not listed, this user in this workspace.
func Always(calls []journal.ApprovalItem) journal.Remember {
	unlisted := func(q journal.Question) bool { return q.Reason == toolcrib.ReasonUnlistedProgram }
	if len(calls) == 0 || slices.ContainsFunc(calls, func(c journal.ApprovalItem) bool {
		return !ofLine(c) || !slices.ContainsFunc(c.Questions, unlisted)
	}) {
		return journal.Remember{Scope: journal.RememberRun}
	}
	return journal.Remember{Scope: journal.RememberUser}
}

// Storable reports whether an approval of any of these calls can be remembered. Those that
// tools.settings.X.confirm: always asks for cannot.
func Storable(calls []journal.ApprovalItem) bool { return slices.ContainsFunc(calls, rememberable) }

func rememberable(c journal.ApprovalItem) bool {
	return len(c.RememberKinds()) > 0 && !slices.ContainsFunc(c.Questions, func(q journal.Question) bool {
		return q.Setting == gate.ConfirmSetting(c.Name) && q.Mode == string(gate.ConfirmAlways)
	})
}

// Covers describes the calls to which a remembered approval applies. It formats names and arguments
// with line and arguments, which get the maximum width.
func Covers(m journal.Remembered, line func(string, int) string, arguments func(json.RawMessage, int) string) string {
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
