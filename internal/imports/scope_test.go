package imports_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// TestScopeIsMadeOnce keeps explain true: what a run may do is worked out in one place, from the first event of the
// run. Who explains or judges again makes such an event, and no scope of their own.
func TestScopeIsMadeOnce(t *testing.T) {
	var made []string
	walk(t, func(path string, data []byte) {
		if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") && !strings.HasPrefix(path, "bench/") {
			made = append(made, scopesIn(t, path, data)...)
		}
	})
	if !slices.Equal(made, []string{"agent/task.go"}) {
		t.Errorf("a gate.Scope is made in %q, and should be in agent/task.go only", made)
	}
}

// scopesIn returns the path once for each gate.Scope with fields that a file makes.
func scopesIn(t *testing.T, path string, data []byte) (made []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, data, parser.SkipObjectResolution)
	if err != nil {
		return nil // TestStyle reports it
	}
	isScope := func(e ast.Expr) bool {
		s, ok := e.(*ast.SelectorExpr)
		if !ok {
			id, ok := e.(*ast.Ident)
			return ok && file.Name.Name == "gate" && id.Name == "Scope"
		}
		x, ok := s.X.(*ast.Ident)
		return ok && x.Name == "gate" && s.Sel.Name == "Scope"
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CompositeLit:
			if isScope(n.Type) && len(n.Elts) > 0 {
				made = append(made, path)
			}
		case *ast.CallExpr:
			if id, ok := n.Fun.(*ast.Ident); ok && id.Name == "new" && isScope(n.Args[0]) {
				made = append(made, path)
			}
		}
		return true
	})
	return made
}

func TestScopeIsMadeOnce_Bites(t *testing.T) {
	for source, want := range map[string]int{
		"package x\n\nvar s = gate.Scope{Agent: \"a\"}\n":            1,
		"package x\n\nvar s = &gate.Scope{Agent: \"a\"}\n":           1,
		"package gate\n\nvar s = Scope{Agent: \"a\"}\n":              1,
		"package x\n\nvar s = new(gate.Scope)\n":                     1,
		"package x\n\nfunc f() gate.Scope { return gate.Scope{} }\n": 0,
	} {
		if got := len(scopesIn(t, "x.go", []byte(source))); got != want {
			t.Errorf("%q: %d, want %d", source, got, want)
		}
	}
}
