package line

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/internal/beneath"
)

// draft is a plan while the line is judged.
type draft struct {
	*Rules
	Plan
	touched  map[string]int      // index in Targets by path
	seen     map[string]int      // index in looked by word
	places   map[string]resolved // words that were resolved; drafts of one line share it
	expanded int                 // number of words, patterns expanded
	outside  bool                // whether the line names a path that no mode allows
	unlisted *toolcrib.Concern   // why a person is asked, or nil
	steers   bool                // whether it writes settings of git
}

// resolved is the answer of [Rules.resolve] for a word.
type resolved struct {
	beneath.Place
	err error
}

func newDraft(r *Rules, l *Line, places map[string]resolved) *draft {
	return &draft{
		Rules: r, Plan: Plan{Line: l, ReadOnly: ByTable, Programs: l.programs},
		touched: map[string]int{}, seen: map[string]int{}, places: places,
	}
}

// trial returns a draft for a single command. What is found by it is added only if it is of use.
func (d *draft) trial() *draft { return newDraft(d.Rules, d.Line, d.places) }

// withoutShell judges a line of simple commands. With [Rules.Ask], a line that this refuses is left
// to a shell, if a person approves.
func (d *draft) withoutShell() error {
	err := d.Line.construct
	if err == nil {
		err = d.steps()
	}
	var refused *toolcrib.ToolError
	if !d.Ask || d.outside || !errors.As(err, &refused) || refused.Kind != toolcrib.PermissionDenied {
		return err
	}
	d.Steps, d.Targets, d.touched, d.Programs = nil, nil, map[string]int{}, d.Line.programs
	d.unlisted = d.asks(refused.Message)
	return d.withShell()
}

// asks returns the concern about a line that is not allowed unasked.
func (d *draft) asks(refused string) *toolcrib.Concern {
	ofShell := strings.Fields(": . [ cd command eval exec exit export local read return set shift source trap umask unset wait")
	var names []string
	for i := range d.Programs {
		if name := d.Programs[i].Name.Text; name != "" && !slices.Contains(slices.Concat(names, ofShell, d.Allow), name) {
			names = append(names, name)
		}
	}
	c := &toolcrib.Concern{
		Reason: toolcrib.ReasonUnlistedProgram, Why: "asks a person: " + refused,
		Instead: "In the configuration tools.shell.mode: any would let it run.",
	}
	if len(names) > 0 {
		list := Shorten(strings.Join(names, ", "))
		c.Why = "runs what tools.shell.allow does not list: " + list
		c.Instead = "In the configuration tools.shell.allow: [" + list + "], added to what it lists, would let it run."
	}
	return c
}

// confine makes a line that a person would be asked about run in the sandbox in which it can only read, if
// there is one: its words are then files that it reads. A line that writes settings of git stays as it is,
// because the gate refuses it.
func (d *draft) confine() {
	other := func(c toolcrib.Concern) bool { return c.Reason != toolcrib.ReasonUnlistedProgram }
	if d.Strict == nil || d.steers || len(d.Concerns) == 0 || slices.ContainsFunc(d.Concerns, other) ||
		!d.Strict() {
		return
	}
	d.ReadOnly, d.Concerns, d.GitWrites = BySandbox, nil, false
	d.target(d.Dir, false)
	d.whole(d.Dir)
	for i := range d.Targets {
		d.Targets[i].Write = false
	}
}

// steps judges the pipelines of a line.
func (d *draft) steps() error {
	e, exact := &expander{files: d.Files}, &Line{words: d.Line.words}
	for _, p := range d.Line.pipelines {
		next := Step{Join: p.join}
		for i := range p.commands {
			c, err := d.command(e, &p.commands[i])
			if err != nil {
				return err
			}
			next.Commands = append(next.Commands, c)
			exact.command(c.Args)
		}
		d.Steps = append(d.Steps, next)
	}
	d.Programs = exact.programs // with patterns expanded
	return nil
}

