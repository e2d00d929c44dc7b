package render

import (
	"encoding/json"
	"fmt"
	"slices"
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
		text     = "not asked again in this run: writes of notes/a.md"
		byRule   = "; asked about anyway by rule a"
		byTaint  = "; where a run has read untrusted data, as this one has, it is asked about anyway"
		nothing  = "nothing of this can be remembered"
		noAnswer = "not asked again in this run: writes of notes/a.md" + byRule
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
		c.Binding.Source, c.Binding.Files = "builtin", []toolcrib.FileState{{Path: file, State: "sha256:0"}}
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
		{bound("write_file", "/w/notes/a.md"), "user", "", "not asked again for this user in the workspace /w: writes of notes/a.md"},
		{bound("write_file", "/w/notes/a.md"), "session", "folder", "not asked again in this session in the workspace /w: writes of files in notes/"},
		{bound("write_file", "/w/a.md"), "run", "folder", "not asked again in this run: writes of files in the workspace"},
		{bound("write_file", "/w/a.md"), "run", "arguments", "not asked again in this run: write_file to a.md with exactly these arguments: make test"},
		{bound("write_file", "/w/a.md"), "run", "tool", "nothing of this can be remembered"},
		{elsewhere, "run", "", "not asked again in this run: writes of /x[U+202E]/a.md"},
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
	if !always || answer != nil || !strings.Contains(shown, "a: writes of files in this workspace, until this run ends") {
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
			"exec_shell with exactly these arguments: make test; writes of a.md"},
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

// The widest scope that is safe is offered first, in words of what it means, and then the usual one.
func TestH16_AlwaysScopes(t *testing.T) {
	line := bound("exec_shell", "")
	line.Effect, line.Binding.CommandLine, line.Binding.Scope = toolcrib.EffectNonIdempotentWrite, true, "go test"
	line.Questions = []journal.Question{{Reason: toolcrib.ReasonNeedsConfirmation, Setting: "tools.confirm", Mode: "writes"}}
	other, unlisted := line, line
	other.Binding = &journal.Binding{Workspace: "/w", LeadsTo: "/w", FolderID: "1", CommandLine: true}
	unlisted.Questions = append([]journal.Question{{Reason: toolcrib.ReasonUnlistedProgram}}, line.Questions...)
	for _, c := range []struct {
		name    string
		calls   []journal.ApprovalItem
		session bool
		want    string
	}{
		{"a program", []journal.ApprovalItem{line}, false, "" +
			"a always go test …: user program: go test with any arguments, in this workspace, until you revoke it\n" +
			"t always this line: run : this very line, in this workspace, until this run ends\n"},
		{"one that is not listed", []journal.ApprovalItem{unlisted}, true, "" +
			"a always go test …: user program: go test with any arguments, in this workspace, until you revoke it\n" +
			"t always this line: user : this very line, in this workspace, until you revoke it\n"},
		{"a line without a scope", []journal.ApprovalItem{other}, true, "" +
			"a always in this session: session : this very line, in this workspace, until this session ends\n"},
		{"with another line", []journal.ApprovalItem{line, other}, false, "" +
			"a always in this run: run : this very line, in this workspace, until this run ends\n"},
		{"a file", []journal.ApprovalItem{bound("write_file", "/w/notes/a.md")}, true, "" +
			"a always in this folder: session folder: writes of files in notes/ and below, until this session ends\n" +
			"t always this file: session : writes of notes/a.md, until this session ends\n"},
		{"two files", []journal.ApprovalItem{bound("write_file", "/w/notes/a.md"), bound("edit_file", "/w/b.md")}, false, "" +
			"a always in this folder: run folder: writes of files in notes/ and below; writes of files in this workspace, until this run ends\n" +
			"t always in this run: run : writes of notes/a.md; writes of b.md, until this run ends\n"},
		{"another tool", []journal.ApprovalItem{bound("note", "")}, true, "" +
			"a always in this session: session : any call of note that does no more than this one, in this workspace, until this session ends\n"},
	} {
		d := Dialog{
			Question: Question{Ask: journal.ConfirmationRequired{Kind: journal.ApprovalCall, Calls: c.calls}, Session: c.session},
			Style:    Style{Width: 400},
		}
		d.Open()
		if Pressed(d.Keys(), KeyNarrow) != "" {
			t.Errorf("%s: the usual scope is offered before it was shown", c.name)
		}
		d.Press(KeyShow)
		got := ""
		for _, k := range d.Keys() {
			if k.Name != KeyAlways && k.Name != KeyNarrow {
				continue
			}
			shown, answer := d.Press(k.Name)
			if r := answer.Remember; strings.Contains(shown, "not asked again") {
				got += fmt.Sprintf("%s %s: %s %s: %s\n", k.Name, k.Word, r.Scope, r.Calls, AlwaysText(c.calls, *r))
			}
		}
		if got != c.want {
			t.Errorf("%s:\n%swant:\n%s", c.name, got, c.want)
		}
	}
}

// A question about a command has a row each for the command, the reason and what "always" means. The sandbox is shown
// with everything, and a long command keeps both ends in three rows.
func TestH16_CommandInThreeRows(t *testing.T) {
	ask := func(command string) (*Dialog, []string) {
		c := bound("exec_shell", "")
		c.Arguments = json.RawMessage(fmt.Sprintf(`{"command":%q}`, command))
		c.Effect, c.Binding.CommandLine, c.Binding.Scope = toolcrib.EffectNonIdempotentWrite, true, "go test"
		c.Questions = []journal.Question{
			{Reason: toolcrib.ReasonUnlistedProgram, Text: "exec_shell runs what tools.shell.allow does not list: go"},
			{Reason: toolcrib.ReasonNeedsConfirmation, Setting: "tools.confirm", Mode: "writes", Text: "exec_shell writes; tools.confirm is writes"},
		}
		c.Reason = c.Questions[0].Text + "; " + c.Questions[1].Text
		c.Preview = &toolcrib.Preview{Kind: "text", Text: command + "\n\nSandbox: bubblewrap"}
		d := &Dialog{
			Question: Question{Ask: journal.ConfirmationRequired{Kind: journal.ApprovalCall, Calls: []journal.ApprovalItem{c}}},
			Style:    Style{Width: 80},
		}
		return d, strings.Split(strings.TrimSuffix(d.Open(), "\n"), "\n")
	}
	d, rows := ask("go test ./...")
	want := []string{
		"This call needs your approval",
		"● exec_shell go test ./...",
		"    runs what tools.shell.allow does not list: go",
		"· a: go test with any arguments, in this workspace, until you revoke it",
	}
	if !slices.Equal(rows, want) || len(KeyRows(d.Prompt(), 77)) != 1 {
		t.Errorf("%q, %s", rows, d.Prompt())
	}
	if shown, _ := d.Press(KeyShow); !strings.Contains(shown, "Sandbox: bubblewrap") || !strings.Contains(shown, "\n· t: this very line") {
		t.Errorf("show all:\n%s", shown)
	}
	for _, row := range KeyRows(d.Prompt(), 77) {
		if len(row) > 80 {
			t.Errorf("%q", row)
		}
	}
	_, rows = ask("go test " + strings.Repeat("./a/long/path/of/a/package ", 40) + "./END")
	if text := strings.Join(rows, "\n"); len(rows) != 7 || !strings.Contains(text, "│ go test ./a") || !strings.Contains(text, "more]") ||
		!strings.HasSuffix(rows[4], "./END") {
		t.Errorf("%d rows:\n%s", len(rows), text)
	}
}
