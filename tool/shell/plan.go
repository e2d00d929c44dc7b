package shell

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/internal/beneath"
	"github.com/toolcrib/toolcrib/tool/shell/internal/jail"
)

// plan is a judged call.
type plan struct {
	arguments
	timeout time.Duration
	file    *syntax.File // the line, parsed
	root    fs.FileInfo  // the workspace as it was judged
	looked  []looked
	set     *Options // options with the links in their paths resolved
	w       *workspace
	steps   []jail.Step
	writes  bool // whether the line may write: a program is not in the built-in table
	targets []toolcrib.Target
	touched map[string]int // index in targets by path
	words   int

	programs []toolcrib.Program // programs that the line starts

	shell    string            // shell that runs the line, or ""
	outside  bool              // whether the line names a path that no mode allows
	unlisted *toolcrib.Concern // why mode ask asks a person; nil if the line may run

	usesGit bool
	gitRuns string // part of the repository that may name a program for git to run, or ""
}

// looked is a word that was resolved for the plan.
type looked struct {
	word, real string
	reads      bool // whether it is opened for reading, so that it must not be special
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
	now.set.git = p.set.git
	if what := now.changed(p); what != "" {
		err = refuse("%s was changed after the call was judged; call again", what)
	} else if err = now.ownFiles(); err == nil {
		return &now, nil
	}
	w.Close()
	return nil, err
}

// changed returns what is not as it was judged, or "".
func (p *plan) changed(judged *plan) string {
	root, err := p.w.Root.Stat(".")
	switch {
	case err != nil || !os.SameFile(root, judged.root) || p.w.Dir != judged.w.Dir || p.set.hides(p.w.Dir):
		return "the workspace"
	case p.usesGit && gitRuns(p.w.Dir) != p.gitRuns:
		return "the configuration of the repository"
	}
	for _, l := range p.looked {
		found, err := p.w.resolve(l.word)
		special := l.reads && found.Info != nil && !found.Info.Mode().IsRegular() && !found.Info.IsDir()
		if err != nil || found.Real != l.real || special || p.set.hides(p.w.Abs(found.Real)) {
			return quote(l.word)
		}
	}
	return ""
}

// plan judges a call. The workspace is open meanwhile.
func (s *shell) plan(call toolcrib.Call) (*plan, error) {
	if !supported {
		return nil, refuse("%s is not available on this system", Name)
	}
	in, timeout, err := s.arguments(call)
	if err != nil {
		return nil, err
	}
	file, err := parse(in.Command)
	if err != nil {
		return nil, err
	}
	var line started
	line.tree(file)
	if err := checkForbidden(file, line.programs); err != nil {
		return nil, err
	}
	w, err := openWorkspace(call)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	p := &plan{
		arguments: in, timeout: timeout, file: file, set: s.options.resolved(w.Dir), w: w,
		touched: map[string]int{}, programs: line.programs,
	}
	if p.set.hides(w.Dir) {
		err = protects("the workspace is in a protected folder")
	} else if s.options.Mode == ModeAny {
		err = s.planAny(p, file)
	} else {
		err = s.planLine(p, file)
	}
	if err == nil {
		s.planGit(p, file)
		p.steering(line.sets)
	}
	for _, script := range line.scripts {
		if err == nil {
			err = s.named(p, script)
		}
	}
	confined := func(p *plan) error { return s.confined(call.Principal, p) }
	for _, look := range []func(*plan) error{(*plan).wholeMachine, (*plan).ownFiles, s.requireSandbox, confined} {
		if err == nil {
			err = look(p)
		}
	}
	if err == nil {
		p.root, err = w.Root.Stat(".")
	}
	if err != nil {
		return nil, err
	}
	p.sortTargets()
	return p, nil
}

// planGit sets the fields of the plan that are about git.
func (s *shell) planGit(p *plan, file *syntax.File) {
	p.usesGit = slices.ContainsFunc(p.programs, func(at toolcrib.Program) bool { return at.Name.Text == "git" })
	if !p.usesGit {
		return
	}
	p.gitRuns = gitRuns(p.w.Dir)
	p.set.git = p.writes && s.ofGit(p, file)
}

