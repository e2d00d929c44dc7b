package line_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/internal/beneath"
	"github.com/toolcrib/toolcrib/tool/shell/internal/line"
)

// disk answers from a folder of the disk. Programs are all installed, except for those in missing.
type disk struct {
	folder  *beneath.Folder
	missing []string
	config  []string // texts of the configuration of the repository
	gap     string
	asked   map[string]int // number of questions
}

func (d *disk) Resolve(name string) (beneath.Place, error) {
	d.asked[name]++
	return d.folder.Resolve(name, func(err error) bool { return beneath.Absent(err) || errors.Is(err, syscall.ENOTDIR) })
}

func (d *disk) ReadDir(name string, _ int) ([]fs.DirEntry, error) {
	path := filepath.Join(d.folder.Dir, name)
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		return nil, syscall.ENOTDIR
	}
	return os.ReadDir(path)
}

func (d *disk) Real(abs string) (real string, folder bool) {
	real = beneath.Real(abs)
	info, err := os.Stat(real)
	return real, err == nil && info.IsDir()
}

func (d *disk) Program(name string, _ bool) (string, error) {
	if slices.Contains(d.missing, name) {
		return "", toolcrib.Failf(toolcrib.NotFound, "program %s", name)
	}
	return "/usr/bin/" + name, nil
}

func (d *disk) GitConfig() (texts []string, gap string) {
	d.asked["the configuration of git"]++
	return d.config, d.gap
}

// allowed are the programs of the default list.
func allowed() []string {
	return strings.Fields("echo cat ls pwd head tail wc grep find sort uniq diff date true false test")
}

// The modes of exec_shell.
const (
	allowlist = "allowlist"
	ask       = "ask"
	anyLine   = "any"
)

