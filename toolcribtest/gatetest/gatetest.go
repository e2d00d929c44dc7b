// Package gatetest is the suite that every [gate.Layer] must pass.
package gatetest

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
)

// rounds is how many queries the suite makes up.
const rounds = 2000

// RunLayer checks that a layer keeps its promises: it refuses what it is told
// nothing about, says to operators why it refuses, answers the same question always
// the same, changes nothing, never panics, can be asked by many at once, and
// never allows more because something was restricted. allow is a query that the
// layer allows.
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
	t.Run("refuses the zero query", func(t *testing.T) {
		if a := l.Judge(&gate.Query{}); a.Allowed {
			t.Fatalf("allowed: %+v", a)
		}
	})
	t.Run("refuses a tool that does not exist", func(t *testing.T) {
		q := allow
		q.Spec = nil
		if a := l.Judge(&q); a.Allowed {
			t.Fatalf("allowed: %+v", a)
		}
	})
	t.Run("keeps its promises for any query", func(t *testing.T) { anyQuery(t, l) })
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

func anyQuery(t *testing.T, l gate.Layer) {
	t.Helper()
	allowed, refused := 0, 0
	for round := range uint64(rounds) {
		q := draw(round)
		a := l.Judge(&q)
		if again := l.Judge(&q); again != a {
			t.Fatalf("%s: answered %+v, then %+v", show(q), a, again)
		}
		if was := draw(round); !reflect.DeepEqual(q, was) {
			t.Fatalf("changed the query %s to %s", show(was), show(q))
		}
		if a.Allowed {
			allowed++
			continue
		}
		refused++
		if a.Detail == "" {
			t.Fatalf("%s: refused without saying why", show(q))
		}
		for _, restrict := range restrictions() {
			narrower := draw(round)
			restrict.apply(&narrower)
			if l.Judge(&narrower).Allowed {
				t.Fatalf("%s is refused, but allowed with %s: %s", show(q), restrict.name, show(narrower))
			}
		}
	}
	if allowed == 0 || refused == 0 {
		t.Fatalf("of %d queries %d were allowed and %d refused: nothing was tried", rounds, allowed, refused)
	}
}

type restriction struct {
	name  string
	apply func(*gate.Query)
}

// restrictions are the ways to narrow a query. What they are applied to may lack a part.
func restrictions() []restriction {
	scope := func(name string, narrow func(*gate.Scope)) restriction {
		return restriction{name, func(q *gate.Query) {
			if q.Scope != nil {
				narrow(q.Scope)
			}
		}}
	}
	return []restriction{
		scope("an empty agent list", func(s *gate.Scope) { s.AgentTools = []string{} }),
		scope("an empty skill list", func(s *gate.Scope) { s.SkillTools = []string{} }),
		scope("an empty run list", func(s *gate.Scope) { s.RunTools = []string{} }),
		scope("an empty worker list", func(s *gate.Scope) { s.WorkerTools = []string{} }),
		scope("a run above whose skills allow nothing", func(s *gate.Scope) { s.AboveSkills = append(s.AboveSkills, []string{}) }),
		scope("a run above whose skills allow one tool", func(s *gate.Scope) {
			s.AboveSkills = append(s.AboveSkills, []string{"read_file(x)"})
		}),
		{"no overrides known", func(q *gate.Query) { q.Overrides = nil }},
		{"an unusable tool", func(q *gate.Query) { q.Unusable = "broken" }},
		{"nobody", func(q *gate.Query) { q.Who = nil }},
		{"no run", func(q *gate.Query) { q.Scope = nil }},
		{"no tool", func(q *gate.Query) { q.Spec = nil }},
		{"a tool for administrators", func(q *gate.Query) {
			if q.Spec != nil {
				q.Spec.RequiresAdmin = true
			}
		}},
		{"no administrator", func(q *gate.Query) {
			if q.Who != nil {
				q.Who.Admin = false
			}
		}},
		{"no grants", func(q *gate.Query) {
			if q.Who != nil {
				q.Who.Grants = []string{}
			}
		}},
		{"the tool switched off", func(q *gate.Query) {
			if q.Overrides != nil && q.Spec != nil {
				q.Overrides.Tools[q.Spec.Name] = false
			}
		}},
		{"the group switched off", func(q *gate.Query) {
			if q.Overrides != nil && q.Spec != nil {
				q.Overrides.Groups[q.Spec.Group] = false
			}
		}},
	}
}

// draw makes up a query; for the same number the same one, in memory of its own.
func draw(number uint64) gate.Query {
	r := rand.New(rand.NewPCG(number, 2))
	q := gate.Query{Name: pick(r, names())}
	if r.IntN(8) > 0 {
		q.Spec = &toolcrib.Spec{
			Name: q.Name, Group: pick(r, []string{"", "files", "web"}), Source: pick(r, []string{"", "builtin", "mcp:x"}),
			EnabledByDefault: r.IntN(3) > 0, RequiresAdmin: r.IntN(3) == 0,
			Effect: pick(r, []toolcrib.Effect{"", toolcrib.EffectReadOnly}),
		}
	}
	if r.IntN(8) == 0 {
		q.Unusable = "its schema is wrong"
	}
	if r.IntN(8) > 0 {
		q.Who = &toolcrib.Principal{
			User: pick(r, []string{"", "alice", "anonymous"}), Admin: r.IntN(3) == 0,
			Grants: drawList(r, []string{"files", "read_*", "*", "write_file"}),
		}
	}
	if r.IntN(8) > 0 {
		patterns := append(names(), "*", "read_*", "ghost", "[bad", "")
		q.Scope = &gate.Scope{
			Agent: pick(r, []string{"", "default"}), AgentTools: drawList(r, patterns), SkillTools: drawList(r, patterns),
			RunTools: drawList(r, patterns), WorkerTools: drawList(r, patterns),
		}
		for range r.IntN(3) {
			q.Scope.AboveSkills = append(q.Scope.AboveSkills, drawList(r, append(patterns, "read_file(x)")))
		}
	}
	if r.IntN(8) > 0 {
		q.Overrides = &gate.Overrides{
			Tools:  drawSwitches(r, names()),
			Groups: drawSwitches(r, []string{"", "files", "web"}),
		}
	}
	return q
}

func names() []string { return []string{"read_file", "write_file", "web_fetch"} }

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

func drawList(r *rand.Rand, from []string) []string {
	if r.IntN(2) == 0 {
		return nil
	}
	list := []string{}
	for range r.IntN(4) {
		list = append(list, pick(r, from))
	}
	return list
}

func drawSwitches(r *rand.Rand, from []string) map[string]bool {
	m := map[string]bool{}
	for _, name := range from {
		if r.IntN(3) == 0 {
			m[name] = r.IntN(2) == 0
		}
	}
	return m
}

// show writes a query out for a failure's message.
func show(q gate.Query) string {
	b, err := json.Marshal(q)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
