package gate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// strict is a schema with the usual keywords.
const strict = `{"type":"object","properties":{"path":{"type":"string","minLength":1},"n":{"type":"integer","minimum":0,"maximum":9},
"mode":{"enum":["append","overwrite"]},"tags":{"type":"array","items":{"type":"string"},"uniqueItems":true},
"at":{"anyOf":[{"type":"string"},{"type":"number"}]}},"required":["path"],"additionalProperties":false}`

// everyStep is a world in which every step of the judgement, from the named one
// on, refuses the call "x".
func everyStep(t *testing.T) (who toolcrib.Principal, g *gate.Gate, s gate.Scope, f gate.Facts, c toolcrib.ToolCall, calls *[]string) {
	t.Helper()
	var asked []string
	spec := withSchema(writes("x"), strict)
	spec.Nested, spec.RequiresAdmin = true, true
	full := &fullTool{plainTool: plainTool{spec}}
	full.admit = func(toolcrib.Call) error {
		asked = append(asked, "admit")
		return toolcrib.Failf(toolcrib.PermissionDenied, "not this one")
	}
	full.targets = func(toolcrib.Call) []toolcrib.Target {
		asked = append(asked, "targets")
		return []toolcrib.Target{{Kind: toolcrib.TargetFile, Name: "/ws/.git/config", Write: true}}
	}
	full.effect = func(toolcrib.Call) toolcrib.Effect {
		asked = append(asked, "effect")
		return toolcrib.EffectNonIdempotentWrite
	}
	g = gateOf(t, gate.Options{
		Tools:        []toolcrib.Tool{full},
		Availability: gate.Overrides{Tools: map[string]bool{"x": false}},
		Protected:    gate.Protected{Names: []string{".git"}},
	})
	none := []string{}
	s = gate.Scope{
		AgentTools: none, SkillTools: none, RunTools: none, WorkerTools: none, ReadOnly: true, Unattended: true,
		AboveSkills: [][]string{nil, none}, Worker: &journal.WorkerLimits{Hops: 3, CostCapUSD: 0.5, CostCapMode: "enforce"},
		Workspace: "/ws", MaxRepeats: 1,
	}
	f = gate.Facts{Repeated: func(string, []byte) int { return 1 }, Hops: 3, SpentUSD: 0.6}
	c = toolcrib.ToolCall{ID: "1", Name: "x", Arguments: json.RawMessage(`{}`), Broken: "{", Problem: "no end", Cut: true, Duplicate: true}
	return toolcrib.Principal{User: "alice", Grants: none}, g, s, f, c, &asked
}

// TestContractOrder takes one reason to refuse after the other away, and sees the
// next one reported, in the documented order, and no later one ever shows.
func TestContractOrder(t *testing.T) {
	who, g, s, f, c, asked := everyStep(t)
	whole := []string{"admit", "effect", "targets"} // one plan, whatever the later steps need of it
	steps := []struct {
		reason toolcrib.Reason
		lift   func()
		asked  []string // what the tool was asked so far in one judgement
	}{
		{toolcrib.ReasonParseError, func() { c.Cut = false }, nil},
		{toolcrib.ReasonCostCapExceeded, func() { f.SpentUSD = 0.5 }, nil},
		{toolcrib.ReasonHopBudgetExhausted, func() { f.Hops = 2 }, nil},
		{toolcrib.ReasonDuplicateCallID, func() { c.Duplicate = false }, nil},
		{toolcrib.ReasonTooManyCalls, func() { s.MaxCalls = 1 }, nil},
		{toolcrib.ReasonToolDisabled, func() { g = withoutOverrides(t, asked) }, nil},
		{toolcrib.ReasonRequiresAdmin, func() { g = withoutAdmin(t, asked) }, nil},
		{toolcrib.ReasonNotPermitted, func() { who.Grants = nil }, nil},
		{toolcrib.ReasonAgentAllowlist, func() { s.AgentTools = nil }, nil},
		{toolcrib.ReasonSkillAllowlist, func() { s.SkillTools = nil }, nil},
		{toolcrib.ReasonRunAllowlist, func() { s.RunTools = nil }, nil},
		{toolcrib.ReasonWorkerAllowlist, func() { s.WorkerTools = nil }, nil},
		{toolcrib.ReasonWorkerAllowlist, func() { s.AboveSkills = nil }, nil},
		{toolcrib.ReasonNotOffered, func() { f.Offered = map[string]bool{"x": true} }, nil},
		{toolcrib.ReasonDepthExceeded, func() { s.MaxDepth = 1 }, nil},
		{toolcrib.ReasonInvalidArguments, func() { c.Broken, c.Problem = "", "" }, nil},
		{toolcrib.ReasonInvalidArguments, func() { c.Arguments = json.RawMessage(`{"path":"p"}`) }, nil},
		{toolcrib.ReasonToolPolicy, func() { g = withPolicy(t, asked, "/ws/.git/config") }, []string{"admit"}},
		{toolcrib.ReasonProtectedPath, func() { g = withPolicy(t, asked, "/ws/notes.txt") }, whole},
		{toolcrib.ReasonReadOnlyMode, func() { s.ReadOnly = false }, whole},
		{toolcrib.ReasonRepeatedCall, func() { s.MaxRepeats = 2 }, whole},
		{toolcrib.ReasonNeedsConfirmation, func() {}, whole},
	}
	for _, step := range steps {
		*asked = nil
		v := judge(t, g, who, s, f, c)[0]
		wantRefused(t, v, step.reason, "")
		if !slices.Equal(*asked, step.asked) {
			t.Fatalf("at %s the tool was asked %v, want %v", step.reason, *asked, step.asked)
		}
		step.lift()
	}
	f.Decided = map[string]gate.Decided{"1": {Decision: journal.DecisionDeny, By: "bob", Reason: "no"}}
	wantRefused(t, judge(t, g, who, s, f, c)[0], toolcrib.ReasonApprovalDenied, "x was denied by bob: no")
	s.Unattended, f.Decided = false, nil
	f.Decided = map[string]gate.Decided{"1": approve(judge(t, g, who, s, f, c)[0])}
	s.Unattended = true
	wantAllowed(t, judge(t, g, who, s, f, c)[0])
}

