// Package ignore reports which files .gitignore and .ignore exclude, by the rules of gitignore(5). It
// is only for listings and searches: protection and approvals must not depend on it, since anyone
// who can write a workspace can write these files.
package ignore

import (
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/toolcrib/toolcrib/internal/project"
	"github.com/toolcrib/toolcrib/internal/safefile"
)

// Bounds of the files. Longer ones are not read.
const (
	maxFile     = 1 << 20 // bytes of a file
	maxPatterns = 10_000  // patterns of a file

	maxAllBytes    = 16 << 20 // bytes of all files of a List and the lists below it
	maxAllPatterns = 100_000
)

// names are the names of the files, by precedence: any .ignore overrides all .gitignore files. Of two
// files of the same name, the one nearer to the path takes precedence.
var names = [2]string{".ignore", ".gitignore"}

// List has the rules of the files in a folder and in those above it. A nil List ignores nothing.
type List struct {
	above *List
	dir   string // absolute, with a slash at its end
	rules [len(names)][]rule
	left  *bounds // remaining bounds, shared with the lists above
}

type bounds struct{ bytes, patterns int }

// For returns the list for the folders above real, a path below dir, starting at dir or, if dir is in
// a git repository, at the root of that. If the repository ignores dir itself, the list starts at dir,
// since a user who works there wants to see its files. root is the open folder dir, which is absolute,
// with symbolic links resolved.
func For(root *os.Root, dir, real string) *List {
	l := &List{left: &bounds{maxAllBytes, maxAllPatterns}}
	if p, err := project.Find(dir); err == nil && p.Git && p.Folder != "." {
		if top, err := os.OpenRoot(p.Root); err == nil {
			if above, ignored := l.to(top, p.Root, p.Folder); !ignored {
				l = above
			}
			_ = top.Close()
		}
	}
	l, _ = l.to(root, dir, real)
	return l
}

// to enters the folders from root down to real, without real itself, and reports whether they ignore
// a folder on the way.
func (l *List) to(root *os.Root, dir, real string) (below *List, ignored bool) {
	at := "."
	for step := range strings.SplitSeq(real, "/") {
		if step == "." {
			break
		}
		if folder, err := root.OpenRoot(at + "/."); err == nil {
			l = l.Enter(folder, filepath.Join(dir, at))
			_ = folder.Close()
		}
		at = path.Join(at, step)
		ignored = ignored || l.Ignores(filepath.Join(dir, at), true)
	}
	return l, ignored
}

// Enter returns the list of a folder below that of l, with the rules of the files in it. abs is its
// absolute path.
func (l *List) Enter(folder *os.Root, abs string) *List {
	in := &List{above: l, dir: strings.TrimSuffix(filepath.ToSlash(abs), "/") + "/", left: l.left}
	any := false
	for i, name := range names {
		data := read(folder, name, min(maxFile, l.left.bytes))
		l.left.bytes -= len(data)
		in.rules[i] = parse(data, min(maxPatterns, l.left.patterns))
		l.left.patterns -= len(in.rules[i])
		any = any || len(in.rules[i]) > 0
	}
	if !any {
		return l
	}
	return in
}

// Ignores reports whether a file or folder is ignored, given that no folder above it is. abs is its
// absolute path.
func (l *List) Ignores(abs string, folder bool) bool {
	abs = filepath.ToSlash(abs)
	name := path.Base(abs)
	for i := range names {
		for at := l; at != nil; at = at.above {
			below, ok := strings.CutPrefix(abs, at.dir)
			for j := len(at.rules[i]) - 1; ok && j >= 0; j-- {
				if r := &at.rules[i][j]; (folder || !r.folders) && r.matches(name, below) {
					return !r.negated
				}
			}
		}
	}
	return false
}

// read returns the content of a regular file. Like git it does not follow links. For a file that cannot
// be read or is longer than most it returns nil.
func read(folder *os.Root, name string, most int) []byte {
	if info, err := folder.Lstat(name); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	data, err := safefile.ReadIn(folder, name, int64(most))
	if err != nil {
		return nil
	}
	return data
}

// rule is a line of a file.
type rule struct {
	pattern string // pattern of doublestar or, if text is true, a text
	text    bool
	negated bool // whether it begins with !
	folders bool // whether it ends with a slash and so matches only folders
	path    bool // whether it matches the path below the folder of the file, not the name
}

func (r *rule) matches(name, below string) bool {
	if r.path {
		name = below
	}
	return r.text && name == r.pattern || !r.text && doublestar.MatchUnvalidated(r.pattern, name)
}

