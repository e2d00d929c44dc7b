package spawn_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/tool/spawn"
	"github.com/toolcrib/toolcrib/toolcribtest/tooltest"
)

// hostileText draws texts with all that has a meaning somewhere on the way.
func hostileText() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringN(0, 40, -1),
		rapid.StringOfN(rapid.SampledFrom([]rune("ab_-.\"\\\n\r\t \x00\x1b\u202e\u2028\u200b日%,:[]{}")), 0, 40, -1),
	)
}

// Whatever the agents are called and described as: the spec can be registered, the
// text is what a person would see, and exactly the agents of the list can be called.
func TestC7_SpawnAnyAgents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var agents []spawn.Agent
		for range rapid.IntRange(0, 12).Draw(t, "agents") {
			agents = append(agents, spawn.Agent{Name: hostileText().Draw(t, "name"), Description: hostileText().Draw(t, "description")})
		}
		tool := spawn.New(agents)
		spec := tool.Spec()
		if guard.Visible(spec.Description) != spec.Description || !utf8.ValidString(spec.Description) {
			t.Fatalf("%q", spec.Description)
		}
		var schema struct {
			Properties struct{ Agent struct{ Enum []string } }
		}
		if err := json.Unmarshal(spec.Parameters, &schema); err != nil {
			t.Fatalf("%v: %s", err, spec.Parameters)
		}
		enum := schema.Properties.Agent.Enum
		if listed := strings.Count(spec.Description, "\n- "); listed != len(enum) || !slices.IsSorted(enum) {
			t.Fatalf("%d listed, enum %q", listed, enum)
		}
		for _, a := range agents {
			raw, err := json.Marshal(map[string]string{"agent": a.Name, "task": "x"})
			if err != nil {
				t.Fatal(err)
			}
			err = tooltest.Refused(tool, toolcrib.Call{Arguments: raw})
			if (err == nil) != slices.Contains(enum, a.Name) {
				t.Fatalf("%q of %q: %v", a.Name, enum, err)
			}
		}
	})
}

// Whatever a model writes, what people and models are shown of it is visible,
// bounded, and begins with who would work.
func TestC9_SpawnAnyArguments(t *testing.T) {
	tool := spawn.New(some())
	rapid.Check(t, func(t *rapid.T) {
		arguments := map[string]any{"agent": hostileText().Draw(t, "agent"), "task": hostileText().Draw(t, "task")}
		if rapid.Bool().Draw(t, "known") {
			arguments["agent"] = "default"
		}
		if rapid.Bool().Draw(t, "tools") {
			arguments["tools"] = rapid.SliceOfN(hostileText(), 0, 30).Draw(t, "list")
		}
		raw, err := json.Marshal(arguments)
		if err != nil {
			t.Fatal(err)
		}
		checkShown(t, tool, raw)
	})
}

// FuzzSpawn reads anything as arguments.
func FuzzSpawn(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `null`, `[]`, `{"agent":"default","task":"x"}`, `{"agent":7,"task":[]}`, `{"agent":"default","task":"x","tools":null}`,
		`{"agent":"default","task":"a\r\nagent: b","tools":["*","\u202e"]}`, "{\"agent\":\"\xff\"}",
	} {
		f.Add([]byte(seed))
	}
	tool := spawn.New(some())
	f.Fuzz(func(t *testing.T, raw []byte) { checkShown(t, tool, raw) })
}

// fatal is what checkShown needs of a test.
type fatal interface {
	Fatalf(format string, args ...any)
}

func checkShown(t fatal, tool toolcrib.Tool, raw []byte) {
	call := toolcrib.Call{Arguments: raw}
	targets := tooltest.Facts(tool, call).Targets
	admitted := tooltest.Refused(tool, call)
	if admitted == nil && (len(targets) != 1 || targets[0].Kind != toolcrib.TargetAgent || targets[0].Write) {
		t.Fatalf("%s: targets %+v", raw, targets)
	}
	if admitted != nil && (guard.Visible(admitted.Error()) != admitted.Error() || len(admitted.Error()) > 2000) {
		t.Fatalf("%s: %q", raw, admitted)
	}
	p, err := tooltest.Preview(context.Background(), tool, call)
	if err != nil {
		return
	}
	lines := strings.Split(p.Text, "\n")
	if len(lines) < 4 || !strings.HasPrefix(lines[0], "agent: ") || !strings.HasPrefix(lines[1], "tools: ") || !strings.HasPrefix(lines[2], "task (") ||
		guard.Visible(p.Text) != p.Text || len(p.Text) > 64<<10 {
		t.Fatalf("%s: %q", raw, p.Text)
	}
	for _, line := range lines[3:] {
		if !strings.HasPrefix(line, "  ") {
			t.Fatalf("%s: a line of the task passes for another: %q", raw, p.Text)
		}
	}
}