// The gates of TestContractOrder, each with one reason less.
func withoutOverrides(t *testing.T, asked *[]string) *gate.Gate {
	return orderGate(t, asked, true, true, "/ws/.git/config")
}

func withoutAdmin(t *testing.T, asked *[]string) *gate.Gate {
	return orderGate(t, asked, false, true, "/ws/.git/config")
}

func withPolicy(t *testing.T, asked *[]string, path string) *gate.Gate {
	return orderGate(t, asked, false, false, path)
}

func orderGate(t *testing.T, asked *[]string, admin, refuses bool, path string) *gate.Gate {
	t.Helper()
	spec := withSchema(writes("x"), strict)
	spec.Nested, spec.RequiresAdmin = true, admin
	note := func(what string) { *asked = append(*asked, what) }
	return gateOf(t, gate.Options{
		Protected: gate.Protected{Names: []string{".git"}},
		Tools: []toolcrib.Tool{&fullTool{
			plainTool: plainTool{spec},
			admit: func(toolcrib.Call) error {
				note("admit")
				if refuses {
					return toolcrib.Failf(toolcrib.PermissionDenied, "not this one")
				}
				return nil
			},
			targets: func(toolcrib.Call) []toolcrib.Target {
				note("targets")
				return []toolcrib.Target{{Kind: toolcrib.TargetFile, Name: path, Write: true}}
			},
			effect: func(toolcrib.Call) toolcrib.Effect {
				note("effect")
				return toolcrib.EffectNonIdempotentWrite
			},
		}},
	})
}