// in returns the rules for a workspace in a mode, and what they ask. Without programs, those of the default
// list are allowed.
func in(t testing.TB, dir, mode string, programs ...string) (*line.Rules, *disk) {
	t.Helper()
	folder, err := beneath.Open(toolcrib.Call{Workspace: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(folder.Close)
	if programs == nil {
		programs = allowed()
	}
	none := func(string) bool { return false }
	d := &disk{folder: folder, asked: map[string]int{}}
	return &line.Rules{
		Any: mode == anyLine, Ask: mode == ask, Allow: programs, Shells: []string{"bash", "sh"}, Dir: folder.Dir, Given: folder.Given,
		Hides: none, HoldsHidden: none, Protects: none, Files: d,
	}, d
}

// judge parses and judges a line.
func judge(r *line.Rules, text string) (*line.Plan, error) {
	l, err := line.Parse(text)
	if err != nil {
		return nil, err
	}
	return r.Judge(l)
}

// must judges a line that is not refused.
func must(t testing.TB, r *line.Rules, text string) *line.Plan {
	t.Helper()
	p, err := judge(r, text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return p
}

// refused reports whether the line is refused with an error for the model.
func refused(t testing.TB, r *line.Rules, text string) bool {
	t.Helper()
	_, err := judge(r, text)
	if k := kind(t, err); k != "" && k != toolcrib.PermissionDenied || err != nil && !strings.HasPrefix(err.Error(), "permission denied: ") {
		t.Errorf("%q: %v", text, err)
	}
	return err != nil
}

// asks returns why a person is asked about a line first, or "".
func asks(p *line.Plan) string {
	var why []string
	for _, c := range p.Concerns {
		why = append(why, c.Why)
	}
	return strings.Join(why, "; ")
}

// kind returns the kind of a ToolError, or "" for nil.
func kind(t testing.TB, err error) toolcrib.ToolErrorKind {
	t.Helper()
	if err == nil {
		return ""
	}
	var made *toolcrib.ToolError
	if !errors.As(err, &made) {
		t.Fatalf("error %v (%T) is not made for the model", err, err)
	}
	return made.Kind
}

func folder(t testing.TB) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func write(t testing.TB, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// project returns a workspace with ordinary files.
func project(t testing.TB) string {
	t.Helper()
	dir := folder(t)
	for _, name := range []string{
		"README.md", "notes.txt", "numbers.txt", "src/main.go", "src/util.go", "data/a.csv", "data/b.csv", "with space.txt", ".hidden", "a.txt",
		"AGENTS.md",
	} {
		write(t, filepath.Join(dir, name), "text\n")
	}
	return dir
}

// writes returns the targets of a line that it may write, relative to the workspace.
func writes(r *line.Rules, p *line.Plan) (names []string) {
	for _, at := range p.Targets {
		if rel, err := filepath.Rel(r.Dir, at.Name); at.Write && err == nil {
			names = append(names, rel)
		}
	}
	return names
}

// A plan says why a line only reads, and which sandbox it needs. Without a reason the line may write.
func TestPlan_WhyItOnlyReads(t *testing.T) {
	dir := project(t)
	for _, c := range []struct {
		mode, line string
		config     string
		readOnly   line.Basis
		sandbox    line.Sandbox
		effect     toolcrib.Effect
	}{
		{allowlist, "cat notes.txt | wc -l", "", line.ByTable, line.WritesNothing, toolcrib.EffectReadOnly},
		{allowlist, "cat notes.txt && make", "", line.MayWrite, line.WritesWorkspace, toolcrib.EffectNonIdempotentWrite},
		{ask, "git status", "", line.ByTable, line.WritesNothing, toolcrib.EffectReadOnly},
		{ask, "git status", "[diff]\n\texternal = x\n", line.ByTable, line.WritesNothing, toolcrib.EffectNonIdempotentWrite},
		{ask, "git commit", "", line.MayWrite, line.WritesWorkspace, toolcrib.EffectNonIdempotentWrite},
		{ask, "cat $(ls)", "", line.MayWrite, line.WritesWorkspace, toolcrib.EffectNonIdempotentWrite},
		{anyLine, "cat notes.txt", "", line.MayWrite, line.WritesWorkspace, toolcrib.EffectNonIdempotentWrite},
	} {
		r, d := in(t, dir, c.mode, "cat", "wc", "make")
		d.config = []string{c.config}
		p := must(t, r, c.line)
		if p.ReadOnly != c.readOnly || p.Sandbox() != c.sandbox || p.Effect() != c.effect {
			t.Errorf("%s: %s: %q, %q, %s", c.mode, c.line, p.ReadOnly, p.Sandbox(), p.Effect())
		}
	}
	// With a sandbox in which a line can only read, what would be asked about runs in it.
	for _, c := range []struct {
		line, config string
		readOnly     line.Basis
		asks         bool
	}{
		{"cat notes.txt", "", line.ByTable, false},
		{"git status", "[diff]\n\texternal = x\n", line.BySandbox, false},
		{"git commit", "", line.BySandbox, false},
		{"sed -n 1p notes.txt .git/config", "", line.BySandbox, false},
		{"cat $(ls) > AGENTS.md", "", line.BySandbox, false},
		{"rm -r src; make", "", line.BySandbox, false},
		{"make", "", line.MayWrite, false},            // the user listed it
		{"git config a.b c", "", line.MayWrite, true}, // the gate refuses it
	} {
		r, d := in(t, dir, ask, "cat", "make")
		d.config, r.Strict = []string{c.config}, func() bool { return true }
		p := must(t, r, c.line)
		if p.ReadOnly != c.readOnly || (asks(p) != "") != c.asks || (p.Effect() == toolcrib.EffectReadOnly) != (c.readOnly != line.MayWrite) {
			t.Errorf("%s: %q, asks %q, %s", c.line, p.ReadOnly, asks(p), p.Effect())
		}
		if c.readOnly == line.BySandbox && (len(writes(r, p)) > 0 || p.GitWrites || p.Sandbox() != line.ReadsWorkspace ||
			!slices.Contains(p.Targets, toolcrib.Target{Kind: toolcrib.TargetFile, Name: r.Dir, Tree: true})) {
			t.Errorf("%s: %v", c.line, p.Targets)
		}
		r.Strict = func() bool { return false }
		if p := must(t, r, c.line); p.ReadOnly == line.BySandbox {
			t.Errorf("%s: without such a sandbox: %q", c.line, p.ReadOnly)
		}
	}
	if p := (&line.Plan{}); p.Sandbox() != line.WritesWorkspace || p.Effect() != toolcrib.EffectNonIdempotentWrite {
		t.Errorf("the zero plan: %q, %s", p.Sandbox(), p.Effect())
	}
	r, _ := in(t, dir, anyLine)
	if r.Shells = nil; !refused(t, r, "ls") {
		t.Error("a line runs without a shell")
	}
}

// The file system is asked once for each word, and once for the configuration of git.
func TestJudge_AsksOnce(t *testing.T) {
	dir := project(t)
	for _, mode := range []string{allowlist, ask, anyLine} {
		for _, text := range []string{
			"cat notes.txt notes.txt && cat < notes.txt", "grep -rn x src", "diff src/main.go src/util.go", "find src -newer notes.txt", "ls -R src data",
			"git diff HEAD -- a.txt", "git add a.txt && git log a.txt", "git init sub", "cat notes.txt | tr a b > out.txt", "test -f notes.txt; cp notes.txt --to=src",
			"sh -c 'cat notes.txt' notes.txt", "wc src/*.go",
		} {
			r, d := in(t, dir, mode, append(allowed(), "git", "tr", "cp", "sh")...)
			p, err := judge(r, text)
			if mode != allowlist && err != nil {
				t.Errorf("%s: %s: %v", mode, text, err)
			}
			if p == nil {
				continue
			}
			for what, n := range d.asked {
				if n > 1 {
					t.Errorf("%s: %s: asks %d times for %q", mode, text, n, what)
				}
			}
			if got := p.Changed(r); got != "" {
				t.Errorf("%s: %s: %s has changed", mode, text, got)
			}
		}
	}
}

// A file that the line reads may become neither a link that leads elsewhere nor special, and the
// configuration of git may not name other programs.
func TestPlan_Changed(t *testing.T) {
	dir := project(t)
	r, d := in(t, dir, ask)
	cat, git := must(t, r, "cat notes.txt new.txt"), must(t, r, "git status")
	write(t, filepath.Join(dir, "new.txt"), "x")
	write(t, filepath.Join(dir, "notes.txt"), "other")
	if got := cat.Changed(r) + git.Changed(r); got != "" {
		t.Errorf("%s has changed", got)
	}
	d.config = []string{"[alias]\n\tx = !evil\n"}
	if got := git.Changed(r); got != "the configuration of the repository" {
		t.Errorf("git: %q", got)
	}
	reads, tests := must(t, r, "cat socket"), must(t, r, "test -f socket")
	listener, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	if got := reads.Changed(r); got != "socket" || tests.Changed(r) != "" {
		t.Errorf("a socket: %q, %q", got, tests.Changed(r))
	}
	if err := errors.Join(os.Remove(filepath.Join(dir, "notes.txt")), os.Symlink("/etc/passwd", filepath.Join(dir, "notes.txt"))); err != nil {
		t.Fatal(err)
	}
	if got := cat.Changed(r); got != "notes.txt" {
		t.Errorf("cat: %q", got)
	}
	r.Hides = func(abs string) bool { return abs == filepath.Join(dir, "src") }
	hidden := must(t, r, "ls data")
	r.Hides = func(abs string) bool { return abs == filepath.Join(dir, "data") }
	if got := hidden.Changed(r); got != "data" {
		t.Errorf("ls: %q", got)
	}
}
