// Package gatetest contains the suite for implementations of [gate.Layer].
package gatetest

import (
	"reflect"
	"sync"
	"testing"

	"github.com/toolcrib/toolcrib/gate"
)

// RunLayer tests that a layer refuses an empty query, gives operators a reason, always gives the same
// answer to the same query, changes nothing, never panics, is safe for concurrent use, and never allows
// more because of a restriction. allow is a query that the layer allows, and has all parts.
func RunLayer(t *testing.T, l gate.Layer, allow gate.Query) {
	t.Helper()
	t.Run("has a reason", func(t *testing.T) {
		first, second := l.Reason(), l.Reason()
		if first == "" || first != second {
			t.Fatalf("Reason() is %q, then %q", first, second)
		}
	})
	t.Run("allows what it should", func(t *testing.T) {
		if a := l.Judge(&allow); !a.Allowed {
			t.Fatalf("refused: %+v", a)
		}
	})
	t.Run("refuses the zero query, and a tool that does not exist", func(t *testing.T) {
		none := allow
		none.Spec = nil
		if zero := l.Judge(&gate.Query{}); zero.Allowed || l.Judge(&none).Allowed {
			t.Fatal("allowed")
		}
	})
	t.Run("keeps its promises for any restriction", func(t *testing.T) {
		for i, one := range restrictions {
			q := narrowed(allow, one)
			a := l.Judge(&q)
			switch again := l.Judge(&q); {
			case again != a:
				t.Fatalf("%s: answered %+v, then %+v", one.name, a, again)
			case !reflect.DeepEqual(q, narrowed(allow, one)):
				t.Fatalf("%s: changed the query", one.name)
			case a.Allowed:
				continue
			case a.Detail == "":
				t.Fatalf("%s: refused without saying why", one.name)
			}
			for _, more := range restrictions[i:] {
				if q := narrowed(allow, one, more); l.Judge(&q).Allowed {
					t.Fatalf("refused with %s, but allowed with %s, too", one.name, more.name)
				}
			}
		}
	})
	t.Run("can be asked by many", func(t *testing.T) {
		want := l.Judge(&allow)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 100 {
					if got := l.Judge(&allow); got != want {
						t.Errorf("answered %+v, then %+v", want, got)
						return
					}
				}
			})
		}
		all.Wait()
	})
}

type restriction struct {
	name  string
	apply func(*gate.Query)
}

// restrictions are the ways to restrict a query; those that remove a part of it are last.
var restrictions = []restriction{
	{"an empty agent list", func(q *gate.Query) { q.Scope.AgentTools = []string{} }},
	{"another agent list", func(q *gate.Query) { q.Scope.AgentTools = []string{"ghost", "[bad", ""} }},
	{"an empty skill list", func(q *gate.Query) { q.Scope.SkillTools = []string{} }},
	{"another skill list", func(q *gate.Query) { q.Scope.SkillTools = []string{"ghost(x)"} }},
	{"an empty run list", func(q *gate.Query) { q.Scope.RunTools = []string{} }},
	{"an empty worker list", func(q *gate.Query) { q.Scope.WorkerTools = []string{} }},
	{"a run above whose skills allow nothing", func(q *gate.Query) { q.Scope.AboveSkills = [][]string{{}} }},
	{
		"a run above whose skills allow another tool",
		func(q *gate.Query) { q.Scope.AboveSkills = [][]string{{"ghost(x)"}} },
	},
	{"an unusable tool", func(q *gate.Query) { q.Unusable = "broken" }},
	{"no administrator", func(q *gate.Query) { q.Who.Admin = false }},
	{"no grants", func(q *gate.Query) { q.Who.Grants, q.Who.Admin = []string{}, false }},
	{"a grant of everything by accident", func(q *gate.Query) { q.Who.Grants, q.Who.Admin = []string{"*"}, false }},
	{"a tool for administrators", func(q *gate.Query) { q.Spec.RequiresAdmin, q.Who.Admin = true, false }},
	{"the tool switched off", func(q *gate.Query) { q.Overrides.Tools = map[string]bool{q.Spec.Name: false} }},
	{"the group switched off", func(q *gate.Query) { q.Overrides.Groups = map[string]bool{q.Spec.Group: false} }},
	{"no overrides known", func(q *gate.Query) { q.Overrides = nil }},
	{"nobody", func(q *gate.Query) { q.Who = nil }},
	{"no run", func(q *gate.Query) { q.Scope = nil }},
	{"no tool", func(q *gate.Query) { q.Spec = nil }},
}

// narrowed returns a copy of a query with restrictions.
func narrowed(q gate.Query, by ...restriction) gate.Query {
	spec, who, scope, over := *q.Spec, *q.Who, *q.Scope, *q.Overrides
	q.Spec, q.Who, q.Scope, q.Overrides = &spec, &who, &scope, &over
	for _, r := range by {
		r.apply(&q)
	}
	return q
}