func TestRefusalContent(t *testing.T) {
	off := reads("off")
	off.EnabledByDefault = false
	g := newGate(t, tool(withSchema(reads("read_file"), strict)), tool(off))
	for _, c := range []struct {
		call toolcrib.ToolCall
		want string
	}{
		{
			call("1", "read_flie", `{}`),
			`{"refused":true,"tool":"read_flie","reason":"not_registered","message":"tool not found: read_flie. Offered are: read_file"}`,
		},
		{
			call("1", "delete_everything", `{}`),
			`{"refused":true,"tool":"delete_everything","reason":"not_registered","message":"tool not found: delete_everything"}`,
		},
		{
			call("1", "off", `{}`),
			`{"refused":true,"tool":"off","reason":"tool_disabled","message":"off is not available. Continue without it.","operator_hint":"toolcrib tools enable off"}`,
		},
		{
			call("1", "read_file", `{"path":3}`),
			`{"refused":true,"tool":"read_file","reason":"invalid_arguments","message":"invalid_arguments: /path: expected string, got number 3",` +
				`"schema_error":{"path":"/path","expected":"string","got":"number 3"}}`,
		},
		{
			toolcrib.ToolCall{ID: "1", Name: "read_file", Arguments: json.RawMessage(`{}`), Broken: `{"a`, Problem: "string without an end (byte 1)"},
			`{"refused":true,"tool":"read_file","reason":"invalid_arguments","message":"invalid_arguments: string without an end (byte 1)",` +
				`"schema_error":{"path":"","expected":"one JSON object","got":"string without an end (byte 1)"}}`,
		},
		{
			call("1", "<b>&", `{}`),
			`{"refused":true,"tool":"<b>&","reason":"not_registered","message":"tool not found: <b>&"}`,
		},
	} {
		if v := judgeOne(t, g, c.call); v.Content != c.want {
			t.Errorf("have %s\nwant %s", v.Content, c.want)
		}
	}
	long := judgeOne(t, g, call("1", strings.Repeat("ä\xff", 5000), `{}`))
	if len(long.Content) > 1024 || !json.Valid([]byte(long.Content)) {
		t.Errorf("content of %d bytes", len(long.Content))
	}
}

func TestNearNamesOnlyOffered(t *testing.T) {
	hidden := reads("read_secret")
	hidden.RequiresAdmin = true
	g := newGate(t, tool(reads("read_file")), tool(hidden))
	f := gate.Facts{Offered: map[string]bool{"read_file": true, "read_secret": false}}
	f.Offered["gone"] = true
	for name, want := range map[string]string{
		"gone":        "tool not found: gone",
		"ReadFile":    "tool not found: ReadFile. Offered are: read_file",
		"file":        "tool not found: file. Offered are: read_file",
		"read_secre":  "tool not found: read_secre",
		"":            "tool not found: ",
		"read-file":   "tool not found: read-file. Offered are: read_file",
		"unlike that": "tool not found: unlike that",
	} {
		if v := judge(t, g, alice(), wide(), f, call("1", name, `{}`))[0]; v.Message != want {
			t.Errorf("%q: %q, want %q", name, v.Message, want)
		}
	}
}

func TestH4_InvalidArguments(t *testing.T) {
	g := newGate(t, tool(withSchema(reads("x"), strict)))
	for arguments, want := range map[string]string{
		`{}`:                            "/path: expected a value (required), got nothing",
		`{"path":null}`:                 "/path: expected string, got null",
		`{"path":""}`:                   `/path: expected at least 1 character, got string ""`,
		`{"path":"a","n":1.5}`:          "/n: expected integer, got number 1.5",
		`{"path":"a","n":10}`:           "/n: expected a number of at most 9, got number 10",
		`{"path":"a","mode":"x"}`:       `/mode: expected one of "append", "overwrite", got string "x"`,
		`{"path":"a","tags":["b",3]}`:   "/tags/1: expected string, got number 3",
		`{"path":"a","tags":["b","b"]}`: "/tags: expected items that all differ, got array of 2",
		`{"path":"a","at":true}`:        "/at: expected string or number, got boolean true",
		`{"path":"a","a/b~":1}`:         "/a~1b~0: expected no such property, got number 1",
		`{"n":-1,"path":[]}`:            "/n: expected a number of at least 0, got number -1; /path: expected string, got array of 0",
		`{"path":"a","path":"b"}`:       `duplicate key "path" (byte 12)`,
		`[1]`:                           "expected one JSON object, found an array (byte 0)",
		`{"path":"a"} x`:                "nothing may follow the value, found 'x' (byte 13)",
		`{"path":1e99999}`:              "number with an exponent beyond 999 (at /path, byte 8)",
	} {
		t.Run(arguments, func(t *testing.T) {
			v := judgeOne(t, g, call("1", "x", arguments))
			wantRefused(t, v, toolcrib.ReasonInvalidArguments, "")
			if v.Message != "invalid_arguments: "+want {
				t.Fatalf("have %q\nwant %q", v.Message, "invalid_arguments: "+want)
			}
			var e struct{ Path, Expected, Got string }
			if err := json.Unmarshal(v.SchemaError, &e); err != nil || e.Expected == "" || e.Got == "" {
				t.Fatalf("schema_error %s, %v", v.SchemaError, err)
			}
		})
	}
	for _, arguments := range []string{`{"path":"a"}`, ` {"path" : "a", "n" : 9 } `, `{"at":2.5,"path":"a"}`} {
		wantAllowed(t, judgeOne(t, g, call("1", "x", arguments)))
	}
}

