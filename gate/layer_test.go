package gate_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/toolcribtest/gatetest"
)

// layer returns the gate's own layer of that reason.
func layer(t *testing.T, reason toolcrib.Reason) gate.Layer {
	t.Helper()
	for _, l := range gate.Layers() {
		if l.Reason() == reason {
			return l
		}
	}
	t.Fatalf("no layer %s", reason)
	return nil
}

// plainQuery is about a tool that everybody may use.
func plainQuery() gate.Query {
	spec, who, scope := reads("read_file"), alice(), wide()
	spec.Group = "files"
	return gate.Query{Name: spec.Name, Spec: &spec, Who: &who, Scope: &scope, Overrides: &gate.Overrides{}}
}

func TestLayers_Conformance(t *testing.T) {
	for _, l := range gate.Layers() {
		t.Run(string(l.Reason()), func(t *testing.T) { gatetest.RunLayer(t, l, plainQuery()) })
	}
}

func TestLayers_ContractOrder(t *testing.T) {
	want := []toolcrib.Reason{
		"not_registered", "tool_disabled", "requires_admin", "not_permitted",
		"agent_allowlist", "skill_allowlist", "run_allowlist", "worker_allowlist",
	}
	var have []toolcrib.Reason
	for _, l := range gate.Layers() {
		have = append(have, l.Reason())
	}
	if !slices.Equal(have, want) {
		t.Fatalf("layers %v, want %v", have, want)
	}
}

type layerCase struct {
	name   string
	change func(*gate.Query)
	allow  bool
	detail string // part of it
}

func runCases(t *testing.T, reason toolcrib.Reason, cases []layerCase) {
	t.Helper()
	l := layer(t, reason)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			q := plainQuery()
			c.change(&q)
			a := l.Judge(&q)
			if a.Allowed != c.allow || !strings.Contains(a.Detail, c.detail) {
				t.Fatalf("have %+v, want allowed %v with %q", a, c.allow, c.detail)
			}
		})
	}
}

func TestN4_LayerNotRegistered(t *testing.T) {
	runCases(t, toolcrib.ReasonNotRegistered, []layerCase{
		{"a tool", func(*gate.Query) {}, true, "registered"},
		{"no tool", func(q *gate.Query) { q.Spec = nil }, false, "no such tool"},
	})
}

func TestA1_A2_LayerToolDisabled(t *testing.T) {
	override := func(on bool) func(*gate.Query) {
		return func(q *gate.Query) { q.Overrides.Tools = map[string]bool{"read_file": on} }
	}
	runCases(t, toolcrib.ReasonToolDisabled, []layerCase{
		{"on by default", func(*gate.Query) {}, true, "by default"},
		{"off by default", func(q *gate.Query) { q.Spec.EnabledByDefault = false }, false, "off by default"},
		{"switched off", override(false), false, "by an administrator"},
		{"off by default, switched on", func(q *gate.Query) {
			q.Spec.EnabledByDefault = false
			override(true)(q)
		}, true, "by an administrator"},
		{"another tool is off", func(q *gate.Query) { q.Overrides.Tools = map[string]bool{"x": false} }, true, ""},
		{"group off", func(q *gate.Query) { q.Overrides.Groups = map[string]bool{"files": false} }, false, "group is switched off"},
		{"group off beats tool on", func(q *gate.Query) {
			override(true)(q)
			q.Overrides.Groups = map[string]bool{"files": false}
		}, false, "group is switched off"},
		{"group on does not switch on", func(q *gate.Query) {
			q.Spec.EnabledByDefault = false
			q.Overrides.Groups = map[string]bool{"files": true}
		}, false, "off by default"},
		{"no group is no group that is off", func(q *gate.Query) {
			q.Spec.Group = ""
			q.Overrides.Groups = map[string]bool{"": false}
		}, true, ""},
		{"overrides unknown", func(q *gate.Query) { q.Overrides = nil }, false, "not known"},
		{"overrides not readable", func(q *gate.Query) { q.Overrides, q.Unknown = nil, "disk on fire" }, false, "disk on fire"},
		{"unusable", func(q *gate.Query) {
			q.Unusable = "bad schema"
			override(true)(q)
		}, false, "bad schema"},
	})
}

