package imports_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	maxFileLines     = 800
	maxFunctionLines = 80
	maxColumns       = 120     // a tab is one; a long string may end a line beyond
	maxScanned       = 1 << 20 // bytes of a file that is looked at; larger ones are data
)

// nothingNames are package names that say nothing about what is inside.
var nothingNames = []string{"util", "utils", "common", "helper", "helpers", "manager", "misc", "base"}

// walk calls see for each file of the repository, with its path below root.
func walk(t *testing.T, see func(path string, data []byte)) {
	t.Helper()
	top := root(t)
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(top, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if slices.Contains([]string{".git", "dist", "node_modules"}, entry.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		info, err := entry.Info()
		if os.IsNotExist(err) || err == nil && (!info.Mode().IsRegular() || info.Size() > maxScanned) {
			return nil
		}
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			return nil // a temporary file of another test
		}
		if err == nil {
			see(filepath.ToSlash(name), data)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// TestStyle keeps what CONTRIBUTING.md says of files and functions.
func TestStyle(t *testing.T) {
	seen := 0
	walk(t, func(path string, data []byte) {
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "testdata/") || generated.Match(data) {
			return
		}
		seen++
		for _, problem := range style(t, path, data) {
			t.Error(problem)
		}
	})
	if seen < 10 {
		t.Errorf("only %d files were looked at", seen)
	}
}

func style(t *testing.T, path string, data []byte) (problems []string) {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, data, parser.SkipObjectResolution)
	if err != nil {
		return []string{err.Error()}
	}
	if n := bytes.Count(data, []byte("\n")); n > maxFileLines {
		problems = append(problems, fmt.Sprintf("%s: %d lines, more than %d: what are the two ideas in it?", path, n, maxFileLines))
	}
	if slices.Contains(nothingNames, file.Name.Name) {
		problems = append(problems, fmt.Sprintf("%s: a package called %s says nothing", path, file.Name.Name))
	}
	long := map[int]bool{} // lines with a long string
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.BasicLit); ok && s.Kind == token.STRING && len(s.Value) > maxColumns/3 {
			for line := range bytes.Count([]byte(s.Value), []byte("\n")) + 1 {
				long[set.Position(s.Pos()).Line+line] = true
			}
		}
		return true
	})
	tables := strings.HasPrefix(path, "toolcribtest/") // rows of hostile replies stay rows
	for i, line := range strings.Split(string(data), "\n") {
		if n := utf8.RuneCountInString(line); n > maxColumns && !long[i+1] && !tables {
			problems = append(problems, fmt.Sprintf("%s:%d: %d columns, more than %d", path, i+1, n, maxColumns))
		}
	}
	for _, declared := range file.Decls {
		f, ok := declared.(*ast.FuncDecl)
		if !ok {
			continue
		}
		at := set.Position(f.Pos())
		// Two act before most packages are initialised: one ends the sandboxed copy of a program, so that it
		// initialises no more of them; the other puts off a garbage collection that they would cause.
		early := path == filepath.Join("tool", "shell", "internal", "jail", "copy_linux.go") ||
			path == filepath.Join("internal", "startup", "startup.go")
		if f.Name.Name == "init" && f.Recv == nil && !early {
			problems = append(problems, fmt.Sprintf("%s: init(): who calls it, and could they see it?", at))
		}
		if n := set.Position(f.End()).Line - at.Line + 1; n > maxFunctionLines {
			problems = append(problems, fmt.Sprintf("%s: %s has %d lines, more than %d", at, f.Name.Name, n, maxFunctionLines))
		}
	}
	return problems
}

func TestStyle_Bites(t *testing.T) {
	for want, source := range map[string]string{
		"init()":       "package x\n\nfunc init() {}\n",
		"has 92 lines": "package x\n\nfunc f() {\n" + strings.Repeat("\tg()\n", 90) + "}\n",
		"801 lines":    "package x\n" + strings.Repeat("// x\n", 800),
		"called util":  "package util\n",
		"132 columns":  "package x\n\nvar x = f" + strings.Repeat("(1, 2)", 20) + "[1]\n",
	} {
		if got := style(t, "x.go", []byte(source)); len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("problems %q, want one with %q", got, want)
		}
	}
	if got := style(t, "x.go", []byte("package x\n\ntype t struct{}\n\nfunc (t) init() {}\n")); len(got) != 0 {
		t.Errorf("a method called init: %q", got)
	}
}

// TestNothingIsLeftUndone looks for marks of unfinished work, for paths of the
// machine that a file was made on, and for hosts that a build must not depend on.
func TestNothingIsLeftUndone(t *testing.T) {
	banned := forbidden(root(t))
	walk(t, func(path string, data []byte) {
		if strings.Contains(path, "testdata/") || bytes.IndexByte(data, 0) >= 0 {
			return
		}
		for number, line := range strings.Split(string(data), "\n") {
			for _, word := range banned {
				if strings.Contains(line, word.part) && word.MatchString(line) {
					t.Errorf("%s:%d: speaks of %q", path, number+1, word.FindString(line))
				}
			}
		}
	})
}

// forbidden makes the patterns; they are put together so that they do not find
// themselves.
func forbidden(top string) []pattern {
	of := func(part, expr string) pattern { return pattern{part, regexp.MustCompile(expr)} }
	// In a comment; as data (a search for it, say) the word is no offence.
	const comment = `(^|\s)(//|#|/\*|<!--).*\b`
	patterns := []pattern{
		of("TO"+"DO", comment+"TO"+`DO\b`), of("FIX"+"ME", comment+"FIX"+`ME\b`),
		of(".golang", `\b(proxy|sum)\.golang`+`\.org\b`),
	}
	parent := filepath.ToSlash(filepath.Dir(top))
	if !slices.Contains(everybodysFolders, parent) {
		patterns = append(patterns, of(parent, regexp.QuoteMeta(parent)+`/`))
	}
	return patterns
}

// pattern is an expression, and a part of each text that it matches, which is found faster.
type pattern struct {
	part string
	*regexp.Regexp
}

// everybodysFolders are parents of a checkout that any text may name.
var everybodysFolders = []string{"/", "/tmp", "/root", "/home", "/src", "/app", "/usr/src", "/go/src", "/opt", "/srv", "/workspace"}

func TestNothingIsLeftUndone_Bites(t *testing.T) {
	patterns := forbidden("/somewhere/checkout")
	for _, line := range []string{"// TO" + "DO: later", "# FIX" + "ME", "cd /somewhere/else"} {
		if !slices.ContainsFunc(patterns, func(p pattern) bool { return strings.Contains(line, p.part) && p.MatchString(line) }) {
			t.Errorf("%q was let through", line)
		}
	}
}