// TestExpectations has every keyword of JSON Schema fail once.
func TestExpectations(t *testing.T) {
	for schema, want := range map[string]string{
		`{"const":"b"}`:     `expected "b", got string "a"`,
		`{"pattern":"^b"}`:  `expected a text that matches ^b, got string "a"`,
		`{"maxLength":0}`:   `expected at most 0 characters, got string "a"`,
		`{"not":{}}`:        `expected another value, got string "a"`,
		`false`:             `expected nothing here, got string "a"`,
		`{"oneOf":[{},{}]}`: `expected exactly one of several shapes, not more, got string "a"`,
		`{"oneOf":[{"type":"null"},{"type":"array"}]}`:    `expected null or array, got string "a"`,
		`{"anyOf":[{"type":"null"},{"minLength":2}]}`:     `expected null, got string "a"; /v: expected at least 2 characters, got string "a"`,
		`{"allOf":[{"minLength":2},{"type":"null"}]}`:     `expected at least 2 characters, got string "a"; /v: expected null, got string "a"`,
		`{"if":{"type":"string"},"then":{"type":"null"}}`: `expected null, got string "a"`,
		`{"$ref":"#/$defs/d"}`:                            `expected null, got string "a"`,
		`{"type":["null","boolean"]}`:                     `expected null or boolean, got string "a"`,
	} {
		checkExpectation(t, schema, `"a"`, want)
	}
	for schema, want := range map[string]string{
		`{"exclusiveMinimum":2.5}`: "expected a number above 5/2, got number 2",
		`{"exclusiveMaximum":2}`:   "expected a number below 2, got number 2",
		`{"multipleOf":3}`:         "expected a multiple of 3, got number 2",
	} {
		checkExpectation(t, schema, `2`, want)
	}
	for schema, want := range map[string]string{
		`{"minItems":3}`:                     "expected at least 3 items, got array of 2",
		`{"maxItems":1}`:                     "expected at most 1 item, got array of 2",
		`{"prefixItems":[{}],"items":false}`: "/1: expected nothing here, got number 2",
		`{"contains":{"type":"null"}}`:       "expected more items of the kind that must be in it, got array of 2",
	} {
		checkExpectation(t, schema, `[1,2]`, want)
	}
	for schema, want := range map[string]string{
		`{"minProperties":3}`:                                   "expected at least 3 properties, got object with a, b",
		`{"minProperties":4}`:                                   "expected at least 4 properties, got object with a, b",
		`{"maxProperties":1}`:                                   "expected at most 1 property, got object with a, b",
		`{"propertyNames":{"const":"a"}}`:                       `expected another name than "b", got object with a, b`,
		`{"dependentRequired":{"a":["c"]}}`:                     "/c: expected a value (required), got nothing",
		`{"dependentSchemas":{"a":{"required":["c"]}}}`:         "/c: expected a value (required), got nothing",
		`{"properties":{"a":{}},"unevaluatedProperties":false}`: "/b: expected nothing here, got null",
	} {
		checkExpectation(t, schema, `{"a":true,"b":null}`, want)
	}
}

// checkExpectation validates {"v": value} where v has the schema. A want that
// begins with a slash continues from the pointer /v.
func checkExpectation(t *testing.T, schema, value, want string) {
	t.Helper()
	whole := `{"type":"object","properties":{"v":` + schema + `},"$defs":{"d":{"type":"null"}}}`
	v := judgeOne(t, newGate(t, tool(withSchema(reads("x"), whole))), call("1", "x", `{"v":`+value+`}`))
	if !strings.HasPrefix(want, "/") {
		want = ": " + want
	}
	if want = "invalid_arguments: /v" + want; v.Message != want {
		t.Errorf("%s\nhave %s\nwant %s", schema, v.Message, want)
	}
}

func TestInvalidArgumentsAreBounded(t *testing.T) {
	g := newGate(t, tool(withSchema(reads("x"), `{"type":"object","additionalProperties":{"type":"boolean"}}`)))
	members := make([]string, 5000)
	for i := range members {
		members[i] = fmt.Sprintf(`"%s%d":"%s"`, strings.Repeat("k", 80), i, strings.Repeat("v", 100))
	}
	v := judgeOne(t, g, call("1", "x", "{"+strings.Join(members, ",")+"}"))
	wantRefused(t, v, toolcrib.ReasonInvalidArguments, "expected boolean")
	if len(v.Content) > 8<<10 {
		t.Fatalf("content of %d bytes", len(v.Content))
	}
}

