package access_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
)

func TestM16_Covers(t *testing.T) {
	rag := access.Scope{Capabilities: []string{"rag.query@1.2"}}
	corpus := access.Scope{Params: map[string][]any{"corpus": {"a", "b"}}}
	for _, tt := range []struct {
		what   string
		scope  access.Scope
		target access.Target
		args   string
		ok     bool
	}{
		{"nothing is restricted", access.Scope{}, access.Target{Tool: "exec_shell"}, `{}`, true},
		{"no tools", access.Scope{Tools: []string{}}, access.Target{Tool: "read_file"}, `{}`, false},
		{"a tool", access.Scope{Tools: []string{"read_file"}}, access.Target{Tool: "read_file"}, `{}`, true},
		{"another tool", access.Scope{Tools: []string{"read_file"}}, access.Target{Tool: "read_files"}, `{}`, false},
		{"a glob", access.Scope{Tools: []string{"read_*"}}, access.Target{Tool: "read_file"}, `{}`, true},
		{"a glob, not at the end", access.Scope{Tools: []string{"read_*"}}, access.Target{Tool: "do_read_file"}, `{}`, false},
		{"a wildcard alone", access.Scope{Tools: []string{"*"}}, access.Target{Tool: "read_file"}, `{}`, false},
		{"two wildcards", access.Scope{Tools: []string{"?*"}}, access.Target{Tool: "read_file"}, `{}`, false},
		{"a class", access.Scope{Tools: []string{"[a-z]*"}}, access.Target{Tool: "read_file"}, `{}`, false},
		{"an empty name", access.Scope{Tools: []string{""}}, access.Target{}, `{}`, false},
		{"case", access.Scope{Tools: []string{"read_file"}}, access.Target{Tool: "Read_File"}, `{}`, false},
		{"an agent", access.Scope{Agents: []string{"research"}}, access.Target{Agent: "research", Tool: "x"}, `{}`, true},
		{"another agent", access.Scope{Agents: []string{"research"}}, access.Target{Agent: "default", Tool: "x"}, `{}`, false},
		{"no agent", access.Scope{Agents: []string{"research"}}, access.Target{Tool: "x"}, `{}`, false},
		{"no agents", access.Scope{Agents: []string{}}, access.Target{Agent: "default", Tool: "x"}, `{}`, false},
		{"any agent", access.Scope{Tools: []string{"x"}}, access.Target{Agent: "default", Tool: "x"}, `{}`, true},
		{"H19 the capability", rag, access.Target{Capability: "rag.query@1.2"}, `{}`, true},
		{"H19 a later minor", rag, access.Target{Capability: "rag.query@1.10"}, `{}`, true},
		{"H19 an earlier minor", rag, access.Target{Capability: "rag.query@1.1"}, `{}`, false},
		{"H19 another major", rag, access.Target{Capability: "rag.query@2.2"}, `{}`, false},
		{"H19 an earlier major", rag, access.Target{Capability: "rag.query@0.2"}, `{}`, false},
		{"H19 another capability", rag, access.Target{Capability: "rag.list_corpora@1.2"}, `{}`, false},
		{"H19 a longer name", rag, access.Target{Capability: "rag.query.all@1.2"}, `{}`, false},
		{"H19 no version", rag, access.Target{Capability: "rag.query"}, `{}`, false},
		{"H19 a bad version", rag, access.Target{Capability: "rag.query@1.02"}, `{}`, false},
		{"H19 a signed version", rag, access.Target{Capability: "rag.query@1.+3"}, `{}`, false},
		{"H19 a tool bound to it", rag, access.Target{Tool: "search_corpus", Capability: "rag.query@1.3"}, `{}`, true},
		{"H21 a tool that is no capability", rag, access.Target{Tool: "exec_shell"}, `{}`, false},
		{"a capability where tools are named", access.Scope{Tools: []string{"x"}}, access.Target{Capability: "rag.query@1.2"}, `{}`, false},
		{"no capabilities", access.Scope{Capabilities: []string{}}, access.Target{Tool: "x"}, `{}`, false},
		{"a value", corpus, access.Target{Tool: "x"}, `{"corpus":"a","q":1}`, true},
		{"the other value", corpus, access.Target{Tool: "x"}, `{"corpus":"b"}`, true},
		{"an escaped value", corpus, access.Target{Tool: "x"}, `{"corpus":"\u0061"}`, true},
		{"another value", corpus, access.Target{Tool: "x"}, `{"corpus":"c"}`, false},
		{"case of the value", corpus, access.Target{Tool: "x"}, `{"corpus":"A"}`, false},
		{"no value", corpus, access.Target{Tool: "x"}, `{}`, false},
		{"null", corpus, access.Target{Tool: "x"}, `{"corpus":null}`, false},
		{"an object", corpus, access.Target{Tool: "x"}, `{"corpus":{"a":"a"}}`, false},
		{"an array", corpus, access.Target{Tool: "x"}, `{"corpus":["a","b","a"]}`, true},
		{"an array with another one", corpus, access.Target{Tool: "x"}, `{"corpus":["a","c"]}`, false},
		{"an empty array", corpus, access.Target{Tool: "x"}, `{"corpus":[]}`, false},
		{"an array in an array", corpus, access.Target{Tool: "x"}, `{"corpus":[["a"]]}`, false},
		{"deeper", corpus, access.Target{Tool: "x"}, `{"in":{"corpus":"a"}}`, false},
		{"twice", corpus, access.Target{Tool: "x"}, `{"corpus":"c","corpus":"a"}`, false},
		{"twice the same", corpus, access.Target{Tool: "x"}, `{"corpus":"a","corpus":"a"}`, false},
		{"case of the name", corpus, access.Target{Tool: "x"}, `{"Corpus":"a"}`, false},
		{"another case besides", corpus, access.Target{Tool: "x"}, `{"corpus":"a","CORPUS":"c"}`, false},
		{"an escaped name besides", corpus, access.Target{Tool: "x"}, `{"corpus":"a","\u0063orpus":"c"}`, false},
		{"another case by folding", access.Scope{Params: map[string][]any{"disk": {"a"}}}, access.Target{Tool: "x"}, `{"disk":"a","di\u017fk":"c"}`, false},
		{"no object", corpus, access.Target{Tool: "x"}, `["corpus","a"]`, false},
		{"no JSON", corpus, access.Target{Tool: "x"}, `{"corpus":"a"`, false},
		{"two values", corpus, access.Target{Tool: "x"}, `{"corpus":"a"}{"corpus":"c"}`, false},
		{"empty", corpus, access.Target{Tool: "x"}, ``, false},
		{"bad UTF-8", corpus, access.Target{Tool: "x"}, "{\"corpus\":\"a\",\"x\":\"\xff\"}", false},
		{"no value is allowed", access.Scope{Params: map[string][]any{"corpus": {}}}, access.Target{Tool: "x"}, `{"corpus":"a"}`, false},
		{"null is allowed by none", access.Scope{Params: map[string][]any{"a": {nil}}}, access.Target{Tool: "x"}, `{"a":null}`, false},
		{"a number", access.Scope{Params: map[string][]any{"n": {1}}}, access.Target{Tool: "x"}, `{"n":1}`, true},
		{"a number as text", access.Scope{Params: map[string][]any{"n": {1}}}, access.Target{Tool: "x"}, `{"n":"1"}`, false},
		{"a number written otherwise", access.Scope{Params: map[string][]any{"n": {1}}}, access.Target{Tool: "x"}, `{"n":1.0}`, true},
		{"a large number", access.Scope{Params: map[string][]any{"n": {json.Number("9007199254740993")}}}, access.Target{Tool: "x"}, `{"n":9007199254740992}`, false},
		{"a huge exponent", access.Scope{Params: map[string][]any{"n": {1}}}, access.Target{Tool: "x"}, `{"n":1e999999999}`, false},
		{"a boolean", access.Scope{Params: map[string][]any{"n": {true}}}, access.Target{Tool: "x"}, `{"n":true}`, true},
		{"the other boolean", access.Scope{Params: map[string][]any{"n": {true}}}, access.Target{Tool: "x"}, `{"n":false}`, false},
	} {
		err := tt.scope.Covers(tt.target, json.RawMessage(tt.args))
		if tt.ok && err != nil {
			t.Errorf("%s: %v", tt.what, err)
		}
		if !tt.ok {
			refused(t, tt.what, err, toolcrib.CodeScopeInsufficient)
		}
	}
}

