package shell

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/toolcrib/toolcrib"
)

// never refuses what no mode runs, whatever is allowed (C12). It looks at commands
// and at what they start, so a word inside an argument is no offence. It is a guard
// rail and no wall: a shell can spell everything in other ways, and the sandbox is
// what holds.
func never(file *syntax.File, programs []toolcrib.Program) error {
	var refused error
	syntax.Walk(file, func(node syntax.Node) bool {
		if refused != nil {
			return false
		}
		switch n := node.(type) {
		case *syntax.Redirect:
			if n.Word == nil || n.Hdoc != nil {
				break
			}
			if w, err := readWord(n.Word); err == nil && blockDevice.MatchString(w.text) {
				refused = refuse("writing to a disk is never allowed")
			}
		case *syntax.FuncDecl:
			refused = forkBomb(n)
		}
		return true
	})
	for i := 0; refused == nil && i < len(programs); i++ {
		refused = forbidden(&programs[i])
	}
	return refused
}

// forbidden refuses a program that no mode runs, or its arguments.
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
		return refuse("%s is never allowed", quote(line))
	}
	return nil
}

var blockDevice = regexp.MustCompile(`^/dev/(sd|hd|vd|xvd|nvme|mmcblk|disk|rdisk|mapper/|dm-)`)

// rootFolder reports whether a path is / however it is spelled, or everything in it.
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
