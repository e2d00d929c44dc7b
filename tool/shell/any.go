package shell

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// planAny plans a line of mode any: /bin/sh runs it as it is written.
func (s *shell) planAny(p *plan, file *syntax.File, line string) error {
	p.writes = true
	p.target(p.w.Dir, true)
	p.whole(p.w.Dir)
	if err := s.named(p, file); err != nil {
		return err
	}
	path, err := s.find("sh", true)
	if err != nil {
		return err
	}
	p.steps = []step{{Commands: []command{{Path: path, Args: []string{"sh", "-c", line}, Out: toOut, Err: toErr}}}}
	return nil
}

// named looks through the tree of a script for words that may be files.
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
	if known := s.table[words[0]]; known != nil {
		trial := &plan{set: p.set, w: p.w, touched: map[string]int{}}
		j := &judge{name: words[0], prog: known, plan: trial}
		if _, err := j.judged(words[1:]); err == nil {
			for _, t := range trial.targets {
				p.target(t.Name, false)
				if t.Tree {
					p.whole(t.Name)
				}
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
	if strings.HasPrefix(w.text, "/dev/") || r.Op == syntax.DplOut || r.Op == syntax.DplIn {
		return nil
	}
	if r.Op != syntax.RdrIn {
		return p.maybe(w.text, true)
	}
	found, err := p.w.resolve(w.text)
	switch {
	case err != nil:
		return nil //nolint:nilerr // as above
	case p.set.hides(p.w.Abs(found.Real)):
		return refuse("protected path: %s", quote(w.text))
	}
	p.touch(found, false)
	return nil
}