// command judges one command: the program, its options, its operands.
func (d *draft) command(e *expander, c *simple) (Command, error) {
	out := Command{Out: c.out, Err: c.err}
	name := c.words[0].text
	err := d.allowed(name)
	if err != nil {
		return out, err
	}
	if out.Path, err = d.program(name); err != nil {
		return out, err
	}
	args := []string{}
	for _, w := range c.words[1:] {
		expanded, err := e.expand(w)
		if err != nil {
			return out, err
		}
		if d.expanded += len(expanded); d.expanded > maxWords {
			return out, refuse("more than %d words in one line, patterns expanded; use several calls, or find", maxWords)
		}
		args = append(args, expanded...)
	}
	if known(name) {
		args, err = d.judged(name, args, slices.Contains(d.Allow, name))
	} else {
		d.ReadOnly = MayWrite
		err = d.unjudged(args)
	}
	if err != nil {
		return out, err
	}
	out.Args = append([]string{name}, args...)
	return out, d.input(c, &out)
}

// program returns the path of a program, which must be outside the workspace.
func (d *draft) program(name string) (string, error) {
	path, err := d.Files.Program(name, known(name))
	if err != nil {
		return "", err
	}
	if real, _ := d.Files.Real(path); within(real, d.Dir) {
		return "", refuse("%s would be run from the workspace; only programs of the system are run", name)
	}
	return path, nil
}

// known reports whether there are tables for the arguments of a program.
func known(name string) bool { return name == "git" || OnlyReads(name) }

// judged judges the arguments of a known program, and returns the arguments to run it with. listed
// reports whether the user allowed the program.
func (d *draft) judged(name string, args []string, listed bool) ([]string, error) {
	j := &judge{name: name, prog: table()[name], draft: d}
	if name == "git" {
		return args, j.git(args, listed)
	}
	return j.judged(args)
}

// allowed refuses a program that may not run. With [Rules.Ask] git may run, because its arguments are judged.
func (d *draft) allowed(name string) error {
	if strings.ContainsAny(name, "/\\") {
		return refuse("%s: programs are named without a path%s", Quote(name), d.allowedText())
	}
	if slices.Contains(d.Allow, name) || name == "[" && slices.Contains(d.Allow, "test") || name == "git" && d.Ask {
		return nil
	}
	return refuse("%s is not an allowed program%s", Quote(name), d.allowedText())
}

func (d *draft) allowedText() string {
	if len(d.Allow) == 0 {
		return "; none is allowed"
	}
	shown, more := d.Allow, ""
	if len(shown) > 40 {
		shown, more = shown[:40], ", …"
	}
	return "; allowed are " + strings.Join(shown, ", ") + more
}

// input judges the file of a redirection with <.
func (d *draft) input(c *simple, out *Command) error {
	if c.in == nil {
		out.NoInput = c.emptyIn
		return nil
	}
	name := c.in.text
	found, err := d.find(name)
	if err != nil {
		return err
	}
	switch {
	case found.Info == nil:
		return toolcrib.Failf(toolcrib.NotFound, "%s", Quote(name))
	case !found.Info.Mode().IsRegular():
		return refuse("%s is not a regular file, so it cannot be the input", Quote(name))
	}
	d.touch(found)
	d.look(looked{name, found.Real, true})
	out.In = found.Real
	return nil
}

// find resolves an operand, and refuses a path that is hidden or outside the workspace.
func (d *draft) find(name string) (found beneath.Place, err error) {
	defer func() { d.outside = d.outside || err != nil }()
	found, err = d.resolve(name)
	var made *toolcrib.ToolError
	switch {
	case errors.Is(err, beneath.ErrOutside):
		return found, refuse("path escapes workspace: %s; paths are relative to the workspace", Quote(name))
	case errors.As(err, &made):
		return found, err
	case err != nil:
		return found, &toolcrib.ToolError{
			Kind: toolcrib.PermissionDenied, Message: Quote(name) + " cannot be looked at",
			Err: err,
		}
	}
	if d.Hides(d.abs(found.Real)) {
		return found, protects("protected path: %s", Quote(name))
	}
	d.look(looked{name, found.Real, false})
	return found, nil
}