// wholeMachine refuses a line that may write if the workspace is the root of the file system: no
// sandbox could confine it.
func (p *plan) wholeMachine() error {
	if p.writes && p.w.Dir == rootDir {
		return refuse("the workspace is the root of the file system, where only programs of the built-in table are run; " +
			"start in the folder that is worked on")
	}
	return nil
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

// requireSandbox refuses the line if a sandbox is required and is missing or cannot protect all
// files from its programs.
func (s *shell) requireSandbox(p *plan) error {
	if s.options.Sandbox != SandboxRequired {
		return nil
	}
	if s.options.Elsewhere {
		return refuse("a sandbox is required, and this line would run without it")
	}
	if r := s.report(); !r.sandboxed() {
		return refuse("a sandbox is required, but none is available: %s", r.Problem)
	}
	if why := s.sandboxGap(p); why != "" {
		return refuse("a sandbox is required, and here it cannot protect everything: %s", why)
	}
	return nil
}

const unprotected = "protected files can be written by programs that are not in the built-in table, which it takes bubblewrap to prevent"

// Unprotected returns why some calls of an exec_shell could change protected files in a workspace
// although there is a sandbox, or "".
func Unprotected(tool toolcrib.Tool, workspace string) string {
	s, ok := tool.(*shell)
	others := ok && (s.options.Mode == ModeAny || slices.ContainsFunc(s.options.Allow,
		func(name string) bool { return s.table[name] == nil }))
	if !others || !s.report().sandboxed() {
		return ""
	}
	w, err := openWorkspace(toolcrib.Call{Workspace: workspace})
	if err != nil {
		return "" // no call can run there either
	}
	defer w.Close()
	return s.sandboxGap(&plan{set: s.options.resolved(w.Dir), w: w, writes: true})
}

// sandboxGap returns what the sandbox cannot prevent for this line, or "".
func (s *shell) sandboxGap(p *plan) string {
	if s.options.Elsewhere {
		return "" // no line runs in the sandbox
	}
	switch r := s.report(); {
	case !r.sandboxed():
		return "there is no sandbox (" + r.Problem + ")"
	case !p.writes:
		return ""
	case r.Bubblewrap == "":
		return unprotected
	}
	if why := p.set.survey(p.w.Dir).unsure; why != "" {
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
			name = quote(rel)
		}
		names = append(names, name)
	}
	if more := len(paths) - most; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// planLine plans a line of simple commands. In mode ask, a line that this refuses is planned for a
// shell, to be approved by a person.
func (s *shell) planLine(p *plan, file *syntax.File) error {
	programs := p.programs
	found, err := lines(file)
	if err == nil {
		err = s.planSteps(p, found)
	}
	var refused *toolcrib.ToolError
	if s.options.Mode != ModeAsk || p.outside || !errors.As(err, &refused) || refused.Kind != toolcrib.PermissionDenied {
		return err
	}
	p.steps, p.targets, p.touched, p.programs = nil, nil, map[string]int{}, programs
	p.unlisted = s.unlisted(programs, refused.Message)
	return s.planAny(p, file)
}

// unlisted returns the concern about a line for mode ask.
func (s *shell) unlisted(programs []toolcrib.Program, refused string) *toolcrib.Concern {
	ofShell := strings.Fields(": . [ cd command eval exec exit export local read return set shift source trap umask unset wait")
	var names []string
	for i := range programs {
		if name := programs[i].Name.Text; name != "" && !slices.Contains(slices.Concat(names, ofShell,
			s.options.Allow), name) {
			names = append(names, name)
		}
	}
	c := &toolcrib.Concern{
		Reason: toolcrib.ReasonUnlistedProgram, Why: "asks a person: " + refused,
		Instead: "In the configuration tools.shell.mode: any would let it run.",
	}
	if len(names) > 0 {
		list := quoteText(strings.Join(names, ", "))
		c.Why = "runs what tools.shell.allow does not list: " + list
		c.Instead = "In the configuration tools.shell.allow: [" + list + "], added to what it lists, would let it run."
	}
	return c
}

// planSteps judges the pipelines of a line.
func (s *shell) planSteps(p *plan, found []pipeline) error {
	e, exact := &expander{w: p.w}, &started{}
	for _, line := range found {
		next := jail.Step{Join: line.join}
		for i := range line.commands {
			c, err := s.planCommand(p, e, &line.commands[i])
			if err != nil {
				return err
			}
			next.Commands = append(next.Commands, c)
			exact.command(c.Args)
		}
		p.steps = append(p.steps, next)
	}
	p.programs = exact.programs // with patterns expanded
	return nil
}

// planCommand judges one command: the program, its options, its operands.
func (s *shell) planCommand(p *plan, e *expander, c *simple) (jail.Command, error) {
	out := jail.Command{Out: c.out, Err: c.err}
	name := c.words[0].text
	err := s.allowed(name)
	if err != nil {
		return out, err
	}
	if out.Path, err = s.find(p, name, s.known(name)); err != nil {
		return out, err
	}
	args := []string{}
	for _, w := range c.words[1:] {
		expanded, err := e.expand(w)
		if err != nil {
			return out, err
		}
		if p.words += len(expanded); p.words > maxWords {
			return out, refuse("more than %d words in one line, patterns expanded; use several calls, or find", maxWords)
		}
		args = append(args, expanded...)
	}
	if s.known(name) {
		args, err = s.judged(p, name, args, slices.Contains(s.options.Allow, name))
	} else {
		p.writes = true
		err = p.unjudged(args)
	}
	if err != nil {
		return out, err
	}
	out.Args = append([]string{name}, args...)
	return out, p.input(c, &out)
}

// find returns the path of a program, which must be outside the workspace.
func (s *shell) find(p *plan, name string, known bool) (string, error) {
	path, err := findIn(s.installed().folders(p.w.Dir), name, known)
	if err == nil && within(beneath.Real(path), p.w.Dir) {
		return "", refuse("%s would be run from the workspace; only programs of the system are run", name)
	}
	return path, err
}

// known reports whether the built-in table has a program.
func (s *shell) known(name string) bool { return name == "git" || s.table[name] != nil }

// judged judges the arguments of a program of the table, and returns the arguments to run it
// with. listed reports whether the user allowed the program.
func (s *shell) judged(p *plan, name string, args []string, listed bool) ([]string, error) {
	j := &judge{name: name, prog: s.table[name], plan: p}
	if name == "git" {
		return args, j.git(args, listed)
	}
	return j.judged(args)
}

// allowed refuses a program that may not run. In mode ask git may run, because its arguments are judged.
func (s *shell) allowed(name string) error {
	if strings.ContainsAny(name, "/\\") {
		return refuse("%s: programs are named without a path%s", quote(name), s.allowedText())
	}
	if slices.Contains(s.options.Allow, name) || name == "[" && slices.Contains(s.options.Allow, "test") ||
		name == "git" && s.options.Mode == ModeAsk {
		return nil
	}
	return refuse("%s is not an allowed program%s", quote(name), s.allowedText())
}

func (s *shell) allowedText() string {
	if len(s.options.Allow) == 0 {
		return "; none is allowed"
	}
	shown, more := s.options.Allow, ""
	if len(shown) > 40 {
		shown, more = shown[:40], ", …"
	}
	return "; allowed are " + strings.Join(shown, ", ") + more
}

// input judges the file of a redirection with <.
func (p *plan) input(c *simple, out *jail.Command) error {
	if c.in == nil {
		out.NoInput = c.emptyIn
		return nil
	}
	found, err := p.find(c.in.text)
	if err != nil {
		return err
	}
	switch {
	case found.Info == nil:
		return toolcrib.Failf(toolcrib.NotFound, "%s", quote(c.in.text))
	case !found.Info.Mode().IsRegular():
		return refuse("%s is not a regular file, so it cannot be the input", quote(c.in.text))
	}
	p.touch(found)
	p.looked[len(p.looked)-1].reads = true
	out.In = found.Real
	return nil
}

// find resolves an operand, and refuses a path that is hidden or outside the workspace.
func (p *plan) find(name string) (found beneath.Place, err error) {
	defer func() { p.outside = p.outside || err != nil }()
	found, err = p.w.resolve(name)
	var made *toolcrib.ToolError
	switch {
	case errors.Is(err, errEscapes):
		return found, refuse("path escapes workspace: %s; paths are relative to the workspace", quote(name))
	case errors.As(err, &made):
		return found, err
	case err != nil:
		return found, &toolcrib.ToolError{
			Kind: toolcrib.PermissionDenied, Message: quote(name) + " cannot be looked at",
			Err: err,
		}
	}
	if p.set.hides(p.w.Abs(found.Real)) {
		return found, protects("protected path: %s", quote(name))
	}
	p.looked = append(p.looked, looked{word: name, real: found.Real})
	return found, nil
}

// touch records a file that the line reads as a target.
func (p *plan) touch(found beneath.Place) { p.target(p.w.Abs(found.Real), false) }

// target records a file that the line reads or may write.
func (p *plan) target(abs string, write bool) {
	abs = filepath.Clean(abs)
	if i, known := p.touched[abs]; known {
		p.targets[i].Write = p.targets[i].Write || write
		return
	}
	p.touched[abs] = len(p.targets)
	p.targets = append(p.targets, toolcrib.Target{Kind: toolcrib.TargetFile, Name: abs, Write: write})
}

// whole records that the line may touch anything below a folder that is a target.
func (p *plan) whole(abs string) {
	if i, known := p.touched[filepath.Clean(abs)]; known {
		p.targets[i].Tree = true
	}
}

func (p *plan) sortTargets() {
	slices.SortFunc(p.targets, func(a, b toolcrib.Target) int { return strings.Compare(a.Name, b.Name) })
}

// unjudged records the targets of a program that is not in the built-in table: the workspace,
// each argument that is not an option, and the part of an argument after =. All may be written.
func (p *plan) unjudged(args []string) error {
	p.target(p.w.Dir, true)
	p.whole(p.w.Dir)
	for _, word := range args {
		if _, after, ok := strings.Cut(word, "="); ok {
			if err := p.maybe(after, false); err != nil {
				return err
			}
		}
		if strings.HasPrefix(word, "-") {
			continue
		}
		if err := p.maybe(word, false); err != nil {
			return err
		}
	}
	return nil
}

// maybe records a word that may be, or with is, a file as a target. It refuses hidden files, and
// leaves files outside the workspace to the sandbox and the gate.
func (p *plan) maybe(word string, is bool) error {
	if word == "" || len(word) > maxPathBytes || strings.ContainsRune(word, 0) {
		return nil
	}
	found, err := p.w.resolve(word)
	abs := ""
	switch {
	case err == nil && (is || found.Info != nil || strings.Contains(word, "/") || strings.HasPrefix(word, ".") ||
		p.set.protects(word)):
		abs = p.w.Abs(found.Real)
		p.looked = append(p.looked, looked{word: word, real: found.Real})
	case errors.Is(err, errEscapes) && filepath.IsAbs(word):
		abs = beneath.Real(word)
	case errors.Is(err, errEscapes):
		abs = beneath.Real(filepath.Join(p.w.Dir, word))
	default:
		return nil
	}
	if p.set.hides(abs) {
		return protects("protected path: %s", quote(word))
	}
	p.target(abs, true)
	if info, err := os.Stat(abs); err == nil && info.IsDir() {
		p.whole(abs)
	}
	return nil
}

// planAny plans a line of mode any. It was parsed by the grammar of bash, which runs it as written. If
// bash is missing, sh runs it, and constructs that only bash has are refused.
func (s *shell) planAny(p *plan, file *syntax.File) error {
	p.writes = true
	p.target(p.w.Dir, true)
	p.whole(p.w.Dir)
	if err := s.named(p, file); err != nil {
		return err
	}
	name, path, err := s.runner(s.installed().folders(p.w.Dir))
	if err != nil {
		return err
	}
	if what := bashOnly(file, p.Command); name != "bash" && what != "" && !s.options.Elsewhere {
		return refuse("%s: only bash has this, and the line would be run by %s; write it without", what, name)
	}
	p.shell = name
	run := jail.Command{Path: path, Args: []string{name, "-c", p.Command}, Out: jail.ToOut, Err: jail.ToErr}
	p.steps = []jail.Step{{Commands: []jail.Command{run}}}
	return nil
}

// runner returns the name and the path of the shell that runs lines.
func (s *shell) runner(folders []string) (name, path string, err error) {
	for _, name := range s.shells {
		if path, err = findIn(folders, name, true); err == nil {
			return name, path, nil
		}
	}
	return "", "", err
}

// named records the words of a script that may be files as targets.
func (s *shell) named(p *plan, file *syntax.File) error {
	var refused error
	syntax.Walk(file, func(node syntax.Node) bool {
		if refused != nil {
			return false
		}
		switch n := node.(type) {
		case *syntax.CallExpr:
			refused = s.anyCommand(p, n)
		case *syntax.Redirect:
			refused = p.anyRedirect(n)
		}
		return refused == nil
	})
	return refused
}

// anyCommand records the literal words of a command that may be files as targets. They are only
// read if the command is in the built-in table with harmless options; otherwise they may be written.
func (s *shell) anyCommand(p *plan, call *syntax.CallExpr) error {
	var words []string
	for _, w := range call.Args {
		text, known, err := p.literal(w)
		if err != nil {
			return err
		}
		if !known {
			text = "\x00" // the shell expands it
		}
		words = append(words, text)
	}
	if len(words) == 0 {
		return nil
	}
	if s.known(words[0]) {
		trial := &plan{set: p.set, w: p.w, touched: map[string]int{}}
		_, err := s.judged(trial, words[0], words[1:], true)
		if err == nil && (!trial.writes || slices.Contains(gitKept, words[1])) {
			for _, t := range trial.targets {
				p.target(t.Name, false)
				if t.Tree {
					p.whole(t.Name)
				}
			}
			p.looked = append(p.looked, trial.looked...)
			return nil
		}
	}
	if len(p.targets) > maxWords {
		return refuse("the line names more than %d files; use several calls", maxWords)
	}
	return p.unjudged(words[1:])
}

// literal returns a word as a program gets it; known is false if the shell expands it. With
// Options.Elsewhere the shell has the user's home folder, so ~ and $HOME are expanded here.
func (p *plan) literal(w *syntax.Word) (text string, known bool, err error) {
	if r, err := readWord(w); err == nil {
		return r.text, true, nil
	}
	if !p.set.Elsewhere || p.set.Home == "" {
		return "", false, nil
	}
	known = true
	syntax.Walk(w, func(node syntax.Node) bool {
		switch n := node.(type) {
		case nil, *syntax.Word, *syntax.Lit, *syntax.SglQuoted, *syntax.DblQuoted:
		case *syntax.ParamExp:
			known = known && n.Param.Value == "HOME" && n.Exp == nil && n.Repl == nil && n.Slice == nil && n.Index == nil &&
				!n.Excl && !n.Length
			return false
		default:
			known = false
		}
		return known
	})
	if user := w.Lit(); strings.HasPrefix(user, "~") && user != "~" && !strings.HasPrefix(user, "~/") {
		return "", false, refuse("%s: the home folder of another user is not allowed; write the path out", quote(user))
	}
	if known {
		text, err = expand.Literal(&expand.Config{Env: expand.ListEnviron("HOME=" + p.set.Home)}, w)
	}
	return text, known && err == nil, nil
}

func (p *plan) anyRedirect(r *syntax.Redirect) error {
	if r.Word == nil || r.Hdoc != nil {
		return nil
	}
	text, known, err := p.literal(r.Word)
	if !known || err != nil {
		return err // the shell expands the word, and the sandbox confines the command
	}
	if strings.HasPrefix(text, "/dev/") || r.Op == syntax.DplOut || r.Op == syntax.DplIn {
		return nil
	}
	if r.Op != syntax.RdrIn {
		return p.maybe(text, true)
	}
	found, err := p.w.resolve(text)
	switch {
	case err != nil:
		return nil //nolint:nilerr // as above
	case p.set.hides(p.w.Abs(found.Real)):
		return protects("protected path: %s", quote(text))
	}
	p.touch(found)
	return nil
}
