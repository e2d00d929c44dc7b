package propose_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/gate/celrule"
	"github.com/toolcrib/toolcrib/internal/propose"
	"github.com/toolcrib/toolcrib/journal"
)

const workspace = "/ws"

// failer is a test, of the standard library or of rapid.
type failer interface {
	Fatal(args ...any)
	Context() context.Context
}

// compiled is a proposed rule as the gate has it.
func compiled(t failer, r *api.Rule) *celrule.Set {
	schema := json.RawMessage(`{"type":"object","properties":{"command":{"type":"string"}},"required":["command"],"additionalProperties":false}`)
	if r.Tools[0] != "exec_shell" {
		schema = json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"},"content":{"type":"string"}},"required":["path"],"additionalProperties":false}`)
	}
	set, err := celrule.New([]celrule.Rule{{Name: r.Name, Tools: r.Tools, When: r.When, Then: gate.RuleThen(r.Then)}}, celrule.Options{
		Tools: r.Tools, Schemas: func(string) json.RawMessage { return schema },
	})
	if err != nil || len(set.Warnings()) > 0 {
		t.Fatal(r.When, err, set.Warnings())
	}
	return set
}

// holds judges a call by it.
func holds(t failer, set *celrule.Set, tool string, args map[string]string, target string) bool {
	return holdsIn(t, set, tool, args, target, workspace)
}

func holdsIn(t failer, set *celrule.Set, tool string, args map[string]string, target, workspace string) bool {
	in := gate.RuleInput{Tool: tool, Arguments: arguments(t, args), Workspace: workspace, Who: &toolcrib.Principal{User: "alice"}}
	if target != "" {
		in.Targets = []toolcrib.Target{{Kind: toolcrib.TargetFile, Name: target, Write: true}}
	}
	matches := set.Judge(t.Context(), in)
	for _, m := range matches {
		if m.Err != nil {
			t.Fatal(m.Err)
		}
	}
	return len(matches) == 1
}

