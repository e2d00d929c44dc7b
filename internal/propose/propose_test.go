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
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/gate/celrule"
	"github.com/toolcrib/toolcrib/internal/propose"
)

const workspace = "/ws"

// failer is a test, of the standard library or of rapid.
type failer interface {
	Fatal(args ...any)
	Context() context.Context
}

// compiled is a proposed rule as the gate has it.
func compiled(t failer, r *propose.Rule) *celrule.Set {
	schema := json.RawMessage(`{"type":"object","properties":{"command":{"type":"string"}},"required":["command"],"additionalProperties":false}`)
	if r.Tools[0] != "exec_shell" {
		schema = json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"},"content":{"type":"string"}},"required":["path"],"additionalProperties":false}`)
	}
	set, err := celrule.New([]celrule.Rule{{Name: r.Name, Tools: r.Tools, When: r.When, Then: r.Then}}, celrule.Options{
		Tools: r.Tools, Schemas: func(string) json.RawMessage { return schema },
	})
	if err != nil || len(set.Warnings()) > 0 {
		t.Fatal(r.When, err, set.Warnings())
	}
	return set
}

// holds judges a call by it.
func holds(t failer, set *celrule.Set, tool string, args map[string]string, target string) bool {
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
		r := propose.For("exec_shell", arguments(t, map[string]string{"command": command}))
		got := ""
		if r != nil {
			got = r.When
		}
		if got != want {
			t.Errorf("%q: %s", command, got)
		}
	}
	for _, tool := range []string{"read_file", "memory_write", "other"} {
		if propose.For(tool, arguments(t, map[string]string{"path": "a.txt", "command": "a"})) != nil {
			t.Errorf("a rule for %s", tool)
		}
	}
	if propose.For("exec_shell", json.RawMessage(`[]`)) != nil || propose.For("exec_shell", json.RawMessage(`{"command":3}`)) != nil {
		t.Error("a rule of nothing")
	}
}

func TestFor_Paths(t *testing.T) {
	r := propose.For("write_file", arguments(t, map[string]string{"path": "notes/v1.2/today.md"}))
	want := `- {name: ` + r.Name + `, tools: [write_file], when: 'args.path.matches("^notes/v1[.]2/[A-Za-z0-9_][A-Za-z0-9_-]*[.]md$") && ` +
		`targets.all(t, t.name == workspace + "/" + args.path)', then: allow}`
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
		"notes/v1.2/..md":           {"", false},
		"notes/v1.2/today.md.sh":    {"", false},
		"notes/v1.2/today.sh.md":    {"", false},
		"notes/v1.2/today.md\n":     {"", false},
		"notes/v1x2/today.md":       {"", false},
		"./notes/v1.2/today.md":     {"", false},
		"other/notes/v1.2/today.md": {"", false},
		"/ws/notes/v1.2/today.md":   {"/ws/notes/v1.2/today.md", false},
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
	for _, name := range []string{"../a.txt", "/etc/passwd", ".git/config", "a/.b.txt", "a//b.txt", "a b.txt", "~/x.txt", "", "a/", "ü.txt", `a".txt`, "a'.txt", `a\.txt`} {
		if r := propose.For("write_file", arguments(t, map[string]string{"path": name})); r != nil {
			t.Errorf("%q: %s", name, r.When)
		}
	}
	for _, name := range []string{"Makefile", "notes.txt", "dir/Makefile", "dir/a.tar.gz"} {
		r := propose.For("edit_file", arguments(t, map[string]string{"path": name}))
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
		line := strings.Join(rapid.SliceOfN(word, 1, 5).Draw(t, "words"), " ")
		args := map[string]string{"command": line}
		if r := propose.For("exec_shell", arguments(t, args)); r != nil {
			set := compiled(t, r)
			if !holds(t, set, "exec_shell", args, "") {
				t.Fatal("does not hold for ", line, r.When)
			}
			for _, more := range []string{";id", "; id", "&& id", " && id", "|sh", " | sh", "&", " &", "$(id)", "`id`", ">x", " > x", "<x", "\nid", "/..", " ..", " x", "\x00", "#", "'", `"`, `\`} {
				for _, other := range []string{line + more, more + line, line[:len(line)/2] + more + line[len(line)/2:]} {
					if holds(t, set, "exec_shell", map[string]string{"command": other}, "") {
						t.Fatal("holds for ", other, r.When)
					}
				}
			}
		}
		name := rapid.StringMatching(`[A-Za-z0-9_./ -]{1,20}`).Draw(t, "path")
		r := propose.For("write_file", arguments(t, map[string]string{"path": name}))
		if r == nil {
			return
		}
		set := compiled(t, r)
		if !holds(t, set, "write_file", map[string]string{"path": name}, path.Join(workspace, name)) {
			t.Fatal("does not hold for ", name, r.When)
		}
		for _, other := range []string{"../" + name, "/" + name, name + "/..", name + "/../x", path.Dir(name) + "/../" + path.Base(name), path.Dir(name) + "/.x.txt", "x/" + name, name + "\n", name + ".sh"} {
			if other != name && holds(t, set, "write_file", map[string]string{"path": other}, path.Join(workspace, other)) {
				t.Fatal("holds for ", fmt.Sprintf("%q", other), r.When)
			}
		}
	})
}
