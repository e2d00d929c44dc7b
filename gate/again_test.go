package gate_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
)

// linedTool is a tool with command lines of words, joined by semicolons.
type linedTool struct{ plainTool }

func (l *linedTool) Plan(_ context.Context, call toolcrib.Call) (*toolcrib.Plan, error) {
	var in struct{ Line string }
	if err := json.Unmarshal(call.Arguments, &in); err != nil {
		return nil, err
	}
	p := &toolcrib.Plan{CommandLine: true, Run: l.Call}
	for line := range strings.SplitSeq(in.Line, ";") {
		var words []toolcrib.Word
		for _, w := range strings.Fields(line) {
			words = append(words, toolcrib.Word{Text: w, Unknown: strings.HasPrefix(w, "$")})
		}
		if len(words) > 0 {
			p.Programs = append(p.Programs, toolcrib.Program{Name: words[0], Args: words[1:]})
		}
	}
	return p, nil
}

// What a call does is the same however it is spelled, and other than what others do.
func TestDoes(t *testing.T) {
	put := &fullTool{plainTool: plainTool{writes("put")}, targets: func(c toolcrib.Call) []toolcrib.Target {
		var in struct {
			At    string
			Among []string
		}
		if json.Unmarshal(c.Arguments, &in) != nil || in.At == "" && len(in.Among) == 0 {
			return nil
		}
		var all []toolcrib.Target
		for _, name := range append(in.Among, in.At) {
			all = append(all, toolcrib.Target{Kind: toolcrib.TargetFile, Name: filepath.Join("/ws", name), Write: true})
		}
		return all
	}, content: func(c toolcrib.Call) []string {
		var in struct {
			Content string
			N       int
		}
		if json.Unmarshal(c.Arguments, &in) != nil {
			return nil
		}
		return []string{in.Content, strconv.Itoa(in.N)}
	}}
	breaks := &fullTool{plainTool: plainTool{writes("breaks")}, targets: func(toolcrib.Call) []toolcrib.Target { panic("targets") }}
	g := newGate(t, put, breaks, &linedTool{plainTool{writes("line")}}, tool(writes("plain")))
	does := func(name, arguments string) []string {
		c := toolcrib.Call{Name: name, Arguments: json.RawMessage(arguments), Workspace: "/ws"}
		targets := []toolcrib.Target{{Kind: toolcrib.TargetFile, Name: "/ws/a", Write: true}}
		switch name {
		case "put":
			targets = put.targets(c)
		case "line":
			targets = nil
		}
		return g.Does(t.Context(), c, targets)
	}
	for _, tt := range []struct {
		name, one, other string
		same             bool
	}{
		{"put", `{"at":"a.txt","content":"x"}`, `{"at":"./sub/../a.txt","content":"x"}`, true},
		{"put", `{"at":"a.txt","content":"x"}`, `{"at":"a.txt","content":"x","force":false,"note":null}`, true},
		{"put", `{"among":["a"],"content":"x"}`, `{"among":["./a"],"content":"x"}`, true},
		{"put", `{"at":"a.txt","content":"x"}`, `{"at":"b.txt","content":"x"}`, false},
		{"put", `{"at":"a.txt","content":"x"}`, `{"at":"a.txt","content":"y"}`, false},
		{"put", `{"at":"a.txt","n":1}`, `{"at":"a.txt","n":2}`, false},
		{"line", `{"line":"sh s.sh"}`, `{"line":"  sh   ./s.sh "}`, true},
		{"line", `{"line":"sh s.sh"}`, `{"line":"sh /ws/x/..//s.sh;"}`, true},
		{"line", `{"line":"sh s.sh"}`, `{"line":"sh /other/s.sh"}`, false},
		{"line", `{"line":"sh s.sh"}`, `{"line":"sh t.sh"}`, false},
		{"line", `{"line":"sh s.sh a"}`, `{"line":"sh s.sh"}`, false},
		{"line", `{"line":"sh $X"}`, `{"line":"sh $Y"}`, false},
	} {
		one, other := does(tt.name, tt.one), does(tt.name, tt.other)
		if len(one) == 0 || slices.Equal(one, other) != tt.same {
			t.Errorf("%s and %s: %v %v, want the same: %t", tt.one, tt.other, one, other, tt.same)
		}
	}
	// A line that does more does each of it.
	more, one := does("line", `{"line":"true; sh ./s.sh"}`), does("line", `{"line":"sh s.sh"}`)
	if len(more) != 2 || !slices.Contains(more, one[0]) {
		t.Errorf("%v does not hold %v", more, one)
	}
	for name, arguments := range map[string]string{
		"plain": `{"at":"a.txt"}`, "breaks": `{}`, "line": `{"line":";"}`, "nobody": `{}`, "put": `{"at":"a.txt"`,
	} {
		if got := does(name, arguments); got != nil {
			t.Errorf("%s: %v, and only the arguments tell it", name, got)
		}
	}
}
