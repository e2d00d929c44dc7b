package files_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/files"
	"github.com/toolcrib/toolcrib/toolcribtest/tooltest"
)

func put(t *testing.T, dir, name, content string) {
	t.Helper()
	at := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func fillTree(t *testing.T, dir string) {
	t.Helper()
	put(t, dir, "a.txt", "1234")
	put(t, dir, "src/main.go", "package main\n")
	put(t, dir, "src/deep/er/and/deeper/file", "x")
	put(t, dir, ".git/config", "x")
	for name, target := range map[string]string{"out": "/etc", "in": "src", "up": "../x", "loop": "loop"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "void"), 0o755); err != nil {
		t.Fatal(err)
	}
}

// protected leaves out .git, as the runtime does.
func protected(abs string) bool {
	return slices.Contains(strings.Split(filepath.ToSlash(abs), "/"), ".git")
}

func TestN24_TreeConforms(t *testing.T) {
	ok := func(name, arguments string) tooltest.Case {
		return tooltest.Case{Name: name, Arguments: arguments, Setup: fillTree}
	}
	bad := func(name, arguments string, kind toolcrib.ToolErrorKind) tooltest.Case {
		return tooltest.Case{Name: name, Arguments: arguments, Setup: fillTree, Err: kind}
	}
	tooltest.Run(t, func() toolcrib.Tool { return treeTool(files.Options{Protected: protected}) }, tooltest.Cases{Calls: []tooltest.Case{
		ok("all", `{}`), ok("folder", `{"path": "src", "depth": 1}`), ok("link", `{"path": "in"}`), ok("high", `{"depth": 9999, "limit": 9999}`),
		bad("above", `{"path": "../x"}`, toolcrib.InvalidPath), bad("absolute", `{"path": "/etc"}`, toolcrib.InvalidPath),
		bad("link out", `{"path": "out"}`, toolcrib.InvalidPath), bad("link up", `{"path": "up"}`, toolcrib.InvalidPath),
		bad("loop", `{"path": "loop"}`, toolcrib.InvalidPath), bad("NUL", `{"path": "a\u0000b"}`, toolcrib.InvalidPath),
		bad("file", `{"path": "a.txt"}`, toolcrib.InvalidPath), bad("gone", `{"path": "gone"}`, toolcrib.NotFound),
		bad("protected", `{"path": ".git"}`, toolcrib.NotFound),
		{Name: "depth", Arguments: `{"depth": 0}`, Invalid: true},
		{Name: "unknown", Arguments: `{"x": 1}`, Invalid: true},
	}})
}

// treeTool is get_tree.
func treeTool(options files.Options) toolcrib.Tool { return named(options, "get_tree") }

func named(options files.Options, name string) toolcrib.Tool {
	tools := files.New(options)
	return tools[slices.IndexFunc(tools, func(t toolcrib.Tool) bool { return t.Spec().Name == name })]
}

type entry struct {
	Name, Type       string
	Size             int64
	Entries          *[]entry
	More, Unreadable bool
}

type shown struct {
	Path           string
	Entries        []entry
	Folders, Files int
	Truncated      bool
	Reason         string
}