func TestN18_LayerRequiresAdmin(t *testing.T) {
	needs := func(who *toolcrib.Principal) func(*gate.Query) {
		return func(q *gate.Query) {
			q.Spec.RequiresAdmin = true
			q.Who = who
		}
	}
	admin, nobody := root(), toolcrib.Principal{Admin: true}
	user := alice()
	runCases(t, toolcrib.ReasonRequiresAdmin, []layerCase{
		{"for everybody", func(*gate.Query) {}, true, ""},
		{"administrator", needs(&admin), true, "is one"},
		{"no administrator", needs(&user), false, "is not one"},
		{"no acting user is not an administrator", needs(&nobody), false, "no user"},
		{"nobody", needs(nil), false, "no user"},
		{"an unknown tool counts as admin-only", func(q *gate.Query) { q.Spec = nil }, false, ""},
	})
}

func TestLayerNotPermitted(t *testing.T) {
	grants := func(g ...string) func(*gate.Query) {
		return func(q *gate.Query) { q.Who.Grants = append([]string{}, g...) }
	}
	runCases(t, toolcrib.ReasonNotPermitted, []layerCase{
		{"no grants set", func(*gate.Query) {}, true, ""},
		{"empty grants", grants(), false, "no grant"},
		{"the tool", grants("read_file"), true, ""},
		{"a glob", grants("read_*"), true, ""},
		{"the group", grants("files"), true, "group"},
		{"another", grants("web", "write_file"), false, ""},
		{"a wildcard alone grants nothing", grants("*", "**", "?*", ""), false, ""},
		{"an administrator holds every grant", func(q *gate.Query) {
			grants()(q)
			q.Who.Admin = true
		}, true, "administrator"},
		{"nobody", func(q *gate.Query) { q.Who = nil }, false, "no user"},
		{"a group with other characters", func(q *gate.Query) {
			q.Spec.Group = "mcp:github"
			grants("mcp:github")(q)
		}, true, ""},
	})
}

func TestN15_LayerAllowlists(t *testing.T) {
	for reason, of := range map[toolcrib.Reason]func(*gate.Scope) *[]string{
		toolcrib.ReasonAgentAllowlist:  func(s *gate.Scope) *[]string { return &s.AgentTools },
		toolcrib.ReasonSkillAllowlist:  func(s *gate.Scope) *[]string { return &s.SkillTools },
		toolcrib.ReasonRunAllowlist:    func(s *gate.Scope) *[]string { return &s.RunTools },
		toolcrib.ReasonWorkerAllowlist: func(s *gate.Scope) *[]string { return &s.WorkerTools },
	} {
		list := func(patterns ...string) func(*gate.Query) {
			return func(q *gate.Query) { *of(q.Scope) = append([]string{}, patterns...) }
		}
		t.Run(string(reason), func(t *testing.T) {
			runCases(t, reason, []layerCase{
				{"no list", func(*gate.Query) {}, true, "restricts nothing"},
				{"an empty list", list(), false, "empty"},
				{"named", list("x", "read_file"), true, "has it"},
				{"glob", list("read_*"), true, "has it"},
				{"not named", list("write_file", "ghost"), false, "does not have it"},
				{"a bad pattern matches nothing", list("[r]ead_file", " read_file", "(x)", ""), false, ""},
				{"what narrows the arguments is a skill's alone", list("read_file(x)"), reason == toolcrib.ReasonSkillAllowlist, ""},
				{"no run", func(q *gate.Query) { q.Scope = nil }, false, "no run"},
			})
		})
	}
}

func TestPattern(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"read_file", "read_file", true},
		{"read_file", "read_files", false},
		{"read_*", "read_", true},
		{"read_*", "read_file", true},
		{"*_file", "read_file", true},
		{"github__*", "github__get", true},
		{"github__*", "github_get", false},
		{"*", "anything", true},
		{"r??d", "read", true},
		{"r?d", "read", false},
		{"*a*b*", "xxaxxbxx", true},
		{"*a*b", "xxaxxbxx", false},
		{"READ_FILE", "read_file", false},
		{"read_[a-z]*", "read_file", false},
		{"read_file\n", "read_file", false},
		{"", "", false},
		{strings.Repeat("*a", 120), strings.Repeat("a", 64), false},
		{strings.Repeat("*", 300), "read_file", false}, // longer than a pattern may be
	} {
		spec := reads("x")
		spec.Name = c.name
		q := gate.Query{Spec: &spec, Scope: &gate.Scope{RunTools: []string{c.pattern}}}
		if have := layer(t, toolcrib.ReasonRunAllowlist).Judge(&q).Allowed; have != c.want {
			t.Errorf("%q matches %q: %v, want %v", c.pattern, c.name, have, c.want)
		}
	}
}
