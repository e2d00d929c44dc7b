package imports_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	// pureCore is the package of fold and next: the state of a run follows from its events alone.
	pureCore = "agent/core"
	// pureLine judges command lines: what it must know of the file system it asks an interface.
	pureLine = "tool/shell/internal/line"
)

// purity says what the files of a pure package may use.
type purity struct {
	deps    []string            // the only packages of the module that it depends on
	imports []string            // the only packages that it may import
	names   map[string][]string // the only names that it may use of these packages
}

// pure are the packages without clocks, randomness, goroutines, processes, input and output.
var pure = map[string]purity{
	pureCore: {
		deps: beneathCore,
		imports: append([]string{
			"bytes", "cmp", "crypto/sha256", "encoding/hex", "encoding/json", "fmt", "hash", "maps", "math", "slices",
			"strconv", "strings", "time",
		}, beneathCore...),
		names: map[string][]string{
			"time": {"Duration", "Hour", "Microsecond", "Millisecond", "Minute", "Second", "Time"},
			"fmt":  {"Errorf", "Fprintf", "Sprintf"}, // the rest writes to standard output or reads
		},
	},
	pureLine: {
		deps: []string{
			".", "guard", "internal/lazyregexp", "tool/internal/beneath", "tool/internal/nolink", "tool/internal/pattern",
		},
		imports: []string{
			"errors", "io", "io/fs", "path", "path/filepath", "slices", "strconv", "strings", "sync", "mvdan.cc/sh/v3/expand",
			"mvdan.cc/sh/v3/syntax", ".", "guard", "internal/lazyregexp", "tool/internal/beneath", "tool/internal/pattern",
		},
		names: map[string][]string{
			"io":                    {"ErrShortBuffer"},
			"io/fs":                 {"DirEntry"},
			"path/filepath":         {"Clean", "FromSlash", "IsAbs", "Join"}, // others look at the disk
			"sync":                  {"OnceValue"},
			"tool/internal/beneath": {"Below", "ErrLinks", "ErrOutside", "Place", "Special"},
		},
	},
}

// beneathCore are the only packages of the module that the core depends on.
var beneathCore = []string{".", "guard", "journal"}

// impureImports must not be imported by the packages beneath the core either, but for the root, whose
// interfaces take a context.
var impureImports = []string{
	"context", "crypto/rand", "database/sql", "log", "log/slog", "math/rand", "math/rand/v2", "net", "net/http", "os",
	"os/exec", "os/signal", "runtime", "syscall", "testing",
}

// impureNames must not be used beneath the core: clocks and timers.
var impureNames = map[string][]string{
	"time": {"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"},
}

// TestPure keeps clocks, randomness, goroutines, processes, input and output out of the pure packages:
// what their files import and name, and what the packages beneath the core do.
func TestPure(t *testing.T) {
	all := packages(t)
	for name, rule := range pure {
		for _, dep := range all[name].Deps {
			if all[dep].ours() && !slices.Contains(rule.deps, dep) {
				t.Errorf("%s depends on %s", name, dep)
			}
		}
	}
	seen := map[string]int{}
	walk(t, func(name string, data []byte) {
		folder := path.Dir(name)
		rule, found := pure[folder]
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || !found && !slices.Contains(beneathCore, folder) {
			return
		}
		seen[folder]++
		for _, problem := range impurities(name, data, rule, folder == ".") {
			t.Error(problem)
		}
	})
	for name := range pure {
		if seen[name] < 5 {
			t.Errorf("only %d files of %s were looked at", seen[name], name)
		}
	}
}

// impurities returns the impure parts of a file of a package with this rule or, if the rule is zero, of
// a package beneath the core.
func impurities(name string, data []byte, rule purity, root bool) (problems []string) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, data, 0)
	if err != nil {
		return []string{err.Error()}
	}
	report := func(at token.Pos, format string, args ...any) {
		problems = append(problems, fmt.Sprintf("%s: %s", set.Position(at), fmt.Sprintf(format, args...)))
	}
	whole := rule.imports != nil
	names := map[string]string{} // local names of imports
	for _, i := range file.Imports {
		from, _ := strconv.Unquote(i.Path.Value)
		as := path.Base(from)
		if i.Name != nil {
			as = i.Name.Name
		}
		from = local(from)
		names[as] = from
		switch {
		case as == "." || as == "_":
			report(i.Pos(), "imports %s as %s", from, as)
		case whole && !slices.Contains(rule.imports, from), !whole && !root && slices.Contains(impureImports, from):
			report(i.Pos(), "imports %s", from)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt, *ast.SelectStmt, *ast.ChanType:
			if whole {
				report(n.Pos(), "has a goroutine or a channel")
			}
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			if !ok || x.Obj != nil { // a local variable
				return true
			}
			from := names[x.Name]
			allowed, listed := rule.names[from]
			if listed && !slices.Contains(allowed, n.Sel.Name) || slices.Contains(impureNames[from], n.Sel.Name) {
				report(n.Pos(), "uses %s.%s", from, n.Sel.Name)
			}
		}
		return true
	})
	return problems
}

func TestPure_Bites(t *testing.T) {
	tests := []struct {
		source string
		of     string // package with the rule, or ""
		root   bool
		want   string // part of the only problem; "" if there must be none
	}{
		{`import "time"; var d = time.Second`, pureCore, false, ""},
		{`import "time"; var now = time.Now()`, pureCore, false, "uses time.Now"},
		{`import "time"; var now = time.Now`, "", false, "uses time.Now"},
		{`import clock "time"; var t = clock.Unix(0, 0)`, pureCore, false, "uses time.Unix"},
		{`import "time"; var t = time.Unix(0, 0)`, "", false, ""},
		{`import . "time"`, pureCore, false, "as ."},
		{`import "fmt"; func f() { fmt.Println() }`, pureCore, false, "uses fmt.Println"},
		{`import "context"`, pureCore, false, "imports context"},
		{`import "context"`, "", false, "imports context"},
		{`import "context"`, "", true, ""},
		{`import "sync"`, pureCore, false, "imports sync"},
		{`import "sync"`, "", false, ""},
		{`import "math/rand/v2"`, "", false, "imports math/rand/v2"},
		{`func f() { go f() }`, pureCore, false, "goroutine"},
		{`import "os/exec"`, pureLine, false, "imports os/exec"},
		{`import "os"`, pureLine, false, "imports os"},
		{`import "github.com/toolcrib/toolcrib/tool/shell/internal/jail"`, pureLine, false, "imports tool/shell/internal/jail"},
		{`import "path/filepath"; var f = filepath.Join`, pureLine, false, ""},
		{`import "path/filepath"; var f = filepath.EvalSymlinks`, pureLine, false, "uses path/filepath.EvalSymlinks"},
		{`import "github.com/toolcrib/toolcrib/tool/internal/beneath"; var f = beneath.Open`, pureLine, false, "uses tool/internal/beneath.Open"},
		{`import "mvdan.cc/sh/v3/interp"`, pureLine, false, "imports mvdan.cc/sh/v3/interp"},
		{`func f() { go f() }`, pureLine, false, "goroutine"},
	}
	for _, tt := range tests {
		got := impurities("x.go", []byte("package x\n"+tt.source), pure[tt.of], tt.root)
		if fine := len(got) == 0 && tt.want == "" || len(got) == 1 && tt.want != "" && strings.Contains(got[0], tt.want); !fine {
			t.Errorf("%s: problems %q, want %q", tt.source, got, tt.want)
		}
	}
}
