package shell

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/internal/beneath"
	"github.com/toolcrib/toolcrib/tool/internal/nolink"
	"github.com/toolcrib/toolcrib/tool/shell/internal/line"
)

// Programs runs single programs in the sandbox of exec_shell, without a shell, for tools that are made of programs.
type Programs struct {
	options   Options
	report    func() Report
	installed func() *installed
}

// NewPrograms returns Programs. Of the options it uses neither Mode, Allow nor Network: each program that the
// configuration names counts as listed.
func NewPrograms(options Options) (*Programs, error) {
	options.Mode, options.Allow = ModeAny, []string{}
	if err := options.check(); err != nil {
		return nil, err
	}
	return &Programs{options: options, report: options.probe(), installed: sync.OnceValue(options.install)}, nil
}

// Program is a program with the arguments of one call.
type Program struct {
	// Path is an absolute path, or a name, which is searched in [Options.Path]. Args begin with the name.
	Path  string
	Args  []string
	Input []byte // standard input
	// SHA256 is the hash of the file in hex. If "", the program must lie outside the workspace.
	SHA256 string
	// ReadOnly requires a sandbox in which the program can only read. Without one, a person is asked each time.
	ReadOnly bool
	Network  bool // whether the program may reach the network
}

// Ended is how a program ended.
type Ended struct {
	ExitCode       int    // -1 if a signal ended it
	Signal         string // name of that signal, or ""
	Warning        string // what else happened, or ""
	Stdout, Stderr string
	Cut            bool   // whether some of Stdout is left out
	Source         string // of untrusted data in the outputs, or ""
}

// Tail returns the last lines of the outputs, for an error about a program.
func (e Ended) Tail(most int) string { return tails(e.Stdout, e.Stderr, most) }

// shell returns the shell whose sandbox a program runs in.
func (p *Programs) shell(of Program) *shell {
	options := p.options
	options.open, options.Network = of.Network, Network{}
	return &shell{options: options, report: p.report, installed: p.installed, bounds: boundsOf, work: time.Second}
}

// programPlan is a judged run of a program.
type programPlan struct {
	Program
	*plan
	path string
}

// Plan judges the run of a program. The targets are the workspace and each word that may be a file. result returns the
// output of the call. If the sandbox cannot protect everything, a person is asked each time, or with [SandboxRequired]
// the call is refused.
func (p *Programs) Plan(
	call toolcrib.Call, of Program, result func(Ended) (toolcrib.Output, error),
) (*toolcrib.Plan, error) {
	if !supported {
		return nil, refuse("programs are not available on this system")
	}
	w, err := openWorkspace(call)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	s := p.shell(of)
	judged := &programPlan{Program: of, plan: &plan{set: s.options.resolved(w.Dir), w: w}}
	if of.ReadOnly {
		judged.notStrict = s.strict(judged.plan)
	}
	strict := of.ReadOnly && judged.notStrict == ""
	if judged.path, err = s.place(of, w); err != nil {
		return nil, err
	}
	inside := !s.report().sandboxed()
	if judged.Plan, err = s.rules(judged.set, w).Program(judged.path, of.Args, strict, inside); err != nil {
		return nil, err
	}
	judged.narrow()
	if err = judged.ownFiles(); err != nil {
		return nil, err
	}
	judged.gap = s.sandboxGap(judged.set, w.Dir, judged.writes())
	if judged.notStrict != "" && !inside {
		judged.gap = "the program cannot be kept from writing: " + judged.notStrict
	}
	if err = s.requireSandbox(judged.gap); err == nil {
		err = s.confined(call.Principal, judged.plan)
	}
	if err != nil {
		return nil, err
	}
	if judged.root, err = w.Root.Stat("."); err != nil {
		return nil, fault("the workspace folder cannot be opened", err)
	}
	out := &toolcrib.Plan{
		Effect: judged.Effect(), Targets: judged.Targets, Programs: judged.Programs,
		Preview: func(context.Context) (toolcrib.Preview, error) {
			return toolcrib.Preview{Kind: "text", Text: s.programPreview(judged)}, nil
		},
		Run: func(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
			ended, err := s.doProgram(ctx, call, judged)
			if err != nil {
				return toolcrib.Output{}, err
			}
			return result(ended)
		},
	}
	if judged.gap != "" {
		out.Concerns = []toolcrib.Concern{{
			Reason: toolcrib.ReasonNeedsConfirmation, Why: "asks each time: " + judged.gap,
		}}
	}
	return out, nil
}

