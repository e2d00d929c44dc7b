package shell

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/egress"
	"github.com/toolcrib/toolcrib/tool/internal/beneath"
	"github.com/toolcrib/toolcrib/tool/shell/internal/line"
)

// plan is a call whose line is judged.
type plan struct {
	arguments
	*line.Plan
	timeout time.Duration
	root    fs.FileInfo // the workspace as it was judged
	set     *Options    // options with the links in their paths resolved
	w       *workspace
	gap     string        // what the sandbox cannot prevent, or ""
	reach   []string      // hosts that the call names, in canonical form
	shared  *loopback     // that the call that runs shares with others, or nil
	proxy   *egress.Proxy // of the call that runs, or nil

	notStrict string   // why the strict sandbox cannot be used although the line asks for it, or ""
	special   []string // files to be masked in it
	hidden    []string // paths that rules deny, to be hidden in it
}

// writes reports whether the line runs in a sandbox in which the workspace can be written.
func (p *plan) writes() bool { return p.Sandbox() == line.WritesWorkspace }

// plan judges a call. The workspace is open meanwhile.
func (s *shell) plan(call toolcrib.Call) (*plan, error) {
	if !supported {
		return nil, refuse("%s is not available on this system", Name)
	}
	in, timeout, err := s.arguments(call)
	if err != nil {
		return nil, err
	}
	parsed, err := line.Parse(in.Command)
	if err != nil {
		return nil, err
	}
	w, err := openWorkspace(call)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	p := &plan{arguments: in, timeout: timeout, set: s.options.resolved(w.Dir), w: w}
	rules := s.rules(p.set, w)
	if s.options.Mode == ModeAsk && !in.Write && len(in.Network) == 0 {
		rules.Strict = func() bool {
			p.notStrict = s.strict(p)
			return p.notStrict == ""
		}
	}
	if p.Plan, err = rules.Judge(parsed); err != nil {
		return nil, err
	}
	p.narrow()
	if p.reach, err = s.reaches(in.Network); err != nil {
		return nil, err
	}
	if len(p.reach) > 0 && !p.writes() {
		return nil, refuse("the programs of this line cannot use the network; leave out network")
	}
	p.set.git = p.GitWrites
	if err = p.ownFiles(); err != nil {
		return nil, err
	}
	p.gap = s.sandboxGap(p.set, w.Dir, p.writes())
	if err = s.requireSandbox(p.gap); err == nil {
		err = s.confined(call.Principal, p)
	}
	if err == nil {
		p.root, err = w.Root.Stat(".")
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// rules returns the rules by which lines are judged in a workspace.
func (s *shell) rules(set *Options, w *workspace) *line.Rules {
	return &line.Rules{
		Any: s.options.Mode == ModeAny, Ask: s.options.Mode == ModeAsk, Allow: s.options.Allow, Shells: s.shells,
		Elsewhere: s.options.Elsewhere, Home: s.options.Home, Dir: w.Dir, Given: w.Given,
		Hides: set.hides, HoldsHidden: set.holdsHidden, Protects: set.protects,
		Files: files{w, sync.OnceValue(func() []string { return s.installed().folders(w.Dir) })},
	}
}

// reopen opens the workspace of a plan for its run. It returns an error if the workspace, the
// repository or a file that the line names is not what was judged.
func (s *shell) reopen(call toolcrib.Call, p *plan) (*plan, error) {
	w, err := openWorkspace(call)
	if err != nil {
		return nil, err
	}
	now := *p
	now.w, now.set = w, s.options.resolved(w.Dir)
	now.set.git = p.GitWrites
	now.narrow()
	changed := "the workspace"
	root, err := w.Root.Stat(".")
	if err == nil && os.SameFile(root, p.root) && w.Dir == p.w.Dir && !now.set.hides(w.Dir) {
		changed = p.Changed(s.rules(now.set, w))
	}
	if p.Sandbox() == line.ReadsWorkspace && changed == "" && s.strict(&now) != "" {
		changed = "a FIFO, a socket or a device of the workspace"
	}
	if changed != "" {
		err = refuse("%s was changed after the call was judged; call again", changed)
	} else if err = now.ownFiles(); err == nil {
		return &now, nil
	}
	w.Close()
	return nil, err
}

// ownFiles refuses the line if a file of toolcrib itself is hard-linked into the workspace, where
// its path does not reveal it.
func (p *plan) ownFiles() error {
	other := p.set.own.Other()
	if other == nil {
		return nil
	}
	visits, found := p.set.visits, ""
	_ = filepath.WalkDir(p.w.Dir, func(path string, entry fs.DirEntry, err error) error {
		if visits--; visits < 0 {
			return fs.SkipAll
		}
		switch {
		case err != nil:
			return nil
		case entry.IsDir() && p.set.hides(path):
			return fs.SkipDir
		}
		if info, err := entry.Info(); err == nil && other(info) {
			found = path
			return fs.SkipAll
		}
		return nil
	})
	switch {
	case found != "":
		return refuse("protected path: %s is a hard link to a file of toolcrib itself; remove it first",
			p.named([]string{found}))
	case visits < 0:
		return refuse("a file of toolcrib itself has another name (a hard link), and the workspace has too many files to look for it; " +
			"remove it first")
	}
	return nil
}

// requireSandbox refuses a line if a sandbox is required and is missing or cannot protect all
// files from its programs, of which gap says why.
func (s *shell) requireSandbox(gap string) error {
	if s.options.Sandbox != SandboxRequired {
		return nil
	}
	if s.options.Elsewhere {
		return refuse("a sandbox is required, and this line would run without it")
	}
	if r := s.report(); !r.sandboxed() {
		return refuse("a sandbox is required, but none is available: %s", r.Problem)
	}
	if gap != "" {
		return refuse("a sandbox is required, and here it cannot protect everything: %s", gap)
	}
	return nil
}

const unprotected = "protected files can be written by programs that are not in the built-in table, which it takes bubblewrap to prevent"

// Unprotected returns why some calls of an exec_shell could change protected files in a workspace
// although there is a sandbox, or "".
func Unprotected(tool toolcrib.Tool, workspace string) string {
	s, ok := tool.(*shell)
	others := ok && (s.options.Mode == ModeAny || slices.ContainsFunc(s.options.Allow,
		func(name string) bool { return !line.OnlyReads(name) }))
	if !others || !s.report().sandboxed() {
		return ""
	}
	w, err := openWorkspace(toolcrib.Call{Workspace: workspace})
	if err != nil {
		return "" // no call can run there either
	}
	defer w.Close()
	return s.sandboxGap(s.options.resolved(w.Dir), w.Dir, true)
}

// sandboxGap returns what the sandbox cannot prevent in a workspace, or "". writes reports whether the
// line may write there.
func (s *shell) sandboxGap(set *Options, dir string, writes bool) string {
	if s.options.Elsewhere {
		return "" // no line runs in the sandbox
	}
	switch r := s.report(); {
	case !r.sandboxed():
		return "there is no sandbox (" + r.Problem + ")"
	case !writes:
		return ""
	case r.Bubblewrap == "":
		return unprotected
	}
	if why := set.survey(dir).unsure; why != "" {
		return "not all protected files can be kept from the programs that run: " + why
	}
	return ""
}

// named lists paths for a model, relative to the workspace. It does not name paths outside, and
// of many it names only the first.
func (p *plan) named(paths []string) string {
	const most = 20
	var names []string
	for _, path := range paths[:min(len(paths), most)] {
		name := "a file outside the workspace"
		if rel, err := filepath.Rel(p.w.Dir, path); err == nil && filepath.IsLocal(rel) {
			name = line.Quote(rel)
		}
		names = append(names, name)
	}
	if more := len(paths) - most; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// files is [line.Files] for an open workspace and the programs of this machine.
type files struct {
	w        *workspace
	programs func() []string // folders in which programs are searched
}

func (f files) Resolve(name string) (beneath.Place, error) { return f.w.Resolve(name, absent) }

func (f files) Real(abs string) (real string, folder bool) {
	real = beneath.Real(abs)
	info, err := os.Stat(real)
	return real, err == nil && info.IsDir()
}

func (f files) Program(name string, system bool) (string, error) {
	return findIn(f.programs(), name, system)
}

func (f files) ReadDir(name string, most int) (found []fs.DirEntry, err error) {
	info, err := f.w.Root.Lstat(name)
	if err != nil {
		return nil, fs.ErrNotExist
	}
	if !info.IsDir() && info.Mode()&fs.ModeSymlink == 0 {
		return nil, syscall.ENOTDIR
	}
	folder, err := f.w.Root.Open(name + "/.") // it is a folder, or it fails
	if err != nil {
		if info.IsDir() {
			return nil, nil
		}
		return nil, syscall.ENOTDIR
	}
	defer func() { _ = folder.Close() }()
	for err == nil && len(found) < most {
		var batch []fs.DirEntry
		batch, err = folder.ReadDir(256)
		found = append(found, batch...)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return found, err
}
