package skill

import (
	"errors"
	"fmt"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// maxCommand bounds a command line that is matched, in bytes.
const maxCommand = 16 << 10

// wordEnd parts words where a pattern is matched over several of them. No word
// holds it.
const wordEnd = "\x00"

// commandPattern is a pattern of a simple command.
type commandPattern struct {
	words string // joined by wordEnd, * is any text
	more  bool   // any words may follow
}

// newCommandPattern reads a pattern; nil if it has no words. A * as last word, and
// :* at the end, mean any further words, none too.
func newCommandPattern(pattern string) *commandPattern {
	var p commandPattern
	if rest, ok := strings.CutSuffix(pattern, ":*"); ok {
		pattern, p.more = rest, true
	}
	words := strings.Fields(pattern)
	if len(words) > 1 && words[len(words)-1] == "*" {
		words, p.more = words[:len(words)-1], true
	}
	if len(words) == 0 {
		return nil
	}
	p.words = strings.Join(words, wordEnd)
	return &p
}

func (p *commandPattern) match(words []string) bool {
	if p == nil {
		return false
	}
	line := strings.Join(words, wordEnd)
	if glob(p.words, line, false) {
		return true
	}
	return p.more && glob(p.words+wordEnd+"*", line, false)
}

// matchCommand reports whether each simple command of the line matches an entry.
func matchCommand(entries []rule, line string) (bool, error) {
	commands, err := simpleCommands(line)
	if err != nil {
		return false, err
	}
	for _, words := range commands {
		matched := false
		for i := range entries {
			if matched = entries[i].words.match(words); matched {
				break
			}
		}
		if !matched {
			return false, nil
		}
	}
	return len(commands) > 0, nil
}

// errShell is why a line is not matched at all.
var errShell = errors.New("the skills allow only some command lines: simple commands with plain words, joined by |, &&, || or ;")

// simpleCommands reads a line as bash does and returns the words of its commands.
func simpleCommands(line string) (commands [][]string, err error) {
	defer func() {
		if r := recover(); r != nil { // a fault of the parser refuses
			commands, err = nil, errShell
		}
	}()
	if len(line) > maxCommand {
		return nil, fmt.Errorf("the command line has %d bytes, more than the %d that are compared with what the skills allow", len(line), maxCommand)
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(line), "")
	if err != nil {
		return nil, errShell
	}
	for _, s := range file.Stmts {
		if commands, err = addStatement(commands, s, 0); err != nil {
			return nil, err
		}
	}
	return commands, nil
}

// maxJoined bounds how deep commands are joined.
const maxJoined = 200

func addStatement(commands [][]string, s *syntax.Stmt, depth int) ([][]string, error) {
	if depth > maxJoined || s.Negated || s.Background || s.Coprocess {
		return nil, errShell
	}
	for _, r := range s.Redirs {
		if !harmless(r) {
			return nil, errShell
		}
	}
	switch c := s.Cmd.(type) {
	case *syntax.CallExpr:
		if len(c.Assigns) > 0 || len(c.Args) == 0 {
			return nil, errShell
		}
		words := make([]string, len(c.Args))
		for i, w := range c.Args {
			word, ok := plainWord(w)
			if !ok || i == 0 && word == "" {
				return nil, errShell
			}
			words[i] = word
		}
		return append(commands, words), nil
	case *syntax.BinaryCmd:
		commands, err := addStatement(commands, c.X, depth+1)
		if err != nil {
			return nil, err
		}
		return addStatement(commands, c.Y, depth+1)
	}
	return nil, errShell
}

// harmless reports whether a redirection touches no file: 2>&1, or to or from
// /dev/null.
func harmless(r *syntax.Redirect) bool {
	if r.Hdoc != nil || r.Word == nil {
		return false
	}
	word, ok := plainWord(r.Word)
	if !ok {
		return false
	}
	switch r.Op {
	case syntax.DplOut:
		return word == "1" || word == "2"
	case syntax.RdrOut, syntax.AppOut, syntax.RdrIn, syntax.RdrAll, syntax.AppAll:
		return word == "/dev/null"
	}
	return false
}

// plainWord returns a word as the program gets it, if nothing in it is to be worked
// out but patterns of file names, which stay as they are written.
func plainWord(w *syntax.Word) (string, bool) {
	var b strings.Builder
	for _, part := range w.Parts {
		switch p := part.(type) {
		case *syntax.Lit:
			if strings.ContainsAny(p.Value, "{}") || strings.HasPrefix(p.Value, "~") {
				return "", false
			}
			b.WriteString(unescape(p.Value, ""))
		case *syntax.SglQuoted:
			if p.Dollar {
				return "", false
			}
			b.WriteString(p.Value)
		case *syntax.DblQuoted:
			if p.Dollar {
				return "", false
			}
			for _, inner := range p.Parts {
				lit, ok := inner.(*syntax.Lit)
				if !ok {
					return "", false
				}
				b.WriteString(unescape(lit.Value, "$`\"\\"))
			}
		default:
			return "", false
		}
	}
	word := b.String()
	return word, !strings.Contains(word, wordEnd)
}

// unescape takes away the backslashes that quote a character: any, or one of those
// named. A quoted line break is none at all.
func unescape(text, only string) string {
	if !strings.Contains(text, `\`) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+1 < len(text) {
			switch next := text[i+1]; {
			case next == '\n':
				i++
				continue
			case only == "" || strings.IndexByte(only, next) >= 0:
				i++
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}