// resolve is [Rules.resolve], which is asked once for each word.
func (d *draft) resolve(name string) (beneath.Place, error) {
	r, ok := d.places[name]
	if !ok {
		r.Place, r.err = d.Rules.resolve(name)
		d.places[name] = r
	}
	return r.Place, r.err
}

// look records a word that was resolved.
func (d *draft) look(l looked) {
	i, known := d.seen[l.word]
	if !known {
		d.seen[l.word] = len(d.looked)
		d.looked = append(d.looked, l)
		return
	}
	d.looked[i].reads = d.looked[i].reads || l.reads
}

// touch records a file that the line reads as a target.
func (d *draft) touch(found beneath.Place) { d.target(d.abs(found.Real), false) }

// target records a file that the line reads or may write.
func (d *draft) target(abs string, write bool) {
	abs = filepath.Clean(abs)
	if i, known := d.touched[abs]; known {
		d.Targets[i].Write = d.Targets[i].Write || write
		return
	}
	d.touched[abs] = len(d.Targets)
	d.Targets = append(d.Targets, toolcrib.Target{Kind: toolcrib.TargetFile, Name: abs, Write: write})
}

// whole records that the line may touch anything below a folder that is a target.
func (d *draft) whole(abs string) {
	if i, known := d.touched[filepath.Clean(abs)]; known {
		d.Targets[i].Tree = true
	}
}

// unjudged records the targets of a program without tables: the workspace, each argument that is
// not an option, and the part of an argument after =. All may be written.
func (d *draft) unjudged(args []string) error {
	d.target(d.Dir, true)
	d.whole(d.Dir)
	for _, word := range args {
		if _, after, ok := strings.Cut(word, "="); ok {
			if err := d.maybe(after, false); err != nil {
				return err
			}
		}
		if strings.HasPrefix(word, "-") {
			continue
		}
		if err := d.maybe(word, false); err != nil {
			return err
		}
	}
	return nil
}

// maybe records a word that may be, or with is, a file as a target. It refuses hidden files, and
// leaves files outside the workspace to the sandbox and the gate.
func (d *draft) maybe(word string, is bool) error {
	if word == "" || len(word) > maxPathBytes || strings.ContainsRune(word, 0) {
		return nil
	}
	found, err := d.resolve(word)
	abs, folder := "", false
	switch {
	case err == nil && (is || found.Info != nil || strings.Contains(word, "/") || strings.HasPrefix(word, ".") ||
		d.Protects(word)):
		abs, folder = d.abs(found.Real), found.Info != nil && found.Info.IsDir()
		d.look(looked{word, found.Real, false})
	case errors.Is(err, beneath.ErrOutside) && filepath.IsAbs(word):
		abs, folder = d.Files.Real(word)
	case errors.Is(err, beneath.ErrOutside):
		abs, folder = d.Files.Real(filepath.Join(d.Dir, word))
	default:
		return nil
	}
	if d.Hides(abs) {
		return protects("protected path: %s", Quote(word))
	}
	d.target(abs, true)
	if folder {
		d.whole(abs)
	}
	return nil
}

// withShell judges a line that a shell runs as written. It was parsed by the grammar of bash; if
// bash is missing, sh runs it, and constructs that only bash has are refused.
func (d *draft) withShell() error {
	d.ReadOnly = MayWrite
	d.target(d.Dir, true)
	d.whole(d.Dir)
	if err := d.named(d.Line.file); err != nil {
		return err
	}
	path, err := "", refuse("there is no shell")
	for i := 0; err != nil && i < len(d.Shells); i++ {
		d.Shell = d.Shells[i]
		path, err = d.Files.Program(d.Shell, true)
	}
	if err != nil {
		return err
	}
	if d.Shell != "bash" && !d.Elsewhere {
		if what := d.Line.bashOnly(); what != "" {
			return refuse("%s: only bash has this, and the line would be run by %s; write it without", what, d.Shell)
		}
	}
	run := Command{Path: path, Args: []string{d.Shell, "-c", d.Line.Text}, Out: ToOut, Err: ToErr}
	d.Steps = []Step{{Commands: []Command{run}}}
	return nil
}