// TestSchemaWorkIsBounded validates against a schema whose cost doubles with every
// level of the arguments.
func TestSchemaWorkIsBounded(t *testing.T) {
	for name, schema := range map[string]string{
		"allOf": `{"type":"object","properties":{"a":{"allOf":[{"$ref":"#"},{"$ref":"#"}]}}}`,
		"not":   `{"type":"object","properties":{"a":{"not":{"not":{"allOf":[{"$ref":"#"},{"$ref":"#"}]}}}}}`,
		"patterns under not": `{"type":"object","not":{"$ref":"#/$defs/x"},"$defs":{"x":{"type":"object",
			"properties":{"a":{"$ref":"#/$defs/x"}},"patternProperties":{"a":{"$ref":"#/$defs/x"}}}}}`,
		"draft 7": `{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"a":{"anyOf":[{"$ref":"#"},{"$ref":"#"}]}},"required":["zz"]}`,
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(t, tool(from("mcp:x", withSchema(reads("x"), schema))))
			arguments := strings.Repeat(`{"a":`, 60) + `{}` + strings.Repeat("}", 60)
			v := judgeOne(t, g, call("1", "x", arguments))
			wantRefused(t, v, toolcrib.ReasonInvalidArguments, "could not be checked")
			if !strings.Contains(v.Detail, "too long") {
				t.Fatalf("detail %q", v.Detail)
			}
			// A small one is still checked.
			if v := judgeOne(t, g, call("2", "x", `{"a":{}}`)); strings.Contains(v.Message, "could not be checked") {
				t.Fatal(v.Message)
			}
		})
	}
}

// H4: a list as long as arguments can have is checked.
func TestH4_LongestListIsChecked(t *testing.T) {
	g := newGate(t, tool(withSchema(reads("x"), `{"type":"object","properties":{"a":{"type":"array","items":{"type":"integer"}}}}`)))
	list := strings.Repeat("0,", (guard.MaxArgumentsBytes-len(`{"a":[]}`))/2-1)
	if v := judgeOne(t, g, call("1", "x", `{"a":[`+list+`0]}`)); v.Refused() {
		t.Fatal(v.Message)
	}
	v := judgeOne(t, g, call("2", "x", `{"a":[`+list+`""]}`))
	wantRefused(t, v, toolcrib.ReasonInvalidArguments, "expected integer")
}

func TestN13_NoArgumentsAreAnEmptyObject(t *testing.T) {
	g := newGate(t, tool(reads("x")))
	for _, arguments := range []string{``, `{}`, ` `} {
		v := judgeOne(t, g, call("1", "x", arguments))
		wantAllowed(t, v)
		if have := string(v.Permit.Call().Arguments); have != `{}` {
			t.Fatalf("%q became %q", arguments, have)
		}
	}
}

func TestN17_NotOffered(t *testing.T) {
	g := newGate(t, tool(reads("a")), tool(reads("b")))
	f := gate.Facts{Offered: map[string]bool{"a": true}}
	v := judge(t, g, alice(), wide(), f, call("1", "a", `{}`), call("2", "b", `{}`))
	wantAllowed(t, v[0])
	wantRefused(t, v[1], toolcrib.ReasonNotOffered, "b was not offered in this request")
}

func TestWholeTurn(t *testing.T) {
	g := newGate(t, tool(reads("a")), tool(writes("w")))
	s := wide()
	s.MaxCalls = 3
	dup := call("3", "a", `{}`)
	dup.Duplicate = true
	v := judge(t, g, alice(), s, offering(g), call("1", "a", `{}`), call("2", "w", `{}`), dup, call("4", "a", `{}`))
	wantAllowed(t, v[0])
	wantAsked(t, v[1])
	wantRefused(t, v[2], toolcrib.ReasonDuplicateCallID, "same id")
	wantRefused(t, v[3], toolcrib.ReasonTooManyCalls, "at most 3 calls")
}

func TestDepth(t *testing.T) {
	nested := reads("nested")
	nested.Nested = true
	g := newGate(t, tool(reads("flat")), tool(nested))
	for _, c := range []struct {
		depth, most  int
		flat, nested bool
	}{
		{0, 0, true, false},
		{0, 1, true, true},
		{2, 3, true, true},
		{3, 3, true, false},
		{4, 3, false, false},
		{1, 0, false, false},
	} {
		s := wide()
		s.Depth, s.MaxDepth = c.depth, c.most
		v := judge(t, g, alice(), s, offering(g), call("1", "flat", `{}`), call("2", "nested", `{}`))
		for i, want := range []bool{c.flat, c.nested} {
			if want {
				wantAllowed(t, v[i])
			} else {
				wantRefused(t, v[i], toolcrib.ReasonDepthExceeded, "deep")
			}
		}
	}
}

