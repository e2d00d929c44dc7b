package files_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/files"
	"github.com/toolcrib/toolcrib/toolcribtest/tooltest"
)

// fill makes a small workspace with what the cases below need.
func fill(t *testing.T, workspace string) {
	t.Helper()
	k := &kit{t: t, dir: workspace}
	k.put("notes.txt", "one\ntwo\nthree\n")
	k.put("src/main.go", "package main\n")
	k.put("bin", "\x7fELF\x00\x00")
	k.link("/etc", "out")
	k.link("src", "in")
	k.link("../outside", "up")
	k.link("loop", "loop")
}

func holds(name, content string) func(*testing.T, string, toolcrib.Output) {
	return func(t *testing.T, workspace string, _ toolcrib.Output) {
		t.Helper()
		if data, err := os.ReadFile(filepath.Join(workspace, name)); err != nil || string(data) != content {
			t.Errorf("%s holds %q (%v), want %q", name, data, err, content)
		}
	}
}

// outside are the paths of C11 that no tool takes; more is what else the arguments
// need.
func outside(more string) []tooltest.Case {
	var cases []tooltest.Case
	for name, path := range map[string]string{
		"above": "../x", "above inside": "src/../../x", "absolute": "/etc/passwd", "link": "out/passwd", "link itself": "out",
		"link above": "up", "link loop": "loop", "NUL": `a\u0000b`,
	} {
		cases = append(cases, tooltest.Case{
			Name: name, Arguments: `{"path": "` + path + `"` + more + `}`, Setup: fill, Err: toolcrib.InvalidPath,
		})
	}
	return append(cases, tooltest.Case{Name: "empty", Arguments: `{"path": ""` + more + `}`, Invalid: true, Err: toolcrib.InvalidPath})
}

func TestC11_FileToolsConform(t *testing.T) {
	ok := func(name, arguments string, check func(*testing.T, string, toolcrib.Output)) tooltest.Case {
		return tooltest.Case{Name: name, Arguments: arguments, Setup: fill, Check: check}
	}
	bad := func(name, arguments string, kind toolcrib.ToolErrorKind) tooltest.Case {
		return tooltest.Case{Name: name, Arguments: arguments, Setup: fill, Err: kind}
	}
	more := map[string]string{
		"read_file": "", "list_directory": "", "search_files": `, "pattern": "x"`,
		"write_file": `, "content": "x"`, "edit_file": `, "old_text": "x", "new_text": "y"`,
	}
	cases := map[string][]tooltest.Case{
		"read_file": {
			ok("whole", `{"path": "notes.txt"}`, nil), ok("range", `{"path": "in/../notes.txt", "offset": 2, "limit": 1}`, nil),
			bad("missing", `{"path": "gone"}`, toolcrib.NotFound), bad("binary", `{"path": "bin"}`, toolcrib.ExecutionFailed),
		},
		"list_directory": {ok("all", `{}`, nil), ok("link", `{"path": "in"}`, nil), bad("missing", `{"path": "gone"}`, toolcrib.NotFound)},
		"search_files": {
			ok("lines", `{"pattern": "t.o"}`, nil), ok("names", `{"glob": "*.go"}`, nil),
			bad("pattern", `{"pattern": "("}`, toolcrib.InvalidArguments), bad("glob", `{"glob": "[" }`, toolcrib.InvalidArguments),
			bad("nothing", `{}`, toolcrib.InvalidArguments),
		},
		"write_file": {
			ok("new", `{"path": "a/b/c", "content": "x"}`, holds("a/b/c", "x")), ok("replace", `{"path": "notes.txt", "content": ""}`, holds("notes.txt", "")),
			ok("same", `{"path": "src/main.go", "content": "package main\n"}`, nil), ok("binary", `{"path": "bin", "content": "text"}`, holds("bin", "text")),
			ok("link", `{"path": "in/main.go", "content": "x"}`, holds("src/main.go", "x")), bad("folder", `{"path": "src", "content": "x"}`, toolcrib.InvalidPath),
		},
		"edit_file": {
			ok("once", `{"path": "notes.txt", "old_text": "two", "new_text": "2"}`, holds("notes.txt", "one\n2\nthree\n")),
			bad("twice", `{"path": "notes.txt", "old_text": "e\n", "new_text": "2"}`, toolcrib.InvalidArguments),
			bad("missing", `{"path": "gone", "old_text": "a", "new_text": "b"}`, toolcrib.NotFound),
		},
	}
	for _, tool := range files.New(files.Options{}) {
		name := tool.Spec().Name
		if cases[name] == nil {
			continue // it has a test of its own
		}
		t.Run(name, func(t *testing.T) {
			tooltest.Run(t, func() toolcrib.Tool { return tool }, tooltest.Cases{Calls: append(cases[name], outside(more[name])...)})
		})
		delete(cases, name)
	}
	if len(cases) > 0 {
		t.Errorf("tools without a run: %v", cases)
	}
}

