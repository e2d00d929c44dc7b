package line

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

// bashOnly returns a construct of the line that only bash has, or that sh reads differently, or "".
func (l *Line) bashOnly() (what string) {
	syntax.Walk(l.file, func(node syntax.Node) bool {
		switch n := node.(type) {
		case *syntax.Redirect:
			if slices.Contains([]syntax.RedirOperator{syntax.RdrAll, syntax.AppAll, syntax.WordHdoc}, n.Op) {
				what = n.Op.String()
			}
		case *syntax.BinaryCmd:
			if n.Op == syntax.PipeAll {
				what = n.Op.String()
			}
		case *syntax.ProcSubst:
			what = n.Op.String() + "…)"
		case *syntax.TestClause:
			what = "[[ … ]]"
		case *syntax.ArithmCmd:
			what = "((…))"
		case *syntax.FuncDecl:
			if n.RsrvWord {
				what = "function"
			}
		case *syntax.SglQuoted:
			if n.Dollar {
				what = "$'…'"
			}
		case *syntax.DblQuoted:
			if n.Dollar {
				what = `$"…"`
			}
		case *syntax.Word:
			text := ""
			for _, part := range n.Parts {
				if lit, ok := part.(*syntax.Lit); ok {
					text += lit.Value
				}
			}
			if braces(text) {
				what = "{a,b} and {1..3}"
			}
		}
		return what == ""
	})
	_, err := syntax.NewParser(syntax.Variant(syntax.LangPOSIX)).Parse(strings.NewReader(l.Text), "")
	if what == "" && err != nil {
		what = Shorten(err.Error())
	}
	return what
}

// simple is a simple command, as it is written.
type simple struct {
	words    []word
	in       *word // file of <
	emptyIn  bool  // whether it has </dev/null
	out, err Sink
}

// pipeline is one or more commands joined by pipes.
type pipeline struct {
	join     string // operator before it: "" for the first, ";", "&&" or "||"
	commands []simple
}

// simple returns the pipelines of a line, or refuses a line with other constructs.
func (l *Line) simple() ([]pipeline, error) {
	c := collector{line: l}
	for _, statement := range l.file.Stmts {
		if err := c.add(statement, ";"); err != nil {
			return nil, err
		}
	}
	if len(c.found) == 0 {
		return nil, refuse("the command line contains no command")
	}
	c.found[0].join = ""
	return c.found, nil
}

type collector struct {
	line     *Line
	found    []pipeline
	commands int
}

// add splits a statement at &&, || and pipes.
func (c *collector) add(s *syntax.Stmt, join string) error {
	if binary, ok := s.Cmd.(*syntax.BinaryCmd); ok {
		if binary.Op == syntax.PipeAll {
			return refuse("%s is not allowed here; commands may be joined by |, &&, || and semicolons", Quote(binary.Op.String()))
		}
		if err := plain(s); err != nil {
			return err
		}
		if err := c.add(binary.X, join); err != nil {
			return err
		}
		return c.add(binary.Y, binary.Op.String())
	}
	command, err := c.line.simpleCommand(s)
	if err != nil {
		return err
	}
	if c.commands++; c.commands > maxCommands {
		return refuse("more than %d commands in one line; use several calls", maxCommands)
	}
	if join != "|" {
		c.found = append(c.found, pipeline{join: join})
	}
	last := &c.found[len(c.found)-1]
	last.commands = append(last.commands, command)
	return nil
}

// plain refuses a statement with &, coproc, ! or a redirection of something else than a command.
func plain(s *syntax.Stmt) error {
	switch {
	case s.Background:
		return refuse("& (running in the background) is not allowed; a command runs until it ends")
	case s.Coprocess, s.Disown:
		return refuse("coprocesses are not allowed; use a pipe")
	case s.Negated:
		return refuse("! before a command is not allowed; look at exit_code")
	case len(s.Redirs) > 0 && !isCall(s.Cmd):
		return refuse("a redirection may only follow a simple command")
	}
	return nil
}

func isCall(c syntax.Command) bool {
	_, ok := c.(*syntax.CallExpr)
	return ok || c == nil
}

const onlySimple = "; allowed are simple commands joined by |, &&, || and semicolons"

// simpleCommand reads a simple command, or refuses it.
func (l *Line) simpleCommand(s *syntax.Stmt) (simple, error) {
	command := simple{out: ToOut, err: ToErr}
	if err := plain(s); err != nil {
		return command, err
	}
	call, ok := s.Cmd.(*syntax.CallExpr)
	switch {
	case s.Cmd == nil && len(s.Redirs) > 0:
		return command, refuse("a redirection without a command is not allowed; to write a file use the tools for files")
	case !ok:
		return command, refuse("%s", construct(s.Cmd)+onlySimple)
	case len(call.Assigns) > 0:
		return command, refuse("assignments of variables are not allowed; write the values out")
	case len(call.Args) == 0:
		return command, refuse("an empty command is not allowed")
	}
	for _, part := range call.Args {
		w, err := l.word(part)
		if err != nil {
			return command, err
		}
		command.words = append(command.words, w)
	}
	for _, r := range s.Redirs {
		if err := l.redirect(&command, r); err != nil {
			return command, err
		}
	}
	return command, nil
}