func TestToolPolicy(t *testing.T) {
	var nilError *toolcrib.ToolError
	for _, c := range []struct {
		name      string
		err       error
		message   string
		detailHas string
	}{
		{"made for the model", toolcrib.Failf(toolcrib.InvalidPath, "path escapes workspace: ../x"), "invalid path: path escapes workspace: ../x", ""},
		{
			"wrapped, with a cause", fmt.Errorf("outer password=1: %w", &toolcrib.ToolError{Kind: toolcrib.PermissionDenied, Message: "no", Err: errors.New("inner")}),
			"permission denied: no", "inner",
		},
		{"any other", errors.New("password=hunter2"), "x refused this call. Continue without it.", "hunter2"},
		{"a nil tool error", nilError, "x could not be judged, so it was refused. Continue without it.", "panic"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &fullTool{plainTool: plainTool{reads("x")}, admit: func(toolcrib.Call) error { return c.err }}
			v := judgeOne(t, newGate(t, f), call("1", "x", `{}`))
			wantRefused(t, v, toolcrib.ReasonToolPolicy, "")
			if v.Message != c.message && c.err != nilError || !strings.Contains(v.Detail, c.detailHas) {
				t.Fatalf("message %q, detail %q", v.Message, v.Detail)
			}
			if strings.Contains(v.Content, "hunter2") || strings.Contains(v.Content, "inner") || strings.Contains(v.Content, "password") {
				t.Fatalf("content %s", v.Content)
			}
		})
	}
}

// TestPanicsRefuse has every part of a plan panic in turn: the call is refused by the tool's policy
// with a reference, under which the log has what panicked and where, and nothing else has.
func TestPanicsRefuse(t *testing.T) {
	for name, set := range map[string]func(*fullTool){
		"Admit":    func(f *fullTool) { f.admit = func(toolcrib.Call) error { panic("secret") } },
		"Targets":  func(f *fullTool) { f.targets = func(toolcrib.Call) []toolcrib.Target { panic("secret") } },
		"EffectOf": func(f *fullTool) { f.effect = func(toolcrib.Call) toolcrib.Effect { panic("secret") } },
		"Asks":     func(f *fullTool) { f.asks = func(toolcrib.Call) []toolcrib.Concern { panic("secret") } },
	} {
		t.Run(name, func(t *testing.T) {
			f := &fullTool{plainTool: plainTool{reads("x")}}
			set(f)
			logged := map[string]string{}
			g := gateOf(t, gate.Options{Tools: []toolcrib.Tool{f}, Panicked: func(ref, detail string) { logged[ref] = detail }})
			v := judgeOne(t, g, call("1", "x", `{}`))
			wantRefused(t, v, toolcrib.ReasonToolPolicy, "could not be judged")
			all, err := json.Marshal(v.Verdict)
			if err != nil {
				t.Fatal(err)
			}
			if told := string(all) + v.Content; strings.Contains(told, "secret") || strings.Contains(told, "goroutine") {
				t.Errorf("told: %s", told)
			}
			if v.Ref == "" || !strings.Contains(v.Content, `"ref":"`+v.Ref+`"`) {
				t.Errorf("ref %q, content %s", v.Ref, v.Content)
			}
			if text := logged[v.Ref]; len(logged) != 1 || !strings.Contains(text, "panic: secret\ngoroutine ") {
				t.Errorf("logged %q", logged)
			}
		})
	}
	t.Run("repeated", func(t *testing.T) {
		g := newGate(t, tool(reads("x")))
		f := offering(g)
		f.Repeated = func(string, []byte) int { panic("fold") }
		wantRefused(t, judge(t, g, alice(), wide(), f, call("1", "x", `{}`))[0], toolcrib.ReasonRepeatedCall, "could not be judged")
	})
	t.Run("positions", func(t *testing.T) {
		g := gateOf(t, gate.Options{Tools: []toolcrib.Tool{tool(writes("x"))}, Positions: func(string) string { panic("config") }})
		wantAsked(t, judgeOne(t, g, call("1", "x", `{}`)))
	})
}