// programPreview shows the words exactly, and how the program is confined.
func (s *shell) programPreview(p *programPlan) string {
	words := []string{p.path}
	for _, word := range p.Args[1:] {
		if word == "" || strings.ContainsFunc(word, func(r rune) bool { return !strings.ContainsRune(plainRunes, r) }) {
			word = strconv.Quote(word)
		}
		words = append(words, word)
	}
	text := strings.Join(words, " ")
	if p.Input != nil {
		text += "\nstandard input: " + string(p.Input)
	}
	text += "\n\n"
	if !p.writes() {
		return text + s.strictText(p.plan)
	}
	text += s.report().describe(s.network(p.plan))
	if p.gap != "" && s.report().sandboxed() {
		text += "\nBut " + p.gap + "."
	}
	return text
}

// plainRunes are shown without quotes.
const plainRunes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=@%+,-"

// doProgram runs a judged program.
func (s *shell) doProgram(ctx context.Context, call toolcrib.Call, judged *programPlan) (Ended, error) {
	if err := ctx.Err(); err != nil {
		return Ended{}, err
	}
	open, err := s.reopen(call, judged.plan)
	if err != nil {
		return Ended{}, err
	}
	defer open.w.Close()
	open.shared = s.loopback(call, open)
	now := *judged
	if now.plan = open; now.SHA256 == "" { // else the file is compared while it is copied
		if path, err := s.place(now.Program, open.w); err != nil || path != now.path {
			return Ended{}, errors.Join(err, refuse("the program was changed after the call was judged; call again"))
		}
	}
	progress := &progress{report: call.Progress}
	if call.Progress == nil {
		progress.report = func(string, float64) {}
	}
	defer progress.stop()
	res, err := s.runProgram(ctx, call, &now, progress.output)
	if (err != nil || res.stopped) && ctx.Err() != nil {
		var late *toolcrib.ToolError
		if err == nil && errors.As(context.Cause(ctx), &late) && late.Kind == toolcrib.ToolTimeout {
			return Ended{}, timedOut(late.Message, &res.result, call.MaxBytes, open.sources())
		}
		return Ended{}, ctx.Err()
	}
	return Ended{
		ExitCode: res.ExitCode, Signal: res.Signal, Warning: res.Warning, Stdout: res.Stdout, Stderr: res.Stderr,
		Cut: res.StdoutTruncated, Source: open.sources(),
	}, err
}

// place returns the path of a program. It refuses one that is not the pinned one or, if none is pinned, one that could
// be changed in the workspace.
func (s *shell) place(of Program, w *workspace) (string, error) {
	path, err := of.Path, error(nil)
	if !isAbs(path) {
		path, err = findIn(s.installed().folders(w.Dir), path, false)
	}
	var info fs.FileInfo
	if err == nil {
		info, err = os.Stat(path)
	}
	name := line.Quote(filepath.Base(of.Path))
	switch {
	case err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 && of.SHA256 == "":
		return "", &toolcrib.ToolError{
			Kind: toolcrib.NotFound, Message: "the program " + name + " of this tool is not installed", Err: err,
		}
	case of.SHA256 != "":
		_, err := copyProgram(path, of.SHA256, io.Discard)
		return path, err
	}
	if why := changeable(path, info, w.Dir); why != "" {
		refused := toolcrib.Failf(toolcrib.PermissionDenied, "the program %s of this tool %s", name, why)
		refused.Hint = "Use a program that lies outside the workspace, or pin it: sha256 in its entry of tools.commands."
		return "", refused
	}
	return path, nil
}