// construct names a construct of the shell that is refused.
func construct(c syntax.Command) string {
	switch c.(type) {
	case *syntax.Subshell, *syntax.Block:
		return "grouping by ( ) or { } is not allowed"
	case *syntax.FuncDecl:
		return "functions are not allowed"
	case *syntax.IfClause, *syntax.WhileClause, *syntax.ForClause, *syntax.CaseClause:
		return "control flow (if, for, while, case) is not allowed"
	case *syntax.TestClause:
		return "[[ ]] is not allowed; test and [ are, if they are on the list"
	case *syntax.DeclClause, *syntax.LetClause, *syntax.ArithmCmd:
		return "variables and arithmetic are not allowed"
	}
	return "this construct of the shell is not allowed"
}

const onlyRedirections = "; allowed are <FILE, >/dev/null, 2>/dev/null and 2>&1. To write a file use the tools for files"

// redirect reads one redirection, or refuses it. Redirections take effect from left to right.
func (l *Line) redirect(c *simple, r *syntax.Redirect) error {
	target, err := l.word(r.Word)
	if err != nil {
		return err
	}
	if target.pattern() {
		return refuse("a pattern is not allowed in a redirection")
	}
	number := ""
	if r.N != nil {
		number = r.N.Value
	}
	operator, text := r.Op.String(), target.text
	to, known := ToNull, text == devNull && slices.Contains([]string{">", ">>", "&>", "&>>", ">|"}, operator)
	switch {
	case operator == "<" && (number == "" || number == "0"):
		c.emptyIn, c.in = text == devNull, nil
		if !c.emptyIn {
			c.in = &target
		}
		return nil
	case operator == ">&" && text == "1":
		to, known = c.out, true
	case operator == ">&" && text == "2":
		to, known = c.err, true
	}
	switch both := strings.HasPrefix(operator, "&"); {
	case known && both:
		c.out, c.err = to, to
	case known && (number == "" || number == "1"):
		c.out = to
	case known && number == "2":
		c.err = to
	default:
		return refuse("the redirection %s is not allowed%s", Quote(number+operator+text), onlyRedirections)
	}
	return nil
}

// word is a word of a command as the program gets it, but with patterns not yet expanded.
type word struct {
	text string
	glob *syntax.Word // the word if it has an unquoted *, ? or [, or nil
}

func (w word) pattern() bool { return w.glob != nil }

// read is the result of [readWord].
type read struct {
	word
	err error
}

// word is [readWord], which is called once for each word.
func (l *Line) word(w *syntax.Word) (word, error) {
	r, ok := l.words[w]
	if !ok {
		r.word, r.err = readWord(w)
		l.words[w] = r
	}
	return r.word, r.err
}

// readWord reads a word, or refuses it if a shell would expand it.
func readWord(w *syntax.Word) (word, error) {
	const quote = "; quote with '…' to mean the characters themselves"
	var out word
	for i, part := range w.Parts {
		switch p := part.(type) {
		case *syntax.Lit:
			switch {
			case i == 0 && strings.HasPrefix(p.Value, "~"):
				return word{}, refuse("~ is not allowed; paths are relative to the workspace")
			case braces(p.Value):
				return word{}, refuse(noBraces)
			case meta(p.Value):
				out.glob = w
			}
		case *syntax.SglQuoted:
			if p.Dollar {
				return word{}, refuse("$'…' is not allowed; use '…'")
			}
		case *syntax.DblQuoted:
			if p.Dollar {
				return word{}, refuse(`$"…" is not allowed; use "…"`)
			}
			for _, inner := range p.Parts {
				if _, ok := inner.(*syntax.Lit); !ok {
					return word{}, refuse("%s", expansion(inner)+quote)
				}
			}
		default:
			return word{}, refuse("%s", expansion(part)+quote)
		}
	}
	// Only quotes are left to be removed.
	text, err := expand.Fields(&expand.Config{}, w)
	if err != nil || len(text) != 1 {
		return word{}, refuse(noBraces)
	}
	out.text = text[0]
	return out, nil
}

const noBraces = "{a,b} and {1..3} are not allowed; write the words out, or quote them"

// meta reports whether unquoted text has a pattern character that is not escaped.
func meta(text string) bool {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '*', '?', '[':
			return true
		}
	}
	return false
}

// expansion names an expansion inside a word, for refusing it.
func expansion(part syntax.WordPart) string {
	switch part.(type) {
	case *syntax.ParamExp:
		return "variables ($NAME) are not allowed"
	case *syntax.CmdSubst:
		return "command substitution ($(…), `…`) is not allowed"
	case *syntax.ArithmExp:
		return "arithmetic ($((…))) is not allowed"
	case *syntax.ProcSubst:
		return "process substitution (<(…)) is not allowed"
	case *syntax.ExtGlob:
		return "extended patterns (@(…), +(…), !(…)) are not allowed"
	}
	return "this expansion is not allowed"
}

// braces reports whether bash would expand braces in unquoted text.
func braces(text string) bool {
	open := strings.IndexByte(text, '{')
	if open < 0 {
		return false
	}
	rest := text[open:]
	return strings.Contains(rest, "}") && (strings.Contains(rest, ",") || strings.Contains(rest, ".."))
}
