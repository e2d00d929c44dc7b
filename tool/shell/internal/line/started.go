package line

import (
	"path"
	"slices"
	"strings"
	"sync"

	"mvdan.cc/sh/v3/syntax"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
)

const (
	maxPrograms = 256 // programs that one line starts
	maxScripts  = 4   // nested scripts, as of sh -c
)

// unknown is a word that the shell expands when the line runs.
var unknown = toolcrib.Word{Unknown: true}

// tree adds the programs that a script starts, in the order of the script.
func (l *Line) tree(file *syntax.File) {
	syntax.Walk(file, func(node syntax.Node) bool {
		if set, ok := node.(*syntax.Assign); ok && set.Name != nil {
			l.sets = l.sets || steersGit(set.Name.Value)
		}
		call, ok := node.(*syntax.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		words := make([]toolcrib.Word, len(call.Args))
		for i, arg := range call.Args {
			words[i] = unknown
			if w, err := l.word(arg); err == nil {
				words[i] = toolcrib.Word{Text: w.text, Unknown: w.pattern()}
			}
		}
		l.add(words)
		return true
	})
}

// command adds a command whose words are known.
func (l *Line) command(line []string) {
	words := make([]toolcrib.Word, len(line))
	for i, text := range line {
		words[i].Text = text
	}
	l.add(words)
}

// add adds a command and the programs that its arguments make it start. Those that cannot be
// determined are added as one program with an unknown name.
func (l *Line) add(words []toolcrib.Word) {
	if len(words) == 0 {
		return
	}
	if len(l.programs) >= maxPrograms || words[0].Unknown {
		l.addUnknown()
		return
	}
	name := path.Base(words[0].Text)
	l.programs = append(l.programs, toolcrib.Program{Name: toolcrib.Word{Text: name}, Args: words[1:]})
	switch name {
	case "sh", "bash", "dash", "zsh", "ksh", "ash":
		l.shell(words[1:])
	case "eval":
		l.script(words[1:])
	case "git":
		l.git(words[1:])
	case "alias", "parallel":
		l.addUnknown()
	case "find":
		l.find(words[1:])
	default:
		if w, ok := starters()[name]; ok {
			l.startedBy(w, name, words[1:])
		}
	}
}

// steersGit reports whether a variable may change the settings of git or where git finds them.
func steersGit(name string) bool {
	name, _, _ = strings.Cut(name, "=")
	return strings.HasPrefix(name, "GIT_") || name == "HOME" || name == "XDG_CONFIG_HOME"
}

// git adds the programs that arguments of git make it start.
func (l *Line) git(words []toolcrib.Word) {
	command, _ := gitCommand(words)
	for at := range command {
		word := command[at].Text
		script, inline := strings.CutPrefix(word, "--exec=")
		switch rebase := command[0].Text == "rebase"; {
		case command[0].Text == "bisect" && at > 0 && word == "run":
			l.add(command[at+1:])
		case rebase && inline:
			l.script([]toolcrib.Word{{Text: script}})
		case rebase && at+1 < len(command) && (word == "-x" || word == "--exec"):
			l.script(command[at+1 : at+2])
		}
	}
}

// addUnknown adds a program of which nothing is known.
func (l *Line) addUnknown() {
	if len(l.programs) <= maxPrograms {
		l.programs = append(l.programs, toolcrib.Program{Name: unknown, Args: []toolcrib.Word{unknown}})
	}
}

// starter describes a program that runs the command after its options.
type starter struct {
	flags    string // short options without a value
	values   string // short options with a value
	operands int    // number of operands before the command
	input    bool   // whether it adds words of its input to the command
}

// starters are the programs that run the command after their options.
var starters = sync.OnceValue(func() map[string]starter {
	return map[string]starter{
		"env":     {flags: "i0v", values: "uC"},
		"nice":    {flags: "0123456789", values: "n"},
		"nohup":   {},
		"setsid":  {flags: "cfw"},
		"command": {flags: "p"},
		"builtin": {},
		"exec":    {flags: "cl", values: "a"},
		"time":    {flags: "apvqlh", values: "fo"},
		"timeout": {flags: "fpv", values: "sk", operands: 1},
		"stdbuf":  {values: "ioe"},
		"ionice":  {flags: "t", values: "cn"},
		"chroot":  {operands: 1},
		"watch":   {flags: "bcdegptwx", values: "n"},
		"xargs":   {flags: "0prtxo", values: "aEIdnLPs", input: true},
		"busybox": {}, "toybox": {},
		"sudo": {flags: "nEHSbAkP", values: "ugCDhpRrTtU"}, "doas": {flags: "nL", values: "uC"},
	}
})

// startedBy adds the command after the options of a starter.
func (l *Line) startedBy(by starter, name string, words []toolcrib.Word) {
	at, operands := 0, by.operands
	for ; at < len(words); at++ {
		w := words[at]
		option := strings.HasPrefix(w.Text, "-") && w.Text != "-"
		switch {
		case w.Unknown:
			l.addUnknown()
			return
		case w.Text == "--":
			l.add(l.withInput(by, words[min(at+1+operands, len(words)):]))
			return
		case strings.HasPrefix(w.Text, "--"):
			if !strings.Contains(w.Text, "=") || strings.HasPrefix(w.Text, "--split-string") {
				l.addUnknown() // its value may be the next word
				return
			}
		case option:
			n, ok := by.option(w.Text[1:])
			if !ok {
				l.addUnknown()
				return
			}
			at += n
		case name == "env" && strings.Contains(w.Text, "="):
			l.sets = l.sets || steersGit(w.Text)
		case operands > 0:
			operands--
		default:
			l.add(l.withInput(by, words[at:]))
			return
		}
	}
}

// option reads a word of short options, and returns how many of the next words are its value.
func (by starter) option(letters string) (more int, ok bool) {
	for i := range len(letters) {
		switch c := letters[i]; {
		case strings.IndexByte(by.values, c) >= 0:
			if i == len(letters)-1 {
				return 1, true
			}
			return 0, true
		case strings.IndexByte(by.flags, c) < 0:
			return 0, false
		}
	}
	return 0, true
}

// withInput returns a command with the words that its input adds.
func (*Line) withInput(by starter, words []toolcrib.Word) []toolcrib.Word {
	if by.input && len(words) > 0 {
		words = append(words[:len(words):len(words)], unknown)
	}
	return words
}

// shell adds the commands that a shell runs: those of the script after -c, or unknown ones from
// its input. A script in a file is a program like any other.
func (l *Line) shell(words []toolcrib.Word) {
	script := false
	for at := 0; at < len(words); at++ {
		w := words[at]
		switch {
		case w.Unknown || w.Text == "-s" || strings.HasPrefix(w.Text, "--") && w.Text != "--":
			l.addUnknown()
			return
		case w.Text == "--" || w.Text == "-":
		case strings.HasPrefix(w.Text, "-"), strings.HasPrefix(w.Text, "+"):
			script = script || w.Text[0] == '-' && strings.Contains(w.Text, "c")
			if strings.ContainsAny(w.Text[len(w.Text)-1:], "oO") {
				at++
			}
		case script:
			l.script(words[at : at+1])
			return
		default:
			return
		}
	}
	l.addUnknown()
}

// script adds the commands of a script that is written on the line.
func (l *Line) script(words []toolcrib.Word) {
	texts := make([]string, len(words))
	for i, w := range words {
		if w.Unknown {
			l.addUnknown()
			return
		}
		texts[i] = w.Text
	}
	file, err := parse(strings.Join(texts, " "))
	if err != nil || l.depth >= maxScripts {
		l.addUnknown()
		return
	}
	l.scripts = append(l.scripts, file)
	l.depth++
	l.tree(file)
	l.depth--
}

// find adds the commands after -exec and similar options.
func (l *Line) find(words []toolcrib.Word) {
	for at := 0; at < len(words); at++ {
		switch words[at].Text {
		case "-exec", "-execdir", "-ok", "-okdir":
		default:
			continue
		}
		var command []toolcrib.Word
		for at++; at < len(words) && words[at].Text != ";" && words[at].Text != "+"; at++ {
			w := words[at]
			if strings.Contains(w.Text, "{}") {
				w = unknown
			}
			command = append(command, w)
		}
		l.add(command)
	}
}

// checkForbidden refuses programs and redirections that no mode allows (C12). It checks only the
// programs that are started, not words in their arguments. It prevents accidents, not attacks: a
// shell can express everything in other ways, and only the sandbox confines a line.
func (l *Line) checkForbidden() error {
	var refused error
	syntax.Walk(l.file, func(node syntax.Node) bool {
		if refused != nil {
			return false
		}
		switch n := node.(type) {
		case *syntax.Redirect:
			if n.Word == nil || n.Hdoc != nil {
				break
			}
			if w, err := l.word(n.Word); err == nil && blockDevice.MatchString(w.text) {
				refused = refuse("writing to a disk is never allowed")
			}
		case *syntax.FuncDecl:
			refused = forkBomb(n)
		}
		return true
	})
	for i := 0; refused == nil && i < len(l.programs); i++ {
		refused = forbidden(&l.programs[i])
	}
	return refused
}

// forbidden refuses a program if no mode allows it or its arguments.
func forbidden(p *toolcrib.Program) error {
	name := strings.ToLower(p.Name.Text)
	given := func(is func(string) bool) bool {
		return slices.ContainsFunc(p.Args, func(w toolcrib.Word) bool { return is(w.Text) })
	}
	bad := false
	switch name {
	case "sudo", "doas", "su", "pkexec":
		return refuse("%s: acting as another user is never allowed", name)
	case "shutdown", "reboot", "poweroff", "halt", "mkfs":
		bad = true
	case "systemctl":
		bad = given(func(a string) bool { return slices.Contains([]string{"poweroff", "reboot", "halt", "kexec"}, a) })
	case "init", "telinit":
		bad = given(func(a string) bool { return a == "0" || a == "6" })
	case "dd":
		bad = given(func(a string) bool {
			return strings.HasPrefix(a, "if=") || blockDevice.MatchString(strings.TrimPrefix(a, "of="))
		})
	case "rm", "chmod", "chown":
		bad = given(rootFolder)
	case "format":
		bad = given(func(a string) bool { return strings.HasPrefix(strings.ToLower(a), "c:") })
	default:
		bad = strings.HasPrefix(name, "mkfs.")
	}
	if bad {
		line := p.Name.Text
		for _, w := range p.Args {
			line += " " + w.Text
		}
		return refuse("%s is never allowed", Quote(line))
	}
	return nil
}

var blockDevice = lazyregexp.New(`^/dev/(sd|hd|vd|xvd|nvme|mmcblk|disk|rdisk|mapper/|dm-)`)

// rootFolder reports whether a path is /, in any spelling, or a pattern for everything in it.
func rootFolder(name string) bool {
	return strings.HasPrefix(name, "/") && strings.Trim(path.Clean(name), "*.") == "/"
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
