package line

import (
	"slices"
	"strings"
)

// program describes the harmless uses of a program. Options that are not listed are refused.
type program struct {
	// options lists the short options as one word of letters, then the long options without
	// dashes, separated by space. An option followed by ':' needs an argument, by '?' may have one
	// in the same word, and by '@' needs one that is a file to read. Others have no argument.
	options string
	// number allows -NUM, as head, tail and grep have it.
	number bool
	// operands judges the words that are not options.
	operands func(j *judge, operands []string) error
	// whole, if not nil, judges all arguments; options and operands are not used then.
	whole func(j *judge, args []string) error
}

// judge judges the arguments of one command.
type judge struct {
	name string
	prog *program
	*draft

	seen map[string]bool   // options given, by letter or long name
	last map[string]string // last argument of each of them
	add  []string          // arguments to be inserted before all others
}

// argument is how an option takes an argument.
type argument byte

const (
	none     argument = 0
	value    argument = ':'
	attached argument = '?'
	readFile argument = '@'
)

// judged judges the arguments of a command of the table, and returns the arguments to run it with.
func (j *judge) judged(args []string) ([]string, error) {
	if j.prog.whole != nil {
		return args, j.prog.whole(j, args)
	}
	j.seen, j.last = map[string]bool{}, map[string]string{}
	var operands []string
	for i := 0; i < len(args); i++ {
		word := args[i]
		switch {
		case word == "--":
			operands = append(operands, args[i+1:]...)
			i = len(args)
		case len(word) > 1 && word[0] == '-':
			judge := j.short
			if word[1] == '-' {
				judge = j.long
			}
			used, err := judge(word, args[i+1:])
			if err != nil {
				return nil, err
			}
			i += used
		default:
			operands = append(operands, word) // options may follow: GNU programs permute their arguments
		}
	}
	if err := j.prog.operands(j, operands); err != nil {
		return nil, err
	}
	return append(j.add, args...), nil
}

func (j *judge) unknown(option string) error {
	return refuse("%s with %s is not allowed%s", j.name, Quote(option), j.hint())
}

// hint lists the allowed options, for a refusal.
func (j *judge) hint() string {
	letters, long := j.prog.list()
	text := "; allowed options: -" + strings.NewReplacer(":", "", "?", "", "@", "").Replace(letters)
	if j.prog.number {
		text += " -NUM"
	}
	if len(long) > 0 {
		text += " and long ones written out in full (--" + strings.TrimRight(long[0], marks) + ", …) that only read and print"
	}
	return text
}

const marks = ":?@"

func (p *program) list() (letters string, long []string) {
	n := strings.IndexAny(p.options+" ", " \n")
	return p.options[:n], strings.Fields(p.options[n:])
}

// known reports whether an option is allowed, and how it takes an argument.
func (p *program) known(name string) (kind argument, ok bool) {
	letters, long := p.list()
	if len(name) == 1 && !strings.Contains(marks, name) {
		_, after, ok := strings.Cut(letters, name)
		if ok && after != "" && strings.Contains(marks, after[:1]) {
			kind = argument(after[0])
		}
		return kind, ok
	}
	for _, known := range long {
		if bare := strings.TrimRight(known, marks); bare == name {
			return argument((known + "\x00")[len(bare)]), true
		}
	}
	return none, false
}

// long judges a long option, which must be written in full, and returns how many of the next
// words are its arguments.
func (j *judge) long(word string, rest []string) (int, error) {
	name, inline, given := strings.Cut(word[2:], "=")
	if (name == "help" || name == "version") && !given {
		return 0, nil
	}
	kind, ok := j.prog.known(name)
	if !ok || len(name) == 1 {
		return 0, j.unknown("--" + name)
	}
	return j.option("--"+name, name, kind, inline, given, rest)
}

// short judges a word of short options, and returns how many of the next words are arguments.
func (j *judge) short(word string, rest []string) (int, error) {
	word = word[1:]
	if j.prog.number && digits(word) {
		return 0, nil
	}
	for i := range len(word) {
		letter := word[i : i+1]
		kind, ok := j.prog.known(letter)
		if !ok {
			return 0, j.unknown("-" + letter)
		}
		if kind != none {
			return j.option("-"+letter, letter, kind, word[i+1:], i+1 < len(word), rest)
		}
		j.seen[letter] = true
	}
	return 0, nil
}

// option reads the argument of an option, which is inline if given is true.
func (j *judge) option(shown, name string, kind argument, inline string, given bool, rest []string) (int, error) {
	j.seen[name] = true
	used := 0
	switch {
	case kind == none && given:
		return 0, refuse("%s: %s takes no argument", j.name, shown)
	case kind == none, kind == attached && !given:
		return 0, nil
	case !given && len(rest) == 0:
		return 0, refuse("%s: %s needs an argument", j.name, shown)
	case !given:
		inline, used = rest[0], 1
	}
	j.last[name] = inline
	if kind == readFile {
		_, err := j.reads(inline)
		return used, err
	}
	return used, nil
}

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// has reports whether one of the options was given.
func (j *judge) has(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return j.seen[name] })
}