// maxProgram is the size in bytes up to which a program can be pinned.
const maxProgram = 1 << 30

// copyProgram copies a program through one descriptor. The error says if it does not have this hash, and then the copy
// must not be run.
func copyProgram(path, sum string, to io.Writer) (n int64, err error) {
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return 0, fault("the program of this tool cannot be opened", err)
	}
	defer func() { _ = root.Close() }()
	var f *os.File
	info, err := root.Stat(filepath.Base(path))
	if err == nil {
		f, _, err = nolink.OpenIn(root, info)
	}
	if err != nil {
		return 0, fault("the program of this tool cannot be opened", err)
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if n, err = io.Copy(io.MultiWriter(to, h), io.LimitReader(f, maxProgram)); err != nil {
		return n, fault("the program of this tool cannot be read", err)
	}
	if is := hex.EncodeToString(h.Sum(nil)); is != sum {
		changed := toolcrib.Failf(toolcrib.PermissionDenied, "the program %s of this tool was changed, so it does not run",
			line.Quote(filepath.Base(path)))
		changed.Hint = "Its SHA-256 is " + is + "; once it is reviewed, write that into its entry of tools.commands."
		return n, changed
	}
	return n, nil
}

// changeable returns why writing in a folder could change the program at a path, or "".
func changeable(path string, info fs.FileInfo, dir string) string {
	if passes(path, dir) {
		return "lies in the workspace, or is reached through it"
	}
	if !beneath.Linked(info) || !beneath.Mine(info) {
		return ""
	}
	visits, found := maxVisits, ""
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if visits--; visits < 0 {
			found = "may have another name in the workspace (a hard link), which has too many files to look for it"
			return fs.SkipAll
		}
		if err != nil || !entry.Type().IsRegular() {
			return nil //nolint:nilerr // what cannot be read is not a link that can be written
		}
		if other, err := entry.Info(); err == nil && os.SameFile(info, other) {
			found = "has another name in the workspace (a hard link)"
			return fs.SkipAll
		}
		return nil
	})
	return found
}

// passes reports whether an absolute path, or a symbolic link on the way to its target, is in the folder dir, which has
// no links in its own path. It is true for too many links.
func passes(path, dir string) bool {
	split := func(path string) []string { return strings.Split(filepath.ToSlash(filepath.Clean(path)), "/") }
	at, rest := rootDir, split(path)
	for links := 0; len(rest) > 0; {
		at, rest = filepath.Join(at, rest[0]), rest[1:]
		if within(at, dir) {
			return true
		}
		target, err := os.Readlink(at)
		if err != nil {
			continue // not a link
		}
		if links++; links > maxLinks {
			return true
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(at), target)
		}
		at, rest = rootDir, append(split(target), rest...)
	}
	return false
}

const maxLinks = 40 // as on Linux

// Check returns why a program could not run in a workspace, or what a person should know about it.
func (p *Programs) Check(of Program, workspace string) (note string, err error) {
	w, err := openWorkspace(toolcrib.Call{Workspace: workspace})
	if err != nil {
		return "", err
	}
	defer w.Close()
	s := p.shell(of)
	path, err := s.place(of, w)
	switch r := s.report(); {
	case err != nil:
		return "", err
	case !r.sandboxed():
		return path + fmt.Sprintf(" (asks each time: there is no sandbox (%s))", r.Problem), nil
	}
	if of.ReadOnly {
		if why := s.strict(&plan{set: s.options.resolved(w.Dir), w: w}); why != "" {
			path += " (asks each time: it cannot be kept from writing: " + why + ")"
		}
	}
	return path, nil
}