func TestM16_ScopeCheck(t *testing.T) {
	many := make([]string, access.MaxScopeNames+1)
	for i := range many {
		many[i] = fmt.Sprint("t", i)
	}
	params := map[string][]any{}
	for i := range access.MaxScopeParams + 1 {
		params[fmt.Sprint("p", i)] = []any{1}
	}
	for what, s := range map[string]access.Scope{
		"a wildcard":            {Tools: []string{"*"}},
		"an agent wildcard":     {Agents: []string{"??"}},
		"no name":               {Tools: []string{""}},
		"a class":               {Tools: []string{"[ab]"}},
		"too long a name":       {Tools: []string{strings.Repeat("a", 65)}},
		"no version":            {Capabilities: []string{"rag.query"}},
		"a wildcard capability": {Capabilities: []string{"rag.*@1.0"}},
		"a version wildcard":    {Capabilities: []string{"rag.query@1.*"}},
		"capitals":              {Capabilities: []string{"Rag.query@1.0"}},
		"dots":                  {Capabilities: []string{"rag..query@1.0"}},
		"a huge version":        {Capabilities: []string{"rag.query@1.10000"}},
		"many tools":            {Tools: many},
		"many params":           {Params: params},
		"a map":                 {Params: map[string][]any{"a": {map[string]any{}}}},
		"null":                  {Params: map[string][]any{"a": {nil}}},
		"no parameter":          {Params: map[string][]any{"": {1}}},
		"a long value":          {Params: map[string][]any{"a": {strings.Repeat("x", 1025)}}},
		"no number":             {Params: map[string][]any{"a": {json.Number("x")}}},
		"negative rate":         {RatePerMinute: -1},
		"negative total":        {MaxCalls: -1},
	} {
		_, err := s.Check()
		refused(t, what, err, toolcrib.CodeBadRequest)
	}
	got, err := access.Scope{Tools: []string{"a", "a"}, Agents: []string{}, Params: map[string][]any{"n": {1, 1.0, "x", "x", true}}}.Check()
	if err != nil || len(got.Tools) != 1 || got.Agents == nil || got.Capabilities != nil || fmt.Sprint(got.Params["n"]) != "[1 x true]" {
		t.Errorf("%+v, %v", got, err)
	}
}