func TestEffectOf(t *testing.T) {
	for effect, asks := range map[toolcrib.Effect]bool{
		toolcrib.EffectReadOnly: false, toolcrib.EffectIdempotentWrite: true,
		toolcrib.EffectNonIdempotentWrite: true, "": true, "harmless": true,
	} {
		f := &fullTool{plainTool: plainTool{reads("x")}, effect: func(toolcrib.Call) toolcrib.Effect { return effect }}
		v := judgeOne(t, newGate(t, f), call("1", "x", `{}`))
		if (v.Decision == toolcrib.Ask) != asks || v.Effect != effect.OrStrictest() {
			t.Errorf("%q: decision %q, effect %s", effect, v.Decision, v.Effect)
		}
		s := wide()
		s.ReadOnly = true
		g := newGate(t, f)
		if refused := judge(t, g, alice(), s, offering(g), call("1", "x", `{}`))[0].Refused(); refused != asks {
			t.Errorf("%q: refused in read-only mode: %v", effect, refused)
		}
	}
}

func TestRepeatedCall(t *testing.T) {
	g := newGate(t, tool(reads("x")))
	for _, c := range []struct {
		times, most int
		refused     bool
	}{{0, 3, false}, {2, 3, false}, {3, 3, true}, {4, 3, true}, {100, 0, false}} {
		s, f := wide(), offering(g)
		s.MaxRepeats = c.most
		f.Repeated = func(name string, arguments []byte) int {
			if name != "x" || string(arguments) != `{"a":1,"b":2}` {
				t.Errorf("asked about %s %s", name, arguments)
			}
			return c.times
		}
		v := judge(t, g, alice(), s, f, call("1", "x", `{"b": 2, "a": 1}`))[0]
		if v.Refused() != c.refused || c.refused && v.Reason != toolcrib.ReasonRepeatedCall {
			t.Errorf("%d of %d: %q %s", c.times, c.most, v.Decision, v.Reason)
		}
	}
}

func TestPermitHoldsWhatWasJudged(t *testing.T) {
	spec := withSchema(reads("x"), `{"type":"object"}`)
	spec.Timeout, spec.MaxResultBytes, spec.Untrusted = 7*time.Second, 5000, true
	target := toolcrib.Target{Kind: "host", Name: "example.org"}
	f := &fullTool{plainTool: plainTool{spec}}
	f.targets = func(c toolcrib.Call) []toolcrib.Target {
		for i := range c.Arguments {
			c.Arguments[i] = 'x' // a tool cannot change what was judged
		}
		return []toolcrib.Target{target}
	}
	s := wide()
	s.Depth, s.Timeout, s.MaxBytes = 2, time.Minute, 9000
	g := newGate(t, f)
	v := judge(t, g, root(), s, offering(g), call("call_1", "x", `{"b":1,"a":"<&>"}`))[0]
	wantAllowed(t, v)
	c := v.Permit.Call()
	if c.ID != "call_1" || c.Name != "x" || string(c.Arguments) != `{"a":"<&>","b":1}` || c.Run != "run_1" || c.Session != "ses_1" ||
		c.Principal.User != "root" || !c.Principal.Admin || c.Workspace != "/ws" || c.Depth != 2 {
		t.Fatalf("call %+v", c)
	}
	if !slices.Equal(v.Permit.Targets(), []toolcrib.Target{target}) || !slices.Equal(v.Targets, v.Permit.Targets()) ||
		v.Permit.Effect() != toolcrib.EffectReadOnly || v.Permit.Timeout() != 7*time.Second || v.TimeoutMS != 7000 ||
		v.Permit.MaxBytes() != 5000 || v.MaxBytes != 5000 || !v.Permit.Untrusted() || !v.Untrusted {
		t.Fatalf("permit %+v", v.Permit)
	}
	out, err := v.Permit.Execute(t.Context(), gate.Attachments{})
	if err != nil || out.Text != "ran x" {
		t.Fatalf("ran: %+v, %v", out, err)
	}
}

