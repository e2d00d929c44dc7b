package shell

import (
	"strings"
)

// program is how the harmless uses of a program are told from the others: a short
// or long option that is not listed is refused.
type program struct {
	// short lists the options of one letter. A letter alone has no argument,
	// followed by ':' it needs one, by '?' it may have one in the same word, by '@'
	// it needs one that is a file to read.
	short string
	// long lists the long options, without dashes, with the same marks at the end.
	long []string
	// number allows -NUM, as head, tail and grep have it.
	number bool
	// operands judges the words that are no options.
	operands func(j *judge, operands []string) error
	// whole judges all arguments itself; short, long and operands are not used.
	whole func(j *judge, args []string) error
}

// judge judges the arguments of one command.
type judge struct {
	name string
	prog *program
	*plan

	seen map[string]bool // options, by letter or long name
	last map[string]string
	// add is put before all arguments.
	add []string
}

// argument tells how an option takes an argument.
type argument byte

const (
	none     argument = 0
	value    argument = ':'
	attached argument = '?'
	readFile argument = '@'
)

// judged judges the arguments of a command of the table, and returns those to run
// it with.
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
		case strings.HasPrefix(word, "--"):
			used, err := j.long(word[2:], args[i+1:])
			if err != nil {
				return nil, err
			}
			i += used
		case len(word) > 1 && word[0] == '-':
			used, err := j.short(word[1:], args[i+1:])
			if err != nil {
				return nil, err
			}
			i += used
		default:
			operands = append(operands, word) // options may follow: GNU programs sort them out
		}
	}
	if err := j.prog.operands(j, operands); err != nil {
		return nil, err
	}
	return append(j.add, args...), nil
}

func (j *judge) unknown(option string) error {
	return refuse("%s with %s is not allowed%s", j.name, quote(option), j.hint())
}

// hint says which options there are.
func (j *judge) hint() string {
	if j.prog.whole != nil {
		return "; only options are that neither write, run nor follow anything"
	}
	text := "; allowed options: "
	var short strings.Builder
	for i := range len(j.prog.short) {
		if c := j.prog.short[i]; strings.IndexByte(":?@", c) < 0 {
			short.WriteByte(c)
		}
	}
	if short.Len() > 0 {
		text += "-" + short.String()
	}
	if j.prog.number {
		text += " -NUM"
	}
	if len(j.prog.long) > 0 {
		text += " and long ones written out in full (--" + strings.TrimRight(j.prog.long[0], ":?@") + ", …) that only read and print"
	}
	return text
}

// long judges a long option, which must be spelled out, and returns how many of
// the words after it are its own.
func (j *judge) long(word string, rest []string) (int, error) {
	name, inline, given := strings.Cut(word, "=")
	if name == "help" || name == "version" {
		if given {
			return 0, j.unknown("--" + word)
		}
		return 0, nil
	}
	for _, known := range j.prog.long {
		bare := strings.TrimRight(known, ":?@")
		if bare != name {
			continue
		}
		kind := none
		if len(known) > len(bare) {
			kind = argument(known[len(bare)])
		}
		return j.option("--"+name, name, kind, inline, given, rest)
	}
	return 0, j.unknown("--" + name)
}

// short judges a word of short options.
func (j *judge) short(word string, rest []string) (int, error) {
	if j.prog.number && digits(word) {
		return 0, nil
	}
	for i := 0; i < len(word); i++ {
		letter := word[i : i+1]
		at := strings.Index(j.prog.short, letter)
		if at < 0 || strings.Contains(":?@", letter) {
			return 0, j.unknown("-" + letter)
		}
		kind := none
		if at+1 < len(j.prog.short) && strings.IndexByte(":?@", j.prog.short[at+1]) >= 0 {
			kind = argument(j.prog.short[at+1])
		}
		if kind == none {
			j.seen[letter] = true
			continue
		}
		return j.option("-"+letter, letter, kind, word[i+1:], i+1 < len(word), rest)
	}
	return 0, nil
}

// option takes the argument of an option, inline if it stands in the same word.
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
		return used, j.reads(inline)
	}
	return used, nil
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// has reports whether one of the options was given.
func (j *judge) has(names ...string) bool {
	for _, name := range names {
		if j.seen[name] {
			return true
		}
	}
	return false
}