func arguments(t failer, args map[string]string) json.RawMessage {
	raw, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestFor_Lines(t *testing.T) {
	for command, want := range map[string]string{
		"git push origin main":      `args.command == "git push origin main"`,
		"make test":                 `args.command == "make test"`,
		"go test ./... -run=X":      `args.command == "go test ./... -run=X"`,
		"git push; rm x":            "",
		"git push && rm x":          "",
		"git push | sh":             "",
		"git push $(id)":            "",
		"git push `id`":             "",
		"git push > x":              "",
		"cat ../x":                  "",
		"cat a/../../x":             "",
		"cat --file=../x":           "",
		"echo 'a'":                  "",
		`echo "a"`:                  "",
		"echo *":                    "",
		"echo ~":                    "",
		"git  push":                 "",
		" git push":                 "",
		"git push\n":                "",
		"git push\nrm x":            "",
		"":                          "",
		strings.Repeat("word ", 60): "",
	} {
		r := propose.For(line(t, command))
		got := ""
		if r != nil {
			got = r.When
		}
		if want != "" {
			want = `workspace == "/ws" && ` + want
		}
		if got != want {
			t.Errorf("%q: %s", command, got)
		}
	}
	command := line(t, "make test")
	for name, change := range map[string]func(*journal.ApprovalItem){
		"no object":        func(c *journal.ApprovalItem) { c.Arguments = json.RawMessage(`[]`) },
		"no text":          func(c *journal.ApprovalItem) { c.Arguments = json.RawMessage(`{"command":3}`) },
		"not bound":        func(c *journal.ApprovalItem) { c.Binding = nil },
		"no command line":  func(c *journal.ApprovalItem) { c.Binding = &journal.Binding{LeadsTo: workspace} },
		"no workspace":     func(c *journal.ApprovalItem) { c.Binding.LeadsTo = "" },
		"hidden workspace": func(c *journal.ApprovalItem) { c.Binding.LeadsTo = "/w\u202es" },
		"long workspace":   func(c *journal.ApprovalItem) { c.Binding.LeadsTo = "/" + strings.Repeat("w", 600) },
	} {
		c := *command
		binding := *command.Binding
		c.Binding = &binding
		change(&c)
		if r := propose.For(&c); r != nil {
			t.Errorf("%s: %s", name, r.When)
		}
	}
}

// A rule that was made in one workspace holds in no other, whatever its path is made of.
func TestFor_Workspace(t *testing.T) {
	for _, ws := range []string{"/ws", "/home/ü b/x.y", `/a"b\c'd`, "/w+(s)"} {
		c := line(t, "make test")
		c.Binding.LeadsTo = ws
		f := file(t, "write_file", "notes/a.md")
		f.Binding.LeadsTo, f.Binding.Files[0].Path = ws, ws+"/notes/a.md"
		for _, item := range []*journal.ApprovalItem{c, f} {
			r := propose.For(item)
			if r == nil {
				t.Errorf("%s: no rule", ws)
				continue
			}
			set := compiled(t, r)
			for _, in := range []string{ws, "/other", ws + "/sub", ""} {
				target := ""
				if item == f {
					target = in + "/notes/a.md"
				}
				if got := holdsIn(t, set, item.Name, map[string]string{"command": "make test", "path": "notes/a.md"}, target, in); got != (in == ws) {
					t.Errorf("%s in %q: %v (%s)", ws, in, got, r.When)
				}
			}
		}
	}
}

// line is a call of a command line in the workspace, file one that writes a file.
func line(t failer, command string) *journal.ApprovalItem {
	return &journal.ApprovalItem{
		Name: "exec_shell", Arguments: arguments(t, map[string]string{"command": command}),
		Binding: &journal.Binding{Workspace: workspace, LeadsTo: workspace, FolderID: "1", CommandLine: true},
	}
}

func file(t failer, tool, name string) *journal.ApprovalItem {
	return &journal.ApprovalItem{
		Name: tool, Arguments: arguments(t, map[string]string{"path": name}),
		Binding: &journal.Binding{Workspace: workspace, LeadsTo: workspace, FolderID: "1", Files: []toolcrib.FileState{{Path: path.Join(workspace, name), State: toolcrib.FileAbsent}}},
	}
}

func TestFor_Paths(t *testing.T) {
	r := propose.For(file(t, "write_file", "notes/v1.2/today.md"))
	want := `- {name: ` + r.Name + `, tools: [write_file], when: 'workspace == "/ws" && ` +
		`targets.size() == 1 && targets[0].name.matches("^/ws/notes/v1\\.2/[A-Za-z0-9_][A-Za-z0-9_-]*\\.md$")', then: allow}`
	if r.Line() != want {
		t.Errorf("got  %s\nwant %s", r.Line(), want)
	}
	set := compiled(t, r)
	for name, c := range map[string]struct {
		target string
		want   bool
	}{
		"notes/v1.2/today.md":       {"", true},
		"notes/v1.2/other-day_2.md": {"", true},
		"notes/v1.2/.hidden.md":     {"", false},
		"notes/v1.2/sub/today.md":   {"", false},
		"notes/v1.2/../today.md":    {"", false},
		"notes/v1.2/no target.md":   {"/ws/notes/v1.2/other.sh", false},
		"notes/v1.2/..md":           {"", false},
		"notes/v1.2/today.md.sh":    {"", false},
		"notes/v1.2/today.sh.md":    {"", false},
		"notes/v1.2/today.md\n":     {"", false},
		"notes/v1x2/today.md":       {"", false},
		"./notes/v1.2/today.md":     {"", true},
		"other/notes/v1.2/today.md": {"", false},
		"/ws/notes/v1.2/today.md":   {"/ws/notes/v1.2/today.md", true},
		"notes/v1.2/linked.md":      {"/ws/secret/key", false},
		"notes/v1.2/linked-away.md": {"/etc/passwd", false},
		"notes/v1.2/TODAY.MD":       {"", false},
	} {
		target := c.target
		if target == "" {
			target = path.Join(workspace, name)
		}
		if got := holds(t, set, "write_file", map[string]string{"path": name, "content": "x"}, target); got != c.want {
			t.Errorf("%q at %s: %v", name, target, got)
		}
	}
	for _, name := range []string{"../a.txt", "../../etc/passwd", ".git/config", "a/.b.txt", "a b.txt", "~/x.txt", "", "ü.txt", `a".txt`, "a'.txt", `a\.txt`} {
		if r := propose.For(file(t, "write_file", name)); r != nil {
			t.Errorf("%q: %s", name, r.When)
		}
	}
	for _, name := range []string{"Makefile", "notes.txt", "dir/Makefile", "dir/a.tar.gz"} {
		r := propose.For(file(t, "edit_file", name))
		if r == nil || !holds(t, compiled(t, r), "edit_file", map[string]string{"path": name}, path.Join(workspace, name)) ||
			holds(t, compiled(t, r), "edit_file", map[string]string{"path": name + "x"}, path.Join(workspace, name+"x")) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// Whatever is asked about: the rule that is proposed holds for it, and for nothing that
// has more in it.
func TestFor_Property(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[A-Za-z0-9_./:=@%+,-]{1,8}`)
		command := strings.Join(rapid.SliceOfN(word, 1, 5).Draw(t, "words"), " ")
		args := map[string]string{"command": command}
		if r := propose.For(line(t, command)); r != nil {
			set := compiled(t, r)
			if !holds(t, set, "exec_shell", args, "") {
				t.Fatal("does not hold for ", command, r.When)
			}
			for _, more := range []string{";id", "; id", "&& id", " && id", "|sh", " | sh", "&", " &", "$(id)", "`id`", ">x", " > x", "<x", "\nid", "/..", " ..", " x", "\x00", "#", "'", `"`, `\`} {
				for _, other := range []string{command + more, more + command, command[:len(command)/2] + more + command[len(command)/2:]} {
					if holds(t, set, "exec_shell", map[string]string{"command": other}, "") {
						t.Fatal("holds for ", other, r.When)
					}
				}
			}
		}
		name := rapid.StringMatching(`[A-Za-z0-9_./ -]{1,20}`).Draw(t, "path")
		r := propose.For(file(t, "write_file", name))
		if r == nil {
			return
		}
		set := compiled(t, r)
		if !holds(t, set, "write_file", map[string]string{"path": name}, path.Join(workspace, name)) {
			t.Fatal("does not hold for ", name, r.When)
		}
		first := path.Join(workspace, name)
		for _, other := range []string{"../" + name, "/" + name, name + "/..", name + "/../x", path.Dir(name) + "/../" + path.Base(name), path.Dir(name) + "/.x.txt", "x/" + name, name + "\n", name + ".sh"} {
			target := path.Join(workspace, other)
			alike := path.Dir(target) == path.Dir(first) && path.Ext(target) == path.Ext(first) && !strings.HasPrefix(path.Base(target), ".")
			if !alike && holds(t, set, "write_file", map[string]string{"path": other}, target) {
				t.Fatal("holds for ", fmt.Sprintf("%q", other), r.When)
			}
		}
	})
}