// named records the words of a script that may be files as targets.
func (d *draft) named(file *syntax.File) error {
	var refused error
	syntax.Walk(file, func(node syntax.Node) bool {
		if refused != nil {
			return false
		}
		switch n := node.(type) {
		case *syntax.CallExpr:
			refused = d.anyCommand(n)
		case *syntax.Redirect:
			refused = d.anyRedirect(n)
		}
		return refused == nil
	})
	return refused
}

// anyCommand records the literal words of a command that may be files as targets. They are only
// read if the tables know that the command only reads; otherwise they may be written.
func (d *draft) anyCommand(call *syntax.CallExpr) error {
	var words []string
	for _, w := range call.Args {
		text, known, err := d.literal(w)
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
	if known(words[0]) {
		trial := d.trial()
		_, err := trial.judged(words[0], words[1:], true)
		if err == nil && (trial.ReadOnly == ByTable || slices.Contains(gitKept, words[1])) {
			for _, t := range trial.Targets {
				d.target(t.Name, false)
				if t.Tree {
					d.whole(t.Name)
				}
			}
			for _, l := range trial.looked {
				d.look(l)
			}
			return nil
		}
	}
	if len(d.Targets) > maxWords {
		return refuse("the line names more than %d files; use several calls", maxWords)
	}
	return d.unjudged(words[1:])
}

// literal returns a word as a program gets it; known is false if the shell expands it. With
// [Rules.Elsewhere] the shell has the user's home folder, so ~ and $HOME are expanded here.
func (d *draft) literal(w *syntax.Word) (text string, known bool, err error) {
	if r, err := d.Line.word(w); err == nil {
		return r.text, true, nil
	}
	if !d.Elsewhere || d.Home == "" {
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
		return "", false, refuse("%s: the home folder of another user is not allowed; write the path out", Quote(user))
	}
	if known {
		text, err = expand.Literal(&expand.Config{Env: expand.ListEnviron("HOME=" + d.Home)}, w)
	}
	return text, known && err == nil, nil
}

func (d *draft) anyRedirect(r *syntax.Redirect) error {
	if r.Word == nil || r.Hdoc != nil {
		return nil
	}
	text, known, err := d.literal(r.Word)
	if !known || err != nil {
		return err // the shell expands the word, and the sandbox confines the command
	}
	if strings.HasPrefix(text, "/dev/") || r.Op == syntax.DplOut || r.Op == syntax.DplIn {
		return nil
	}
	if r.Op != syntax.RdrIn {
		return d.maybe(text, true)
	}
	found, err := d.resolve(text)
	switch {
	case err != nil:
		return nil //nolint:nilerr // as above
	case d.Hides(d.abs(found.Real)):
		return protects("protected path: %s", Quote(text))
	}
	d.touch(found)
	return nil
}

// resolve resolves a path as the system would. It refuses a path that leaves the workspace at any
// point, even if it returns. The result may be outdated when a program opens the path, if a link
// was changed in between; this is left to the sandbox.
func (r *Rules) resolve(name string) (beneath.Place, error) {
	if name == "" || len(name) > maxPathBytes || strings.ContainsRune(name, 0) {
		return beneath.Place{}, toolcrib.Failf(toolcrib.PermissionDenied, "%s is not a path", Quote(name))
	}
	if strings.HasPrefix(name, "/") { // only a literal prefix is inside, whatever it resolves to
		inside, ok := beneath.Below(name, r.Given, r.Dir)
		if !ok {
			return beneath.Place{}, beneath.ErrOutside
		}
		name = inside
	}
	p, err := r.Files.Resolve(name)
	if errors.Is(err, beneath.ErrLinks) {
		err = toolcrib.Failf(toolcrib.PermissionDenied, "too many symbolic links: %s", Quote(name))
	}
	return p, err
}

// abs returns the absolute path of a resolved one.
func (r *Rules) abs(real string) string { return filepath.Join(r.Dir, filepath.FromSlash(real)) }

// within reports whether path is folder or below it; both absolute and clean.
func within(path, folder string) bool {
	_, in := beneath.Below(path, folder)
	return in
}