func TestC11_AdmitRefusesEscapes(t *testing.T) {
	k := newKit(t, files.Options{})
	fill(t, k.dir)
	delete(k.tools, "read_asset_meta") // does not say where links lead
	for name, tool := range k.tools {
		for path, want := range map[string]string{
			"../x": "invalid path: path escapes workspace: ../x", "/etc/passwd": "invalid path: path escapes workspace: /etc/passwd",
			"out/passwd": "invalid path: path escapes workspace: out/passwd", "up": "invalid path: path escapes workspace: up",
			k.dir + "x": "invalid path: path escapes workspace: ", "": "invalid path: the path is empty",
			"a\x00b": "invalid path: the path contains a NUL byte", "loop": "invalid path: too many symbolic links: loop",
		} {
			err := tooltest.Refused(tool, k.made(name, args{"path": path}))
			if err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%s %q: %v, want %s", name, path, err, want)
			}
			if got := tooltest.Facts(tool, k.made(name, args{"path": path})).Targets; got != nil {
				t.Errorf("%s %q: targets %v of a path outside", name, path, got)
			}
		}
		for _, path := range []string{"notes.txt", "gone/at/all", k.dir + "/notes.txt", "src/../notes.txt", "in/main.go", "..notes"} {
			if err := tooltest.Refused(tool, k.made(name, args{"path": path})); err != nil {
				t.Errorf("%s %q: %v", name, path, err)
			}
		}
		if err := tooltest.Refused(tool, toolcrib.Call{Arguments: []byte(`{"path":"a"}`)}); err == nil {
			t.Errorf("%s: no workspace, admitted", name)
		}
	}
}

func TestC11_TargetsAreResolved(t *testing.T) {
	k := newKit(t, files.Options{})
	k.put("src/Main.go", "")
	k.put(".git/config", "")
	k.link("src", "in")
	k.link(".git", "innocent")
	k.link("src/later", "dangling")
	k.link(k.dir+"/src", "absolute")
	for path, want := range map[string]string{
		"in/Main.go": "src/Main.go", "in/new/deep": "src/new/deep", "innocent/config": ".git/config", "innocent/hooks/x": ".git/hooks/x",
		"dangling": "src/later", "absolute/x": "src/x", "./src//Main.go": "src/Main.go", "NEW/File": "NEW/File",
	} {
		for _, name := range []string{"read_file", "write_file"} {
			got := tooltest.Facts(k.tools[name], k.made(name, args{"path": path})).Targets
			if len(got) != 1 || got[0] != (toolcrib.Target{Kind: toolcrib.TargetFile, Name: k.path(want), Write: name == "write_file"}) {
				t.Errorf("%s %s: %v, want %s", name, path, got, want)
			}
		}
	}
	if got := tooltest.Facts(k.tools["list_directory"], k.made("list_directory", args{})).Targets; len(got) != 1 || got[0].Name != k.dir {
		t.Errorf("the whole workspace: %v", got)
	}
	// A workspace reached by a link is the folder that it leads to.
	alias := filepath.Join(t.TempDir(), "alias")
	if err := os.Symlink(k.dir, alias); err != nil {
		t.Fatal(err)
	}
	call := k.made("read_file", args{"path": alias + "/src/Main.go"})
	call.Workspace = alias
	if got := tooltest.Facts(k.tools["read_file"], call).Targets; len(got) != 1 || got[0].Name != k.path("src/Main.go") {
		t.Errorf("workspace by a link: %v", got)
	}
}
