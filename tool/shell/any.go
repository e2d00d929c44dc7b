package shell

import (
	"regexp"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// planAny plans a line of mode any: /bin/sh runs it as it is written. The tree is
// looked through for what no mode runs (C12), and for words that may be files.
func (s *shell) planAny(p *plan, file *syntax.File, line string) error {
	p.writes = true
	p.target(p.w.dir, true)
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
		case *syntax.FuncDecl:
			refused = forkBomb(n)
		}
		return refused == nil
	})
	if refused != nil {
		return refused
	}
	path, err := s.find("sh", true)
	if err != nil {
		return err
	}
	p.steps = []step{{Commands: []command{{Path: path, Args: []string{"sh", "-c", line}, Out: toOut, Err: toErr}}}}
	return nil
}

// anyCommand looks at one command: its literal words may be files, which are read
// if the command is one of the table with harmless options, and else may be written.
func (s *shell) anyCommand(p *plan, call *syntax.CallExpr) error {
	var words []string
	for _, w := range call.Args {
		if r, err := readWord(w); err == nil {
			words = append(words, r.text)
			continue
		}
		words = append(words, "\x00") // is worked out by the shell
	}
	if len(words) == 0 {
		return nil
	}
	if err := forbidden(words); err != nil {
		return err
	}
	if known := s.table[words[0]]; known != nil {
		trial := &plan{set: p.set, w: p.w, touched: map[string]int{}}
		j := &judge{name: words[0], prog: known, plan: trial}
		if _, err := j.judged(words[1:]); err == nil {
			for _, t := range trial.targets {
				p.target(t.Name, false)
			}
			return nil
		}
	}
	if len(p.targets) > maxWords {
		return refuse("the line names more than %d files; use several calls", maxWords)
	}
	return p.unjudged(words[1:])
}

func (p *plan) anyRedirect(r *syntax.Redirect) error {
	if r.Word == nil || r.Hdoc != nil {
		return nil
	}
	w, err := readWord(r.Word)
	if err != nil {
		return nil //nolint:nilerr // the shell works it out; the sandbox is the wall
	}
	if blockDevice.MatchString(w.text) {
		return refuse("writing to a disk is never allowed")
	}
	if strings.HasPrefix(w.text, "/dev/") || r.Op == syntax.DplOut || r.Op == syntax.DplIn {
		return nil
	}
	if r.Op != syntax.RdrIn {
		return p.maybe(w.text)
	}
	found, err := p.w.resolve(w.text)
	switch {
	case err != nil:
		return nil //nolint:nilerr // as above
	case p.set.hides(p.w.abs(found.real)):
		return refuse("protected path: %s", quote(w.text))
	}
	p.touch(found, false)
	return nil
}

var blockDevice = regexp.MustCompile(`^/dev/(sd|hd|vd|xvd|nvme|mmcblk|disk|rdisk|mapper/|dm-)`)

// forbidden refuses the commands that no mode runs, whatever is allowed (C12). The
// words are those of a command, so a word inside an argument is no offence. It is
// a guard rail and no wall: a shell can spell everything in other ways.
func forbidden(words []string) error {
	for len(words) > 1 && (words[0] == "command" || words[0] == "exec" || words[0] == "env" || words[0] == "nohup" || words[0] == "builtin") {
		words = words[1:]
	}
	name := strings.ToLower(words[0][strings.LastIndexByte(words[0], '/')+1:])
	args := words[1:]
	bad := false
	switch {
	case name == "sudo" || name == "doas" || name == "su" || name == "pkexec":
		return refuse("%s: acting as another user is never allowed", name)
	case name == "shutdown" || name == "reboot" || name == "poweroff" || name == "halt" || name == "mkfs" || strings.HasPrefix(name, "mkfs."):
		bad = true
	case name == "dd":
		bad = anyOf(args, func(a string) bool {
			return strings.HasPrefix(a, "if=") || blockDevice.MatchString(strings.TrimPrefix(a, "of="))
		})
	case name == "rm" || name == "chmod" || name == "chown":
		bad = anyOf(args, func(a string) bool { return rootFolder.MatchString(a) })
	case name == "format":
		bad = anyOf(args, func(a string) bool { return strings.HasPrefix(strings.ToLower(a), "c:") })
	}
	if bad {
		return refuse("%s is never allowed", quote(strings.Join(words, " ")))
	}
	return nil
}

// rootFolder is / however it is spelled, and everything in it.
var rootFolder = regexp.MustCompile(`^/[/.*]*$`)

func anyOf(words []string, is func(string) bool) bool {
	for _, w := range words {
		if is(w) {
			return true
		}
	}
	return false
}

// forkBomb refuses a function that calls itself in the background or in a pipe.
func forkBomb(f *syntax.FuncDecl) error {
	if f.Name == nil {
		return nil
	}
	bomb := false
	calls := func(s *syntax.Stmt) bool {
		call, ok := s.Cmd.(*syntax.CallExpr)
		return ok && len(call.Args) > 0 && call.Args[0].Lit() == f.Name.Value
	}
	syntax.Walk(f.Body, func(node syntax.Node) bool {
		switch n := node.(type) {
		case *syntax.BinaryCmd:
			bomb = bomb || (n.Op == syntax.Pipe || n.Op == syntax.PipeAll) && (calls(n.X) || calls(n.Y))
		case *syntax.Stmt:
			bomb = bomb || n.Background && calls(n)
		}
		return !bomb
	})
	if bomb {
		return refuse("a function that starts itself over and over is never allowed")
	}
	return nil
}
