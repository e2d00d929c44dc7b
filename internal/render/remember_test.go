package render

import (
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/propose"
	"github.com/toolcrib/toolcrib/journal"
)

// It is said for what an approval holds, and what it does not lift: what taint, a rule or
// a setting asks.
func TestH16_RememberText(t *testing.T) {
	confirm := journal.Question{Reason: toolcrib.ReasonNeedsConfirmation, Setting: "tools.confirm", Mode: "always"}
	always := journal.Question{Reason: toolcrib.ReasonNeedsConfirmation, Setting: "tools.settings.write_file.confirm", Mode: "always"}
	rule := journal.Question{Reason: toolcrib.ReasonNeedsConfirmation, Rule: "a", Text: "rule a asks: tools.settings.write_file.confirm is always"}
	taint := journal.Question{Reason: toolcrib.ReasonTaintedFlow, Sources: []string{"web_fetch"}}
	unlisted := journal.Question{Reason: toolcrib.ReasonUnlistedProgram}
	const (
		text     = "not asked again in this run: write_file to notes/a.md"
		byRule   = "; asked about anyway by rule a"
		byTaint  = "; where a run has read untrusted data, as this one has, it is asked about anyway"
		nothing  = "nothing of this can be remembered"
		noAnswer = "not asked again in this run: write_file to notes/a.md" + byRule
	)
	for name, c := range map[string]struct {
		questions []journal.Question
		want      string
	}{
		"confirm":         {[]journal.Question{confirm}, text},
		"always":          {[]journal.Question{always}, nothing},
		"rule and always": {[]journal.Question{rule, always}, nothing},
		"rule":            {[]journal.Question{rule, confirm}, text + byRule},
		"rule alone":      {[]journal.Question{rule}, noAnswer},
		"unlisted":        {[]journal.Question{unlisted, confirm}, text},
		"taint":           {[]journal.Question{taint, confirm}, text + byTaint},
		"all":             {[]journal.Question{taint, rule, confirm}, text + byRule + byTaint},
	} {
		item := bound("write_file", "/w/notes/a.md")
		item.Questions = c.questions
		calls := []journal.ApprovalItem{item, item}
		if got := RememberText(calls, journal.Remember{Scope: journal.RememberRun}); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if propose.Storable(calls) != (c.want != nothing) {
			t.Errorf("%s: storable is %v", name, propose.Storable(calls))
		}
		if offered := c.want != nothing && c.questions[0].Reason == toolcrib.ReasonNeedsConfirmation; propose.Rememberable(calls) != offered {
			t.Errorf("%s: rememberable is %v", name, propose.Rememberable(calls))
		}
	}
}

// bound is a call that writes a file of the workspace /w; "" = it writes none.
func bound(tool, file string) journal.ApprovalItem {
	c := journal.ApprovalItem{
		Name: tool, Effect: toolcrib.EffectIdempotentWrite, Arguments: []byte(`{"command":"make test"}`),
		Binding: &journal.Binding{Workspace: "/w", LeadsTo: "/w", FolderID: "1"},
	}
	if file != "" {
		c.Binding.Files = []toolcrib.FileState{{Path: file, State: "sha256:0"}}
	}
	return c
}