// scopes generates scopes over few names, so that they overlap.
func scopes() *rapid.Generator[access.Scope] {
	list := func(names ...string) *rapid.Generator[[]string] {
		return rapid.OneOf(rapid.Just([]string(nil)), rapid.SliceOfN(rapid.SampledFrom(names), 0, 3))
	}
	values := rapid.SliceOfN(rapid.SampledFrom([]any{"a", "b", 1, true}), 0, 3)
	return rapid.Custom(func(r *rapid.T) access.Scope {
		s := access.Scope{
			Agents:       list("default", "d*", "research").Draw(r, "agents"),
			Tools:        list("read_file", "read_*", "*_file", "write_file", "r??d_file", "*").Draw(r, "tools"),
			Capabilities: list("rag.query@1.0", "rag.query@1.2", "rag.query@2.0", "bad").Draw(r, "capabilities"),
			Params:       rapid.MapOfN(rapid.SampledFrom([]string{"p", "q"}), values, 0, 2).Draw(r, "params"),

			RatePerMinute: rapid.Int64Range(0, 3).Draw(r, "rate"),
			MaxCalls:      rapid.Int64Range(0, 3).Draw(r, "calls"),
		}
		return s
	})
}

func targets() *rapid.Generator[access.Target] {
	return rapid.Custom(func(r *rapid.T) access.Target {
		return access.Target{
			Agent:      rapid.SampledFrom([]string{"", "default", "dev", "research"}).Draw(r, "agent"),
			Tool:       rapid.SampledFrom([]string{"", "read_file", "read_dir", "write_file", "rest_file"}).Draw(r, "tool"),
			Capability: rapid.SampledFrom([]string{"", "rag.query@1.0", "rag.query@1.5", "rag.query@2.1", "rag.query"}).Draw(r, "capability"),
		}
	})
}

var argumentSamples = []string{`{}`, `{"p":"a"}`, `{"p":"b","q":1}`, `{"p":["a","b"],"q":true}`, `{"q":1}`, `{"p":"c"}`, `{"p":"a","P":"b"}`, `[]`, ``}

// Adding to a scope never makes a token cover more, except for names that are added to an
// existing list.
func TestM16_RestrictingNeverWidens(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := scopes().Draw(r, "scope")
		target := targets().Draw(r, "target")
		args := json.RawMessage(rapid.SampledFrom(argumentSamples).Draw(r, "args"))
		narrower := map[string]access.Scope{}
		add := func(what string, change func(*access.Scope)) {
			n := s
			change(&n)
			narrower[what] = n
		}
		if s.Agents == nil {
			add("agents", func(n *access.Scope) { n.Agents = []string{"default"} })
		}
		if s.Tools == nil && s.Capabilities == nil {
			add("tools", func(n *access.Scope) { n.Tools = []string{"read_*"} })
			add("capabilities", func(n *access.Scope) { n.Capabilities = []string{"rag.query@1.0"} })
		}
		add("no agents", func(n *access.Scope) { n.Agents = []string{} })
		add("a parameter", func(n *access.Scope) {
			n.Params = map[string][]any{"new": {"a"}}
			for k, v := range s.Params {
				n.Params[k] = v
			}
		})
		for what, n := range narrower {
			if n.Covers(target, args) == nil && s.Covers(target, args) != nil {
				r.Fatalf("with %s, %+v covers %+v %s", what, n, target, args)
			}
		}
	})
}

// A scope is the same after it was stored as JSON.
func TestM16_ScopeAsJSON(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := scopes().Draw(r, "scope")
		data, err := json.Marshal(s)
		if err != nil {
			r.Fatal(err)
		}
		var again access.Scope
		if err := json.Unmarshal(data, &again); err != nil {
			r.Fatal(err)
		}
		target := targets().Draw(r, "target")
		args := json.RawMessage(rapid.SampledFrom(argumentSamples).Draw(r, "args"))
		if (s.Covers(target, args) == nil) != (again.Covers(target, args) == nil) {
			r.Fatalf("%s covers %+v %s in one form only", data, target, args)
		}
	})
}

func BenchmarkM16_Covers(b *testing.B) {
	s := access.Scope{Agents: []string{"default"}, Tools: []string{"write_file", "list_*", "read_*"}, Capabilities: []string{"rag.query@1.0"}}
	withParams := s
	withParams.Params = map[string][]any{"path": {"a.txt", "b.txt"}}
	target := access.Target{Agent: "default", Tool: "read_file"}
	args := json.RawMessage(`{"limit":10,"path":"b.txt"}`)
	for name, s := range map[string]access.Scope{"names": s, "params": withParams} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Covers(target, args); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