func treeOf(t *testing.T, options files.Options, dir, arguments string, change func(*toolcrib.Call)) (shown, string) {
	t.Helper()
	c := toolcrib.Call{Arguments: json.RawMessage(arguments), Workspace: dir, Principal: toolcrib.Principal{User: "ann"}}
	if change != nil {
		change(&c)
	}
	out, err := treeTool(options).Call(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	var got shown
	if err := json.Unmarshal(out.JSON, &got); err != nil {
		t.Fatal(err)
	}
	if out.Cut != got.Truncated || got.Truncated != (got.Reason != "") {
		t.Errorf("cut %v, truncated %v, reason %q", out.Cut, got.Truncated, got.Reason)
	}
	return got, string(out.JSON)
}

// names spells a tree as paths, folders with a slash.
func names(entries []entry, prefix string) (all []string) {
	for _, e := range entries {
		name := prefix + e.Name
		if e.Type == "folder" {
			name += "/"
		}
		all = append(all, name)
		if e.Entries != nil {
			all = append(all, names(*e.Entries, name)...)
		}
	}
	return all
}

func TestN24_Tree(t *testing.T) {
	dir := t.TempDir()
	fillTree(t, dir)
	got, text := treeOf(t, files.Options{Protected: protected}, dir, `{}`, nil)
	want := "a.txt in loop out src/ src/deep/ src/deep/er/ src/main.go up void/"
	if s := strings.Join(names(got.Entries, ""), " "); s != want || got.Folders != 4 || got.Files != 6 || got.Truncated {
		t.Errorf("got %s: %+v", s, got)
	}
	if !strings.Contains(text, `{"name":"a.txt","type":"file","size":4}`) || !strings.Contains(text, `{"name":"out","type":"link"}`) ||
		!strings.Contains(text, `{"name":"void","type":"folder","entries":[]}`) || !strings.Contains(text, `{"name":"er","type":"folder"}`) {
		t.Errorf("got %s", text)
	}
	if _, again := treeOf(t, files.Options{Protected: protected}, dir, `{}`, nil); again != text {
		t.Errorf("another time another tree:\n%s\n%s", text, again)
	}
	deep, _ := treeOf(t, files.Options{}, dir, `{"depth": 9999}`, nil)
	if s := strings.Join(names(deep.Entries, ""), " "); !strings.Contains(s, "src/deep/er/and/deeper/ ") || strings.Contains(s, "deeper/file") || !strings.Contains(s, ".git/config") {
		t.Errorf("depth 9999 is 5: %s", s)
	}
	if one, _ := treeOf(t, files.Options{Protected: protected}, dir, `{"path": "in", "depth": 1}`, nil); one.Path != "in" || strings.Join(names(one.Entries, ""), " ") != "deep/ main.go" {
		t.Errorf("got %+v", one)
	}
}

// What must not be seen is not there, and nobody sees a tree of nothing.
func TestN19_TreeHides(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "public/a", "x")
	put(t, dir, "secret/b", "x")
	options := files.Options{Hidden: func(abs string) bool {
		return filepath.Base(abs) == "secret" || filepath.Base(filepath.Dir(abs)) == "secret"
	}}
	mine, text := treeOf(t, options, dir, `{}`, nil)
	if s := strings.Join(names(mine.Entries, ""), " "); s != "public/ public/a" || strings.Contains(text, "secret") || mine.Folders != 1 {
		t.Errorf("got %s", text)
	}
	get := treeTool(options)
	for _, path := range []string{"secret", "gone"} {
		_, err := get.Call(t.Context(), toolcrib.Call{Arguments: fmt.Appendf(nil, `{"path": %q}`, path), Workspace: dir, Principal: toolcrib.Principal{User: "ann"}})
		if err == nil || err.Error() != "not found: "+path {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := get.Call(t.Context(), toolcrib.Call{Arguments: []byte(`{}`), Workspace: dir}); err == nil {
		t.Error("nobody sees a tree")
	}
	if _, err := get.Call(t.Context(), toolcrib.Call{Arguments: []byte(`{}`), Principal: toolcrib.Principal{User: "ann"}}); err == nil {
		t.Error("a tree without a workspace")
	}
}

func TestN24_TreeBounds(t *testing.T) {
	dir := t.TempDir()
	for i := range 30 {
		for j := range 100 {
			put(t, dir, fmt.Sprintf("folder%02d/file%02d", i, j), "")
		}
	}
	count := func(s shown) int { return len(names(s.Entries, "")) }
	if got, _ := treeOf(t, files.Options{}, dir, `{}`, nil); count(got) != 500 || !got.Truncated || got.Entries[29].Name != "folder29" {
		t.Errorf("default: %d entries, %v", count(got), got.Reason)
	}
	high, text := treeOf(t, files.Options{}, dir, `{"limit": 99999}`, nil)
	if count(high) > 2000 || len(text) > 50<<10 || !high.Truncated {
		t.Errorf("limit 99999: %d entries, %d bytes", count(high), len(text))
	}
	if got, _ := treeOf(t, files.Options{}, dir, `{"limit": 5}`, nil); count(got) != 5 || !got.Truncated {
		t.Errorf("limit 5: %d entries", count(got))
	}
	for _, bound := range []int{256, 1024, 4096, 65536} {
		got, text := treeOf(t, files.Options{}, dir, `{}`, func(c *toolcrib.Call) { c.MaxBytes = bound })
		if len(text) > max(bound, 400) || bound >= 1024 && count(got) == 0 {
			t.Errorf("at most %d bytes: %d of them, %d entries", bound, len(text), count(got))
		}
	}
}

// Whatever a workspace holds, the tree is the part of it that may be seen.
func TestN24_TreeProperty(t *testing.T) {
	top := t.TempDir()
	n := 0
	rapid.Check(t, func(r *rapid.T) {
		n++
		dir := filepath.Join(top, fmt.Sprint(n))
		part := rapid.StringMatching(`[a-cé_-]{1,3}|hidden`)
		want := map[string]bool{}
		for range rapid.IntRange(0, 8).Draw(r, "files") {
			parts := rapid.SliceOfN(part, 1, 4).Draw(r, "path")
			at := filepath.Join(append([]string{dir}, parts...)...)
			if os.MkdirAll(filepath.Dir(at), 0o755) != nil || os.WriteFile(at, nil, 0o644) != nil {
				continue // a file and a folder of one name
			}
			for i := range parts {
				if parts[i] == "hidden" {
					break
				}
				name := strings.Join(parts[:i+1], "/")
				if i < len(parts)-1 {
					name += "/"
				}
				want[name] = true
			}
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			r.Fatal(err)
		}
		got, _ := treeOf(t, files.Options{Hidden: func(abs string) bool { return filepath.Base(abs) == "hidden" }}, dir, `{"depth": 5}`, nil)
		all := names(got.Entries, "")
		for _, name := range all {
			if !want[name] {
				r.Errorf("%q is shown and should not be", name)
			}
		}
		if len(all) != len(want) || got.Folders+got.Files != len(all) {
			r.Errorf("%q, want %v", all, want)
		}
		if err := os.RemoveAll(dir); err != nil {
			r.Fatal(err)
		}
	})
}

// TestTreeIgnores: what .gitignore leaves out is counted, and shown on demand; what
// the user must not see is not counted.
func TestTreeIgnores(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, ".gitignore", "*.log\nmade/\n.git\n")
	put(t, dir, "src/.gitignore", "!keep.log\n")
	for _, name := range []string{"a.log", "made/x", "src/keep.log", "src/b.log", ".git/config"} {
		put(t, dir, name, "x")
	}
	for arguments, want := range map[string]string{
		`{}`:                              `".gitignore" "src" ".gitignore" "keep.log"`,
		`{"ignored": true}`:               `".gitignore" "a.log" "made" "x" "src" ".gitignore" "b.log" "keep.log"`,
		`{"path": "src"}`:                 `".gitignore" "keep.log"`,
		`{"path": "made"}`:                `"x"`,
		`{"path": "src", "depth": 1}`:     `".gitignore" "keep.log"`,
		`{"path": "src", "ignored":true}`: `".gitignore" "b.log" "keep.log"`,
	} {
		out, err := treeTool(files.Options{Protected: protected}).Call(t.Context(), toolcrib.Call{
			Workspace: dir, Principal: toolcrib.Principal{User: "ann"}, Arguments: json.RawMessage(arguments),
		})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, m := range regexp.MustCompile(`"name":("[^"]*")`).FindAllStringSubmatch(string(out.JSON), -1) {
			names = append(names, m[1])
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: %s, want %s", arguments, got, want)
		}
		if counted := strings.Contains(string(out.JSON), `"ignored":3`); counted != (arguments == `{}`) {
			t.Errorf("%s: %s", arguments, out.JSON)
		}
	}
}
