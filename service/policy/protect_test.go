package policy

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/service/env"
)

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// core.hooksPath is read as git reads it: section names and keys without regard to case, quotes, comments and continued
// lines.
func TestHooksPathOf(t *testing.T) {
	for text, want := range map[string][]string{
		"":                                    nil,
		"[core]\n\thooksPath = hooks\n":       {"hooks"},
		"[CORE]\r\nHOOKSPATH=hooks\r\n":       {"hooks"},
		"[core] hooksPath = a b ; rest\n":     {"a b"},
		"[core]\nhooksPath = \"a;b \" # x\n":  {"a;b "},
		"[core]\nhooksPath = a\\\nb\n":        {"ab"},
		"[core]\nhooksPath = a\nhooksPath=b":  {"a", "b"},
		"[core \"x\"]\nhooksPath = no\n":      nil,
		"[user]\nhooksPath = no\n":            nil,
		"# [core]\n# hooksPath = no\n":        nil,
		"[core]\nhooksPath\n":                 nil,
		"[core]\n[user]\nhooksPath = no\n":    nil,
		"[core]\nhooksPath = \"C:\\\\x\"\n":   {`C:\x`},
		"[core\nhooksPath = no\n":             nil,
		"[core]\nhooksPath = \"not closed\n":  {"not closed"},
		"[core]\nhooksPath = \n":              nil,
		"[core]\nfilemode = true\nx = [core]": nil,
	} {
		if got := hooksPathOf(text); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// The repository may be around the workspace, and its files elsewhere.
func TestHooksPaths_Repositories(t *testing.T) {
	top := gate.Resolved(t.TempDir())
	put(t, filepath.Join(top, "plain", ".git", "config"), "[core]\nhooksPath = tools/hooks\n")
	put(t, filepath.Join(top, "tree", ".git"), "gitdir: ../plain/.git/worktrees/tree\n")
	put(t, filepath.Join(top, "plain", ".git", "worktrees", "tree", "commondir"), "../..\n")
	put(t, filepath.Join(top, "plain", ".git", "worktrees", "tree", "config.worktree"), "[core]\nhooksPath = own\n")
	put(t, filepath.Join(top, "none", "x.txt"), "")
	put(t, filepath.Join(top, "odd", ".git"), "no repository")
	if err := os.MkdirAll(filepath.Join(top, "plain", "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string][]string{
		"plain":     {filepath.Join(top, "plain", "tools", "hooks")},
		"plain/sub": {filepath.Join(top, "plain", "tools", "hooks")},
		"tree":      {filepath.Join(top, "tree", "tools", "hooks"), filepath.Join(top, "tree", "own")},
		"none":      nil,
		"odd":       nil,
	} {
		if got := hooksPaths(gate.Resolved(filepath.Join(top, dir)), Paths{}); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", dir, got, want)
		}
	}
}

// protected reports whether a file of the workspace is never written.
func protected(t *testing.T, workspace, name string) bool {
	t.Helper()
	var p gate.Protected
	protectSteering(&p, workspace, gate.Resolved(workspace), []string{"docs/NOTES.txt", ""})
	protectHooks(&p, workspace, gate.Resolved(workspace), Paths{})
	rules, err := p.Rules()
	if err != nil {
		t.Fatal(err)
	}
	return rules.NeverWritten(filepath.Join(workspace, name))
}

// Files that control toolcrib or other programs are protected, including the notes that agents read. Other texts of the
// project are not.
func TestProtectSteering(t *testing.T) {
	top := gate.Resolved(t.TempDir())
	ws := filepath.Join(top, "ws")
	put(t, filepath.Join(ws, ".git", "config"), "[core]\nhooksPath = build/hooks\n")
	for _, name := range []string{
		".claude/settings.json", "sub/.Claude/commands/x.md", ".cursor/mcp.json", ".vscode/tasks.json",
		".VSCode/settings.json", ".codex/config.toml",
		".gemini/settings.json", ".idea/runConfigurations/x.xml", ".devcontainer/devcontainer.json", ".devcontainer.json",
		".mcp.json",
		".git/config", "build/hooks/pre-commit", "Build/Hooks/x", "build/hooks", ".git/info/exclude",
		"sub/.git/objects/info/alternates",
		"AGENTS.md", "sub/deep/Agents.md", "CLAUDE.md", "claude.local.md", "CLAUDE.md. ", "GEMINI.md",
		".github/copilot-instructions.md",
		"notes.txt", "sub/NOTES.TXT", ".cursorrules", ".windsurf/rules/x.md", ".zed/tasks.json", ".envrc", ".toolcrib/x",
		"x/.agents/skills/y",
	} {
		if !protected(t, ws, name) {
			t.Errorf("%s is not protected", name)
		}
	}
	for _, name := range []string{
		"README.md", "agents.md.txt", "AGENTS", ".github/workflows/x.yml", "docs/x", "build/x",
		"hooks/x", "claude/x", "pre-commit", ".vscode.md",
	} {
		if protected(t, ws, name) {
			t.Errorf("%s is protected", name)
		}
	}
	// A work tree inside such a folder can be worked in.
	tree := filepath.Join(top, ".claude", "worktrees", "x")
	put(t, filepath.Join(tree, ".git", "config"), "[core]\nhooksPath = .\n")
	for name, want := range map[string]bool{
		"main.go": false, ".claude/settings.json": true, ".cursor/x": true,
		"pre-commit": true, "sub/pre-commit": false,
	} {
		if protected(t, tree, name) != want {
			t.Errorf("%s: not %v", name, want)
		}
	}
}

// Runs of a workspace share a gate while it would be the same. Protected files are looked up for each run.
func TestGate_MadeAgain(t *testing.T) {
	top := gate.Resolved(t.TempDir())
	ws := filepath.Join(top, "ws")
	put(t, filepath.Join(ws, "x.txt"), "")
	s := open(env.Options{DataDir: filepath.Join(top, "data"), NoSandbox: func() string { return "" }})
	if err := s.env.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.env.Close() })
	made := func() *gate.Gate {
		t.Helper()
		g, err := s.Gate(ws, nil)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	refused := func(g *gate.Gate, path string) bool {
		t.Helper()
		call := toolcrib.ToolCall{ID: "1", Name: "write_file", Arguments: []byte(`{"path":"` + path + `","content":""}`)}
		scope := gate.Scope{Agent: "default", Workspace: ws, MaxCalls: 1}
		facts := gate.Facts{Offered: map[string]bool{"write_file": true}, DryRun: true}
		v := g.Judge(t.Context(), toolcrib.Principal{User: "local:root"}, scope, facts, []toolcrib.ToolCall{call})[0]
		if v.Decision != toolcrib.Ask && v.Reason != toolcrib.ReasonProtectedPath {
			t.Fatalf("%+v", v)
		}
		return v.Reason == toolcrib.ReasonProtectedPath
	}
	first := made()
	if made() != first {
		t.Error("the second run has a gate of its own")
	}
	put(t, filepath.Join(ws, ".git", "config"), "[core]\nhooksPath = tools\n")
	second := made()
	if second == first || !refused(second, "tools/pre-commit") || refused(first, "tools/pre-commit") {
		t.Error("the hooks of git are not protected")
	}
	put(t, filepath.Join(ws, "elsewhere", "x.md"), "x")
	if err := os.Symlink("elsewhere", filepath.Join(ws, "skills")); err != nil {
		t.Skip(err)
	}
	for range 2 {
		if g := made(); g == second || !refused(g, "elsewhere/x.md") {
			t.Error("what a link leads to is not protected")
		}
	}
	if err := os.Remove(filepath.Join(ws, "skills")); err != nil {
		t.Fatal(err)
	}
	if g := made(); refused(g, "elsewhere/x.md") {
		t.Error("what a link led to is protected")
	}
	if next := s.Under(s.env.Under(s.env.Config), s.mcp, s.people); next.env.Config != nil {
		if g, err := next.Gate(ws, nil); err != nil || g == second {
			t.Errorf("a service under another configuration has the gate of the one before, %v", err)
		}
	}
}