// For later calls of a session or user it is said in which workspace, and of all calls
// what exactly: a path, a folder, a line.
func TestH16_RememberTextNames(t *testing.T) {
	shell := bound("exec_shell", "")
	shell.Effect, shell.Binding.CommandLine = toolcrib.EffectNonIdempotentWrite, true
	elsewhere := bound("write_file", "/x\u202e/a.md")
	for _, c := range []struct {
		item        journal.ApprovalItem
		scope, kind string
		want        string
	}{
		{bound("write_file", "/w/notes/a.md"), "user", "", "not asked again for this user in the workspace /w: write_file to notes/a.md"},
		{bound("write_file", "/w/notes/a.md"), "session", "folder", "not asked again in this session in the workspace /w: write_file to files in notes/"},
		{bound("write_file", "/w/a.md"), "run", "folder", "not asked again in this run: write_file to files in the workspace"},
		{bound("write_file", "/w/a.md"), "run", "arguments", "not asked again in this run: write_file to a.md with exactly these arguments: make test"},
		{bound("write_file", "/w/a.md"), "run", "tool", "nothing of this can be remembered"},
		{elsewhere, "run", "", "not asked again in this run: write_file to /x[U+202E]/a.md"},
		{shell, "user", "", "not asked again for this user in the workspace /w: exec_shell with exactly these arguments: make test"},
		{shell, "user", "tool", "nothing of this can be remembered"},
		{bound("note", ""), "run", "", "not asked again in this run: any call of note that does no more than this one"},
	} {
		if got := RememberText([]journal.ApprovalItem{c.item}, journal.Remember{Scope: c.scope, Calls: c.kind}); got != c.want {
			t.Errorf("%s by %q: %s, want %s", c.item.Name, c.kind, got, c.want)
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
		{journal.DecisionDeny, false, map[string]journal.CallDecision{"a": edited, "b": no}, journal.DecisionDeny, false},
	} {
		word, changed := (&journal.ConfirmationResolved{Decision: c.decision, Open: c.open, Calls: c.calls}).Overall()
		if word != c.want || changed != c.edited {
			t.Errorf("%+v: %s, %v", c, word, changed)
		}
	}
}

// Where all is shown, it says what "always" would mean before a key says it.
func TestH16_ShowTellsWhatAlwaysMeans(t *testing.T) {
	d := Dialog{Question: Question{Ask: journal.ConfirmationRequired{Kind: journal.ApprovalCall, Calls: []journal.ApprovalItem{bound("write_file", "/w/a.md")}}}, Style: Style{Width: 80}}
	d.Open()
	always := Pressed(d.Keys(), KeyAlways) != ""
	shown, answer := d.Press(KeyShow)
	if !always || answer != nil || !strings.Contains(shown, "a: not asked again in this run: write_file to a.md") {
		t.Errorf("always: %v, shown:\n%s", always, shown)
	}
}

// For nothing but lines with programs that are not listed, "always" is for this line in this
// workspace; with anything else it is for the run.
func TestH16_AlwaysOfLines(t *testing.T) {
	line := bound("exec_shell", "")
	line.Effect, line.Binding.CommandLine = toolcrib.EffectNonIdempotentWrite, true
	line.Questions = []journal.Question{
		{Reason: toolcrib.ReasonUnlistedProgram}, {Reason: toolcrib.ReasonNeedsConfirmation, Setting: "tools.confirm", Mode: "writes"},
	}
	listed, tainted := line, line
	listed.Questions = line.Questions[1:]
	tainted.Questions = append([]journal.Question{{Reason: toolcrib.ReasonTaintedFlow}}, line.Questions...)
	for _, c := range []struct {
		calls []journal.ApprovalItem
		want  string
	}{
		{[]journal.ApprovalItem{line}, "always this line here: not asked again for this user in the workspace /w: exec_shell with exactly these arguments: make test"},
		{[]journal.ApprovalItem{listed}, "always in this run: not asked again in this run: exec_shell with exactly these arguments: make test"},
		{[]journal.ApprovalItem{line, bound("write_file", "/w/a.md")}, "always in this run: not asked again in this run: " +
			"exec_shell with exactly these arguments: make test; write_file to a.md"},
		{[]journal.ApprovalItem{tainted}, ""},
	} {
		d := Dialog{Question: Question{Ask: journal.ConfirmationRequired{Kind: journal.ApprovalCall, Calls: c.calls}}, Style: Style{Width: 400}}
		d.Open()
		got := ""
		for _, k := range d.Keys() {
			if k.Name == KeyAlways {
				shown, _ := d.Press(KeyAlways)
				got = k.Word + ": " + strings.TrimSpace(strings.TrimPrefix(shown, "· "))
			}
		}
		if got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}