func TestTimeoutAndBytes(t *testing.T) {
	for _, c := range []struct {
		name     string
		spec     func(*toolcrib.Spec)
		settings gate.ToolSettings
		scope    func(*gate.Scope)
		timeout  time.Duration
		bytes    int
	}{
		{"defaults", func(*toolcrib.Spec) {}, gate.ToolSettings{}, func(*gate.Scope) {}, 30 * time.Second, 65536},
		{"the run's", func(*toolcrib.Spec) {}, gate.ToolSettings{}, func(s *gate.Scope) { s.Timeout, s.MaxBytes = time.Second, 1000 }, time.Second, 1000},
		{"the tool's", func(s *toolcrib.Spec) { s.Timeout, s.MaxResultBytes = time.Hour, 999 }, gate.ToolSettings{}, func(s *gate.Scope) { s.Timeout, s.MaxBytes = time.Second, 1000 }, time.Hour, 999},
		{
			"the settings'", func(s *toolcrib.Spec) { s.Timeout, s.MaxResultBytes = time.Hour, 999 },
			gate.ToolSettings{Timeout: time.Minute, MaxResultBytes: 500},
			func(*gate.Scope) {}, time.Minute, 500,
		},
		{"bytes never grow", func(*toolcrib.Spec) {}, gate.ToolSettings{MaxResultBytes: 1 << 20}, func(s *gate.Scope) { s.MaxBytes = 300 }, 30 * time.Second, 300},
		{"at least 256", func(s *toolcrib.Spec) { s.MaxResultBytes = 1 }, gate.ToolSettings{}, func(*gate.Scope) {}, 30 * time.Second, 256},
		{"nested: as long as the run", func(s *toolcrib.Spec) { s.Nested = true }, gate.ToolSettings{}, func(s *gate.Scope) { s.Timeout = time.Second }, 0, 65536},
		{"nested with a setting", func(s *toolcrib.Spec) { s.Nested = true }, gate.ToolSettings{Timeout: time.Minute}, func(*gate.Scope) {}, time.Minute, 65536},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec, s := reads("x"), wide()
			c.spec(&spec)
			c.scope(&s)
			g := gateOf(t, gate.Options{Tools: []toolcrib.Tool{tool(spec)}, Settings: map[string]gate.ToolSettings{"x": c.settings}})
			v := judge(t, g, alice(), s, offering(g), call("1", "x", `{}`))[0]
			wantAllowed(t, v)
			if v.Permit.Timeout() != c.timeout || v.Permit.MaxBytes() != c.bytes || v.TimeoutMS != c.timeout.Milliseconds() || v.MaxBytes != c.bytes {
				t.Fatalf("timeout %v, %d bytes", v.Permit.Timeout(), v.Permit.MaxBytes())
			}
		})
	}
}

func TestUntrustedSetting(t *testing.T) {
	g := gateOf(t, gate.Options{Tools: []toolcrib.Tool{tool(reads("x"))}, Settings: map[string]gate.ToolSettings{"x": {Untrusted: true}}})
	if v := judgeOne(t, g, call("1", "x", `{}`)); !v.Untrusted || !v.Permit.Untrusted() {
		t.Fatalf("%+v", v)
	}
}

func TestCancelledBetweenCalls(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f := &fullTool{plainTool: plainTool{reads("x")}, admit: func(toolcrib.Call) error {
		cancel()
		return nil
	}}
	g := newGate(t, f)
	v := g.Judge(ctx, alice(), wide(), offering(g), []toolcrib.ToolCall{call("1", "x", `{}`), call("2", "x", `{}`)})
	wantAllowed(t, v[0])
	wantRefused(t, v[1], toolcrib.ReasonToolDisabled, "")
}

// A call in whose arguments a secret stood never runs, whatever else holds for it: its
// arguments are not those that the model sent.
func TestCallsWithSecretsAreRefused(t *testing.T) {
	lax, picky := writes("lax"), withSchema(reads("picky"), strict)
	g := newGate(t, tool(lax), tool(picky))
	for _, c := range []toolcrib.ToolCall{call("1", "lax", `{"x":"[secret:acme]"}`), call("2", "picky", `{"path":5}`), call("3", "picky", `{"path":"a"}`)} {
		c.Secret = "acme"
		f := gate.Facts{
			Offered: map[string]bool{c.Name: true},
			Decided: map[string]gate.Decided{c.ID: {Decision: journal.DecisionApprove, ApprovalID: "apr_1", By: "me"}},
		}
		v := judge(t, g, alice(), wide(), f, c)[0]
		wantRefused(t, v, toolcrib.ReasonToolPolicy, "")
		if !strings.Contains(v.Content, "[secret:acme]") || !strings.Contains(v.Content, "edit_file") || v.Permit.Valid() {
			t.Errorf("%s: %s", c.Name, v.Content)
		}
	}
}