// parse returns at most most rules. It skips lines that cannot match.
func parse(data []byte, most int) (rules []rule) {
	for line := range strings.Lines(strings.TrimPrefix(string(data), "\uFEFF")) {
		line, _, _ = strings.Cut(strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r"), "\x00")
		if strings.HasPrefix(line, "#") {
			continue
		}
		var r rule
		line, r.negated = strings.CutPrefix(trimmed(line), "!")
		line, r.folders = strings.CutSuffix(line, "/")
		if r.path = strings.Contains(line, "/"); r.path {
			line = strings.TrimPrefix(line, "/")
		}
		var ok bool
		if r.pattern, r.text, ok = translated(line, r.path); !ok || line == "" {
			continue
		}
		if len(rules) == most {
			break
		}
		rules = append(rules, r)
	}
	return rules
}

// trimmed returns a line without trailing spaces, except escaped ones.
func trimmed(line string) string {
	end := 0
	for i := 0; i < len(line); i++ {
		if line[i] == '\\' {
			i++
			end = i + 1
		} else if line[i] != ' ' {
			end = i + 1
		}
	}
	return line[:min(end, len(line))]
}

// translated converts a pattern of git to one of doublestar, which has braces but no classes such as
// [:alpha:], and for which a/** includes a. If the pattern has no wildcards, text is true, and pattern
// is the text. ok is false if it cannot match.
func translated(line string, whole bool) (pattern string, text, ok bool) {
	var out, plain strings.Builder
	from, text := []rune(line), true
	for i := 0; i < len(from); i++ {
		switch c := from[i]; c {
		case '*':
			begin := i
			for i+1 < len(from) && from[i+1] == '*' {
				i++
			}
			text = false
			switch {
			case !whole || i == begin || begin > 0 && from[begin-1] != '/' || i+1 < len(from) && from[i+1] != '/':
				out.WriteString("*")
			case i+1 == len(from):
				out.WriteString("**/*")
			default:
				out.WriteString("**")
			}
		case '?':
			out.WriteRune(c)
			text = false
		case '[':
			class, n := class(from[i+1:])
			if n == 0 {
				return "", false, false
			}
			out.WriteString(class)
			i, text = i+n, false
		case '\\':
			if i++; i == len(from) {
				return "", false, false
			}
			fallthrough
		default:
			if strings.ContainsRune(`*?[]{}\`, from[i]) {
				out.WriteByte('\\')
			}
			out.WriteRune(from[i])
			plain.WriteRune(from[i])
		}
	}
	if text {
		return plain.String(), true, true
	}
	return out.String(), false, true
}

// classes are the ranges of the named character classes.
var classes = map[string]string{
	"alnum": "09AZaz", "alpha": "AZaz", "blank": "  \t\t", "cntrl": "\x00\x1f\x7f\x7f", "digit": "09", "graph": "!~",
	"lower": "az", "print": " ~", "punct": "!/:@[`{~", "space": "\t\r  ", "upper": "AZ", "xdigit": "09AFaf",
}

// class converts a bracket expression, which continues with p after the bracket, and returns its
// length in p. n is 0 if it does not end or cannot match.
func class(p []rune) (out string, n int) {
	var b strings.Builder
	b.WriteByte('[')
	put := func(from, to rune) {
		if from <= '/' && '/' <= to { // no class matches a slash
			if from < '/' {
				b.WriteString(`\` + string(from) + `-\.`)
			}
			if from = '0'; to < from {
				return
			}
		}
		b.WriteString(`\` + string(from) + `-\` + string(to))
	}
	i := 0
	if len(p) > 0 && (p[0] == '!' || p[0] == '^') {
		b.WriteString(`^\/`)
		i++
	}
	last := rune(0) // may begin a range
	for first := true; ; first = false {
		switch {
		case i >= len(p):
			return "", 0
		case p[i] == ']' && !first:
			if b.Len() == 1 {
				return "", 0
			}
			return b.String() + "]", i + 1
		case p[i] == '-' && last != 0 && i+1 < len(p) && p[i+1] != ']':
			if i++; p[i] == '\\' {
				i++
			}
			if i >= len(p) {
				return "", 0
			}
			put(last, p[i])
			last = 0
		case p[i] == '[' && i+1 < len(p) && p[i+1] == ':' && named(p[i+2:]) != "":
			name := named(p[i+2:])
			ranges := classes[name]
			if ranges == "" {
				return "", 0
			}
			for j := 0; j < len(ranges); j += 2 {
				put(rune(ranges[j]), rune(ranges[j+1]))
			}
			i, last = i+len(name)+3, 0
		default:
			if p[i] == '\\' {
				if i++; i >= len(p) {
					return "", 0
				}
			}
			put(p[i], p[i])
			last = p[i]
		}
		i++
	}
}

// named returns the name of a character class, which continues with p after "[:", or "".
func named(p []rune) string {
	for i, c := range p {
		if c == ']' {
			if i > 1 && p[i-1] == ':' {
				return string(p[:i-1])
			}
			return ""
		}
	}
	return ""
}
