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

// pureCore is the package of fold and next: the state of a run follows from its events alone.
const pureCore = "agent/core"

// beneathCore are the only packages of the module that the core depends on.
var beneathCore = []string{".", "guard", "journal"}

// coreImports are the packages of the standard library that the core may import.
var coreImports = []string{
	"bytes", "cmp", "crypto/sha256", "encoding/hex", "encoding/json", "fmt", "hash", "maps", "math", "slices",
	"strconv", "strings", "time",
}

// coreNames are the only names that the core may use of these packages.
var coreNames = map[string][]string{
	"time": {"Duration", "Hour", "Microsecond", "Millisecond", "Minute", "Second", "Time"},
	"fmt":  {"Errorf", "Fprintf", "Sprintf"}, // the rest writes to standard output or reads
}

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

// TestCore_IsPure keeps clocks, randomness, goroutines, input and output out of the core: what its
// files import and name, and what the packages beneath it do.
func TestCore_IsPure(t *testing.T) {
	all := packages(t)
	for _, dep := range all[pureCore].Deps {
		if all[dep].ours() && !slices.Contains(beneathCore, dep) {
			t.Errorf("%s depends on %s", pureCore, dep)
		}
	}
	seen := 0
	walk(t, func(name string, data []byte) {
		folder := path.Dir(name)
		core := folder == pureCore
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || !core && !slices.Contains(beneathCore, folder) {
			return
		}
		if core {
			seen++
		}
		for _, problem := range impurities(name, data, core, folder == ".") {
			t.Error(problem)
		}
	})
	if seen < 5 {
		t.Errorf("only %d files of %s were looked at", seen, pureCore)
	}
}

// impurities returns the impure parts of a file of the core or, if core is false, of a package
// beneath it.
func impurities(name string, data []byte, core, root bool) (problems []string) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, data, 0)
	if err != nil {
		return []string{err.Error()}
	}
	report := func(at token.Pos, format string, args ...any) {
		problems = append(problems, fmt.Sprintf("%s: %s", set.Position(at), fmt.Sprintf(format, args...)))
	}
	names := map[string]string{} // local names of imports
	for _, i := range file.Imports {
		from, _ := strconv.Unquote(i.Path.Value)
		local := path.Base(from)
		if i.Name != nil {
			local = i.Name.Name
		}
		names[local] = from
		standard := !strings.Contains(from, ".")
		switch {
		case local == "." || local == "_":
			report(i.Pos(), "imports %s as %s", from, local)
		case core && standard && !slices.Contains(coreImports, from), !core && !root && slices.Contains(impureImports, from):
			report(i.Pos(), "imports %s", from)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt, *ast.SelectStmt, *ast.ChanType:
			if core {
				report(n.Pos(), "has a goroutine or a channel")
			}
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			if !ok || x.Obj != nil { // a local variable
				return true
			}
			from := names[x.Name]
			allowed, listed := coreNames[from]
			if core && listed && !slices.Contains(allowed, n.Sel.Name) || slices.Contains(impureNames[from], n.Sel.Name) {
				report(n.Pos(), "uses %s.%s", from, n.Sel.Name)
			}
		}
		return true
	})
	return problems
}

func TestCore_Bite(t *testing.T) {
	tests := []struct {
		source     string
		core, root bool
		want       string // part of the only problem; "" if there must be none
	}{
		{`import "time"; var d = time.Second`, true, false, ""},
		{`import "time"; var now = time.Now()`, true, false, "uses time.Now"},
		{`import "time"; var now = time.Now`, false, false, "uses time.Now"},
		{`import clock "time"; var t = clock.Unix(0, 0)`, true, false, "uses time.Unix"},
		{`import "time"; var t = time.Unix(0, 0)`, false, false, ""},
		{`import . "time"`, true, false, "as ."},
		{`import "fmt"; func f() { fmt.Println() }`, true, false, "uses fmt.Println"},
		{`import "context"`, true, false, "imports context"},
		{`import "context"`, false, false, "imports context"},
		{`import "context"`, false, true, ""},
		{`import "sync"`, true, false, "imports sync"},
		{`import "sync"`, false, false, ""},
		{`import "math/rand/v2"`, false, false, "imports math/rand/v2"},
		{`func f() { go f() }`, true, false, "goroutine"},
	}
	for _, tt := range tests {
		got := impurities("x.go", []byte("package x\n"+tt.source), tt.core, tt.root)
		if fine := len(got) == 0 && tt.want == "" || len(got) == 1 && tt.want != "" && strings.Contains(got[0], tt.want); !fine {
			t.Errorf("%s: problems %q, want %q", tt.source, got, tt.want)
		}
	}
}
