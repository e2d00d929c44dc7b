package gate_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
)

func TestProtectedPaths(t *testing.T) {
	protected := gate.Protected{
		Write:  []string{"/ws/toolcrib.yaml", "/ws/skills", "/home/a/.config/toolcrib/toolcrib.yaml"},
		Names:  []string{".git", ".mcp.json"},
		Touch:  []string{"/data", "/data/workspaces/a/private"},
		Except: []string{"/data/workspaces"},
	}
	rules, err := protected.Rules()
	if err != nil {
		t.Fatal(err)
	}
	g, target := protectedGate(t, protected)
	for _, c := range []struct {
		path        string
		read, write bool // allowed
	}{
		{"/ws/notes.txt", true, true},
		{"/ws", true, true},
		{"/ws/toolcrib.yaml", true, false},
		{"/ws/ToolCrib.YAML", true, false},
		{"/ws/toolcrib.yaml.bak", true, true},
		{"/ws/skills", true, false},
		{"/ws/skills/deep/SKILL.md", true, false},
		{"/ws/SKILLS/x", true, false},
		{"/ws/skillset/x", true, true},
		{"/ws/./a/../skills/x", true, false},
		{"/ws/.git", true, false},
		{"/ws/sub/.git/hooks/pre-commit", true, false},
		{"/ws/.GIT/config", true, false},
		{"/ws/.g\u200cit/config", true, false},
		{"/ws/.git./config", true, false},
		{"/ws/.gitignore", true, true},
		{"/ws/a/.mcp.json", true, false},
		{"/home/a/.config/toolcrib/toolcrib.yaml", true, false},
		{"/data", false, false},
		{"/data/toolcrib.db", false, false},
		{"/DATA/toolcrib.db", false, false},
		{"/database", true, true},
		{"/data/workspaces", true, true},
		{"/data/workspaces/a/x", true, true},
		{"/data/WORKSPACES/a/x", false, false}, // an exception is exact
		{"/data/workspaces/../keys", false, false},
		{"/data/workspaces/a/.git/config", true, false},
		{"/data/workspaces/a/private/x", false, false}, // the longest path counts
		{"relative/path", false, false},
		{"", false, false},
		{"/ws/a\x00b", false, false},
	} {
		if rules.NeverTouched(c.path) == c.read || rules.NeverWritten(c.path) == c.write {
			t.Errorf("%q: never touched %v, never written %v", c.path, rules.NeverTouched(c.path), rules.NeverWritten(c.path))
		}
		for _, write := range []bool{false, true} {
			*target = toolcrib.Target{Kind: toolcrib.TargetFile, Name: c.path, Write: write}
			want := c.read
			if write {
				want = c.write
			}
			v := judgeOne(t, g, call("1", "x", `{}`))
			if want {
				if v.Refused() {
					t.Errorf("%q, write %v: refused: %s", c.path, write, v.Message)
				}
				continue
			}
			if !v.Refused() || v.Reason != toolcrib.ReasonProtectedPath || !strings.Contains(v.Message, "protected") {
				t.Errorf("%q, write %v: %q %s %q", c.path, write, v.Decision, v.Reason, v.Message)
			}
			if strings.Contains(v.Content, "/data") || strings.Contains(v.Content, "/home") {
				t.Errorf("%q: the model reads a path outside the workspace: %s", c.path, v.Content)
			}
		}
	}
	*target = toolcrib.Target{Kind: "host", Name: "/data", Write: true}
	wantAllowed(t, judgeOne(t, g, call("1", "x", `{}`)))
	*target = toolcrib.Target{Kind: toolcrib.TargetFile, Name: "/ws/skills/a.md", Write: true}
	wantRefused(t, judgeOne(t, g, call("1", "x", `{}`)), toolcrib.ReasonProtectedPath,
		"skills/a.md is protected: it may be read, but never be written. Leave it as it is.")
}

// protectedGate has one tool, x, that touches what target holds.
func protectedGate(t *testing.T, p gate.Protected) (*gate.Gate, *toolcrib.Target) {
	t.Helper()
	target := &toolcrib.Target{}
	f := &fullTool{plainTool: plainTool{reads("x")}, targets: func(toolcrib.Call) []toolcrib.Target {
		return []toolcrib.Target{{Kind: toolcrib.TargetFile, Name: "/ws/free", Write: true}, *target}
	}}
	return gateOf(t, gate.Options{Tools: []toolcrib.Tool{f}, Protected: p}), target
}

func TestProtectedThroughSymbolicLink(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "real"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	g, target := protectedGate(t, gate.Protected{
		Touch: []string{filepath.Join(dir, "link", "data")}, Except: []string{filepath.Join(dir, "link", "data", "workspaces")},
	})
	for path, free := range map[string]bool{
		"link/data/x": false, "real/data/x": false, "real/other": true,
		"real/data/workspaces/x": true, "link/data/workspaces/x": true,
	} {
		*target = toolcrib.Target{Kind: toolcrib.TargetFile, Name: filepath.Join(dir, path)}
		if v := judgeOne(t, g, call("1", "x", `{}`)); v.Refused() == free {
			t.Errorf("%s: refused %v (%s)", path, v.Refused(), v.Message)
		}
	}
}

func TestTooManyTargets(t *testing.T) {
	many := make([]toolcrib.Target, 1025)
	f := &fullTool{plainTool: plainTool{reads("x")}, targets: func(toolcrib.Call) []toolcrib.Target { return many }}
	g := newGate(t, f)
	wantRefused(t, judgeOne(t, g, call("1", "x", `{}`)), toolcrib.ReasonProtectedPath, "1025 things at once")
	many = many[:1024]
	wantAllowed(t, judgeOne(t, g, call("1", "x", `{}`)))
}
