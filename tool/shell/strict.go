package shell

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
	"github.com/toolcrib/toolcrib/tool/internal/beneath"
	"github.com/toolcrib/toolcrib/tool/shell/internal/line"
)

// The strict sandbox is the one in which any program can only read ([line.ReadsWorkspace]). A line that would need an
// approval for an unlisted program runs in it unasked, so it shows no more than the file tools do: the workspace
// without hidden files, the toolchains, and a few files of the system.

// strictABI is the first version of Landlock that, without bubblewrap, keeps programs from truncating files and from
// signaling others.
const strictABI = 6

// NotStrict returns why this machine has no sandbox in which any program can only read, or "".
func (r Report) NotStrict() string {
	switch {
	case !r.sandboxed():
		return "there is no sandbox (" + r.Problem + ")"
	case !r.Seccomp:
		return "system calls cannot be filtered (seccomp)"
	case r.Bubblewrap == "" && r.LandlockABI < strictABI:
		return fmt.Sprintf("bubblewrap is missing, and Landlock has version %d, where %d is needed without it",
			r.LandlockABI, strictABI)
	}
	return ""
}

// NotStrict returns why lines in a workspace that need an approval for an unlisted program do not run in a sandbox in
// which they can only read instead, or "".
func NotStrict(tool toolcrib.Tool, workspace string) string {
	s, ok := tool.(*shell)
	if !ok || s.options.Mode != ModeAsk {
		return "tools.shell.mode is not ask"
	}
	w, err := openWorkspace(toolcrib.Call{Workspace: workspace})
	if err != nil {
		return "the workspace cannot be opened"
	}
	defer w.Close()
	return s.strict(&plan{set: s.options.resolved(w.Dir), w: w})
}

// maxSpecial bounds the files of a workspace that are masked.
const maxSpecial = 256

// strict returns why the strict sandbox cannot be used for the line of a plan, or "". It sets the files to be masked.
func (s *shell) strict(p *plan) string {
	r := s.report()
	why := r.NotStrict()
	switch {
	case s.options.Elsewhere:
		return "another program runs it"
	case why != "":
		return why
	case p.w.Dir == rootDir:
		return "the workspace is the root of the file system"
	}
	if p.special, why = p.set.specials(p.w.Dir); why == "" && len(p.special) > 0 && r.Bubblewrap == "" {
		why = fmt.Sprintf("%s is a FIFO, a socket or a device, which only bubblewrap can mask", p.named(p.special[:1]))
	}
	return why
}

// specials returns the FIFOs, sockets and devices of a workspace, which a program can use without writing a file.
// unsure says why there may be others, or is "".
func (o *Options) specials(dir string) (found []string, unsure string) {
	const special = fs.ModeNamedPipe | fs.ModeSocket | fs.ModeDevice | fs.ModeCharDevice | fs.ModeIrregular
	visits := o.visits
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if visits--; visits < 0 || len(found) > maxSpecial {
			unsure = fmt.Sprintf("the workspace has more than %d files, or %d FIFOs, sockets and devices", o.visits, maxSpecial)
			return fs.SkipAll
		}
		switch {
		case err != nil:
			// A folder that cannot be entered has nothing that programs reach.
			if _, err := os.Lstat(path + "/."); !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrNotExist) {
				unsure = "a folder of the workspace cannot be listed"
			}
		case entry.IsDir() && o.hides(path):
			return fs.SkipDir
		case entry.Type()&special != 0:
			found = append(found, path)
		}
		return nil
	})
	return found, unsure
}

// narrow narrows the options of a plan for the strict sandbox: no network, no variables of the configuration, which may
// be secrets, and no access to the paths that rules deny.
func (p *plan) narrow() {
	if p.Sandbox() != line.ReadsWorkspace {
		return
	}
	p.set.open, p.set.Env = false, nil
	for _, path := range p.hidden {
		p.set.Hidden = append(p.set.Hidden, beneath.Real(path))
	}
	if len(p.hidden) == 0 {
		return
	}
	for _, name := range []string{"objects", "modules", "lfs"} { // they have the content of hidden files as well
		p.set.Hidden = append(p.set.Hidden, beneath.Real(filepath.Join(p.w.Dir, ".git", name)))
	}
}

// hide returns a function for [toolcrib.Plan.Hide], or nil.
func (s *shell) hide(p *plan) func([]string) *toolcrib.Plan {
	if p.Sandbox() != line.ReadsWorkspace {
		return nil
	}
	return func(paths []string) *toolcrib.Plan {
		now := *p
		now.hidden = slices.Clone(paths)
		above := func(path string) bool { return within(p.w.Dir, path) || within(p.w.Dir, beneath.Real(path)) }
		if slices.ContainsFunc(paths, above) {
			return nil
		}
		return s.planned(&now)
	}
}

// deniedWrite matches output of programs that could not write.
var deniedWrite = lazyregexp.New(`(?i)read-?only ?(file ?system|database)|EROFS|permission denied|EACCES|` +
	`operation not permitted|EPERM|cannot create`)

// readOnlyHint says how to repeat a line that failed in the strict sandbox, or is "" if there is no sign that it failed
// for that. wrote and connected report whether it seems to have tried to write, or to reach a server.
func (r Report) readOnlyHint(wrote, connected bool) string {
	var why []string
	if wrote {
		why = append(why, "it must write")
	}
	if connected && r.Joins {
		why = append(why, "it must reach a server that another call has started")
	}
	if why == nil {
		return ""
	}
	return "It ran in a sandbox where it can only read, without network. If it failed because " +
		strings.Join(why, ", or ") + ", call again with write: true; a person is then asked."
}

// strictText says how the line of a plan is confined by the strict sandbox.
func (s *shell) strictText(p *plan) string {
	by := fmt.Sprintf("Landlock ABI %d", s.report().LandlockABI)
	if s.report().Bubblewrap != "" {
		by = "bubblewrap"
	}
	text := "Only reads: it runs in a sandbox (" + by + ") without network, where the workspace is read-only and its home " +
		"and temporary folders are thrown away."
	if len(p.hidden) > 0 {
		text += " Hidden from it by a rule: " + strings.TrimSpace(p.named(p.hidden)) + "."
	}
	return text
}
