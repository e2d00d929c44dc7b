package gate_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// liner is a tool that runs command lines.
type liner struct{ plainTool }

func (l *liner) Plan(context.Context, toolcrib.Call) (*toolcrib.Plan, error) {
	return &toolcrib.Plan{CommandLine: true, Run: l.Call}, nil
}

// folder makes folders below a temporary one, and returns that.
func folder(t *testing.T, names ...string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func link(t *testing.T, to, at string) {
	t.Helper()
	if err := os.Symlink(to, at); err != nil {
		t.Skip("links cannot be made here: ", err)
	}
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// Contract §6: where the workspace or a file differs from what an approval was shown
// for, the call is asked about again, and it is said what differs.
func TestH16_ApprovalIsBound(t *testing.T) {
	one := toolcrib.FileState{Path: "/w/a", State: "sha256:1"}
	for name, c := range map[string]struct {
		files [2][]toolcrib.FileState
		swap  func(t *testing.T, ws string)
		want  string // "" = it runs
	}{
		"nothing":         {files: [2][]toolcrib.FileState{{one}, {one}}},
		"a file changed":  {files: [2][]toolcrib.FileState{{one}, {{Path: "/w/a", State: "sha256:2"}}}, want: "/w/a has been changed since"},
		"a file made":     {files: [2][]toolcrib.FileState{{{Path: "/w/a", State: toolcrib.FileAbsent}}, {one}}, want: "/w/a has been made since"},
		"a file gone":     {files: [2][]toolcrib.FileState{{one}, {{Path: "/w/a", State: toolcrib.FileAbsent}}}, want: "/w/a is gone since"},
		"another file":    {files: [2][]toolcrib.FileState{{one}, {{Path: "/w/b", State: "sha256:1"}}}, want: "the call writes /w/b now, not /w/a"},
		"one more file":   {files: [2][]toolcrib.FileState{{one}, {one, one}}, want: "the call changes other files now"},
		"what is in it":   {swap: func(t *testing.T, ws string) { must(t, os.Mkdir(filepath.Join(ws, "new"), 0o700)) }},
		"moved and back":  {swap: func(t *testing.T, ws string) { must(t, os.Rename(ws, ws+"2"), os.Rename(ws+"2", ws)) }},
		"gone":            {swap: func(t *testing.T, ws string) { must(t, os.Remove(ws)) }, want: "ws is gone"},
		"made again":      {swap: func(t *testing.T, ws string) { must(t, os.Remove(ws), os.Mkdir(ws, 0o700)) }, want: "ws is another folder of the same name now"},
		"another by name": {swap: func(t *testing.T, ws string) { must(t, os.Rename(ws, ws+"2"), os.Mkdir(ws, 0o700)) }, want: "ws is another folder of the same name now"},
		"a link": {swap: func(t *testing.T, ws string) {
			must(t, os.Rename(ws, ws+"2"))
			link(t, ws+"2", ws)
		}, want: "ws leads to "},
	} {
		t.Run(name, func(t *testing.T) {
			ws := filepath.Join(folder(t, "ws"), "ws")
			now := 0
			g := newGate(t, &fullTool{plainTool: plainTool{writes("x")}, files: func() ([]toolcrib.FileState, error) {
				return c.files[now], nil
			}})
			s, f := wide(), offering(g)
			s.Workspace = ws
			first := judge(t, g, alice(), s, f, call("1", "x", `{}`))[0]
			wantAsked(t, first)
			if now = 1; c.swap != nil {
				c.swap(t, ws)
			}
			f.Decided = map[string]gate.Decided{"1": approve(first)}
			v := judge(t, g, alice(), s, f, call("1", "x", `{}`))[0]
			if c.want == "" {
				wantAllowed(t, v)
				if got := v.Permit.Call().Approved; len(got) != len(c.files[1]) {
					t.Errorf("the call knows of %v", got)
				}
				return
			}
			wantAsked(t, v)
			if !strings.Contains(v.Changed, c.want) || !strings.HasPrefix(v.Message, "asked again: "+v.Changed+"; x writes") {
				t.Errorf("changed %q, message %q; want %q", v.Changed, v.Message, c.want)
			}
			// As of then it is not looked at how things are.
			f.Past = true
			wantAllowed(t, judge(t, g, alice(), s, f, call("1", "x", `{}`))[0])
			// If no person can be asked, it is refused.
			f.Past, s.Unattended = false, true
			wantRefused(t, judge(t, g, alice(), s, f, call("1", "x", `{}`))[0], toolcrib.ReasonNeedsConfirmation, "")
			// Asked again and approved, it runs.
			s.Unattended, f.Decided["1"] = false, approve(v)
			wantAllowed(t, judge(t, g, alice(), s, f, call("1", "x", `{}`))[0])
		})
	}
}

// An approval without anything that it is bound to is none.
func TestH16_UnboundIsAskedAgain(t *testing.T) {
	g := newGate(t, tool(writes("x")))
	f := offering(g)
	d := approve(asked(t, g, call("1", "x", `{}`)))
	d.Binding = nil
	f.Decided = map[string]gate.Decided{"1": d}
	v := judge(t, g, alice(), wide(), f, call("1", "x", `{}`))[0]
	wantAsked(t, v)
	if v.Changed == "" {
		t.Error("it is not said why")
	}
}

// N21: a call whose changes are unknown is refused, because an approval could not be compared with it.
func TestN21_BindFails(t *testing.T) {
	for name, bind := range map[string]func() ([]toolcrib.FileState, error){
		"an error":                  func() ([]toolcrib.FileState, error) { return nil, errors.New("password=1") },
		"a panic":                   func() ([]toolcrib.FileState, error) { panic("password=1") },
		"an error made to be shown": func() ([]toolcrib.FileState, error) { return nil, toolcrib.Failf(toolcrib.NotFound, "a") },
	} {
		g := newGate(t, &fullTool{plainTool: plainTool{writes("x")}, files: bind})
		v := judgeOne(t, g, call("1", "x", `{}`))
		wantRefused(t, v, toolcrib.ReasonToolPolicy, "")
		if strings.Contains(v.Content, "password") || v.Binding != nil || v.Questions != nil {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// Contract §6: a remembered decision holds in its workspace only; for file writes it
// names a path or a folder.
func TestH16_RememberedInItsWorkspace(t *testing.T) {
	dir := folder(t, "one/notes", "two", "alike")
	if runtime.GOOS != "windows" {
		link(t, "one", filepath.Join(dir, "linked"))
	}
	at := ""
	write := fullTool{plainTool: plainTool{writes("put")}, targets: func(toolcrib.Call) []toolcrib.Target {
		return []toolcrib.Target{{Kind: toolcrib.TargetFile, Name: at, Write: true}, {Kind: "host", Name: "h", Write: true}}
	}}
	write.files = func() ([]toolcrib.FileState, error) { return []toolcrib.FileState{{Path: at, State: "x"}}, nil }
	g := newGate(t, &write, &liner{plainTool{writes("sh")}}, tool(writes("other")))
	ask := func(name, workspace string, remembered ...journal.Remembered) gate.Verdict {
		t.Helper()
		s, f := wide(), offering(g)
		s.Workspace, f.Remembered = filepath.Join(dir, workspace), remembered
		return judge(t, g, alice(), s, f, call("1", name, `{"n":1}`))[0]
	}
	remember := func(name, kind string) journal.Remembered {
		t.Helper()
		at = filepath.Join(dir, "one", "notes", "a")
		v := ask(name, "one")
		item := &journal.ApprovalItem{Name: name, Arguments: []byte(`{"n":1}`), Effect: v.Effect, Binding: v.Binding}
		m, ok := journal.Remember{Scope: "user", Calls: kind}.Extend(&journal.ConfirmationResolved{By: "ann"}, item)
		if !ok {
			t.Fatalf("%s is not remembered by %q", name, kind)
		}
		return m
	}
	for _, c := range []struct {
		tool, kind, workspace, at string
		want                      toolcrib.Decision
	}{
		{"put", "", "one", "one/notes/a", toolcrib.Allow},
		{"put", "", "one", "one/notes/b", toolcrib.Ask},
		{"put", "", "two", "one/notes/a", toolcrib.Ask},
		{"put", "folder", "one", "one/notes/b", toolcrib.Allow},
		{"put", "folder", "one", "one/notes/deep/b", toolcrib.Allow},
		{"put", "folder", "one", "one/notes", toolcrib.Ask},
		{"put", "folder", "one", "one/notes2/b", toolcrib.Ask},
		{"put", "folder", "one", "one/b", toolcrib.Ask},
		{"put", "folder", "two", "one/notes/b", toolcrib.Ask},
		{"put", "arguments", "one", "one/notes/a", toolcrib.Allow},
		{"put", "arguments", "one", "one/notes/b", toolcrib.Ask}, // the same arguments lead elsewhere
		{"sh", "", "one", "", toolcrib.Allow},
		{"sh", "", "two", "", toolcrib.Ask},
		{"sh", "", "gone", "", toolcrib.Ask},
		{"other", "tool", "one", "", toolcrib.Allow},
		{"other", "tool", "two", "", toolcrib.Ask},
	} {
		m := remember(c.tool, c.kind)
		at = filepath.Join(dir, filepath.FromSlash(c.at))
		if v := ask(c.tool, c.workspace, m); v.Decision != c.want {
			t.Errorf("%+v: %q %s", c, v.Decision, v.Message)
		}
	}
	if runtime.GOOS != "windows" {
		if v := ask("sh", "linked", remember("sh", "")); v.Decision != toolcrib.Allow {
			t.Errorf("by a link to the same folder: %q", v.Decision)
		}
	}
	m := remember("sh", "")
	must(t, os.Rename(filepath.Join(dir, "one"), filepath.Join(dir, "was")), os.Rename(filepath.Join(dir, "alike"), filepath.Join(dir, "one")))
	if v := ask("sh", "one", m); v.Decision != toolcrib.Ask {
		t.Errorf("in another folder of the same name: %q", v.Decision)
	}
	if gate.ValidIn(filepath.Join(dir, "one"), &m) || gate.ValidIn(filepath.Join(dir, "was"), &m) {
		t.Error("it holds by the name or by the folder alone")
	}
}

// What can be remembered of a call follows from what it is bound to.
func TestH16_RememberKinds(t *testing.T) {
	file := toolcrib.FileState{Path: "/w/a", State: "x"}
	here := func(line bool, files ...toolcrib.FileState) *journal.Binding {
		return &journal.Binding{Workspace: "/w", LeadsTo: "/w", FolderID: "1", CommandLine: line, Files: files}
	}
	for name, c := range map[string]struct {
		binding *journal.Binding
		effect  toolcrib.Effect
		want    string
	}{
		"not bound":      {nil, toolcrib.EffectIdempotentWrite, ""},
		"workspace gone": {&journal.Binding{Workspace: "/w"}, toolcrib.EffectIdempotentWrite, ""},
		"several files":  {here(false, file, file), toolcrib.EffectIdempotentWrite, ""},
		"a file":         {here(false, file), toolcrib.EffectIdempotentWrite, "path folder arguments"},
		"a line":         {here(true), "", "arguments"},
		"repeatable":     {here(false), toolcrib.EffectIdempotentWrite, "tool arguments"},
		"not repeatable": {here(false), "", "arguments tool"},
		"no workspace":   {&journal.Binding{}, toolcrib.EffectIdempotentWrite, "tool arguments"},
	} {
		item := &journal.ApprovalItem{Name: "x", Effect: c.effect, Binding: c.binding, Arguments: []byte(`{}`)}
		kinds := item.RememberKinds()
		if got := strings.Join(kinds, " "); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		for _, kind := range []string{"tool", "arguments", "path", "folder", "all"} {
			_, ok := journal.Remember{Scope: "run", Calls: kind}.Extend(&journal.ConfirmationResolved{}, item)
			if ok != strings.Contains(" "+c.want+" ", " "+kind+" ") {
				t.Errorf("%s by %s: %v", name, kind, ok)
			}
		}
	}
}
