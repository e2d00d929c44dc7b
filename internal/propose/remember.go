package propose

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"

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

// Always returns what "always" on a terminal remembers: the widest scope that is safe and, if that is not the
// usual one, the usual one. It applies to the rest of the run or, if there is one, of the session; a program, or a
// command line with programs that are not listed, to this user in this workspace.
func Always(calls []journal.ApprovalItem, session bool) []journal.Remember {
	unlisted := func(q journal.Question) bool { return q.Reason == toolcrib.ReasonUnlistedProgram }
	usual := journal.Remember{Scope: journal.RememberRun}
	if session {
		usual.Scope = journal.RememberSession
	}
	if len(calls) == 0 {
		return []journal.Remember{usual}
	}
	if !slices.ContainsFunc(calls, func(c journal.ApprovalItem) bool {
		return !ofLine(c) || !slices.ContainsFunc(c.Questions, unlisted)
	}) {
		usual.Scope = journal.RememberUser
	}
	wide := usual
	wide.Calls = calls[0].Widest()
	other := func(c journal.ApprovalItem) bool { return c.Widest() != wide.Calls }
	if wide.Calls == "" || slices.ContainsFunc(calls, other) {
		return []journal.Remember{usual}
	}
	if wide.Calls == journal.RememberProgram {
		wide.Scope = journal.RememberUser
	}
	return []journal.Remember{wide, usual}
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
	text, of := line(m.Tool, 64), " to "
	if m.AnyWriter() {
		text, of = "writes", " of "
	}
	switch name := place(&m); {
	case m.Path == "":
	case !m.Folder:
		text += of + line(name, most)
	case name == ".":
		text += of + "files in the workspace"
	default:
		text += of + "files in " + line(name, most) + "/"
	}
	switch {
	case m.Program != "":
		return text + ": " + line(programs(&m), most) + " with any arguments that name no other program, configuration or output"
	case m.Arguments != nil:
		return text + " with exactly these arguments: " + arguments(m.Arguments, most)
	case m.Path == "":
		return "any call of " + text + " that does no more than this one"
	}
	return text
}

// programs returns the programs of a remembered approval as a list of words: a, b and c.
func programs(m *journal.Remembered) string {
	last := max(strings.LastIndex(m.Program, ", "), 0)
	return m.Program[:last] + strings.Replace(m.Program[last:], ", ", " and ", 1)
}

// place returns the path of a remembered approval, relative to the workspace if it is there.
func place(m *journal.Remembered) string {
	if rel, err := filepath.Rel(m.Workspace, m.Path); err == nil && filepath.IsLocal(rel) {
		return filepath.ToSlash(rel)
	}
	return m.Path
}

// Means describes, in the words of a question, the calls to which a remembered approval of call c applies. It returns
// "" if [Covers] describes them.
func Means(m *journal.Remembered, c *journal.ApprovalItem, line func(string, int) string) string {
	const most = 200
	name := line(place(m), most)
	switch {
	case m.Program != "":
		return line(programs(m), most) + " with any arguments, in this workspace"
	case m.Arguments != nil && ofLine(*c):
		return "this very line, in this workspace"
	case !m.AnyWriter():
		return ""
	case m.Folder && name == ".":
		return "writes of files in this workspace"
	case m.Folder:
		return "writes of files in " + name + "/ and below"
	}
	return "writes of " + name
}
