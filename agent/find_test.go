package agent_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/tool/find"
)

// manyTools are a small tool of this program, and forty of a server.
func manyTools(w *world) []toolcrib.Tool {
	tools := []toolcrib.Tool{find.New()}
	add := func(name, source, about string) {
		tools = append(tools, &fn{w: w, call: newEcho, spec: toolcrib.Spec{
			Name: name, Description: about, Source: source, Group: source, Effect: toolcrib.EffectReadOnly, EnabledByDefault: true,
		}})
	}
	add("zeta", "builtin", "Of this program.")
	add("srv__weather", "mcp:srv", "The weather of a town.")
	add("srv__tides", "mcp:srv", "High and low tides of a harbour.")
	for i := range 38 {
		add(fmt.Sprintf("srv__tool_%02d", i), "mcp:srv", strings.Repeat("Something else. ", 8))
	}
	return tools
}

func above(bytes int) func(*agent.Task) { return func(k *agent.Task) { k.Agent.FindAbove = bytes } }

// shownIn are the names that each request showed.
func (w *world) shownIn() []string {
	var all []string
	for _, r := range w.requests {
		var names []string
		for _, s := range r.Tools {
			names = append(names, s.Name)
		}
		all = append(all, strings.Join(names, " "))
	}
	return all
}

// An offer that is too large is given through find_tools: what is found or called is shown from then
// on, at the end, so that requests begin alike.
func TestFindTools(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	withTools(t, w, nil, manyTools(w)...)
	w.script(calls("find_tools", `{"query":"tides"}`), calls("srv__tides", `{}`, "srv__tool_07", `{"x":1}`, "ghost", `{}`),
		calls("find_tools", `{"query":"weather"}`), say("done"))
	s := run(t, w, above(1000))
	first := "find_tools zeta"
	for i, want := range []string{
		first, first + " srv__tides", first + " srv__tides srv__tool_07", first + " srv__tides srv__tool_07 srv__weather",
	} {
		equal(t, fmt.Sprint("request ", i), w.shownIn()[i], want)
	}
	equal(t, "results", strings.Join(results(s), ","),
		"find_tools ok ,srv__tides ok ,srv__tool_07 ok ,ghost refused not_registered,find_tools ok ")
	equal(t, "offered", len(s.Offer.Tools), 42)
	if !strings.Contains(w.requests[0].Tools[0].Description, "There are tools of: srv.") {
		t.Error(w.requests[0].Tools[0].Description)
	}
	hashes := map[string]bool{}
	for _, r := range w.requests {
		hashes[r.ToolsHash] = true
	}
	equal(t, "hashes", len(hashes), 4)
}

// What a run was shown follows from its journal, wherever it is cut.
func TestFindTools_CutAtEveryEvent(t *testing.T) {
	replies := [][]toolcrib.Delta{
		calls("find_tools", `{"query":"tides"}`), calls("srv__tides", `{}`, "srv__weather", `{}`), say("done"),
	}
	w := newWorld(t, gate.ConfirmNever)
	withTools(t, w, nil, manyTools(w)...)
	w.byTurn(replies...)
	whole := run(t, w, above(1000))
	last := w.shownIn()[2]
	equal(t, "last request", last, "find_tools zeta srv__tides srv__weather")
	events := w.events(t, whole.Run)
	for n := 1; n < len(events); n++ {
		again := cutAfter(t, events, n, whole.Run, gate.ConfirmNever)
		withTools(t, again, nil, manyTools(again)...)
		again.byTurn(replies...)
		if before, err := again.runner.Load(t.Context(), whole.Run); err != nil || before.Turn != nil && !before.Turn.Whole() {
			continue // inside an append, which is all or nothing
		}
		s, err := again.runner.Resume(t.Context(), whole.Run)
		if err != nil || outcome(s) != outcome(whole) {
			t.Fatalf("after event %d: %v\n%s", n, err, outcome(s))
		}
		if shown := again.shownIn(); len(shown) > 0 && shown[len(shown)-1] != last {
			t.Errorf("after event %d: %q", n, shown)
		}
		if err := again.replayed(s); err != nil {
			t.Errorf("after event %d: %v", n, err)
		}
	}
}

// Nothing is found, shown or run that the gate does not offer; and the lists that narrow an
// offer need not name find_tools.
func TestFindTools_OnlyWithinTheOffer(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*agent.Task)
		first  string // what the first request shows
		result string // of a search for tides, and of a call of srv__tides
	}{
		"all": {func(*agent.Task) {}, "find_tools zeta", "find_tools ok ,srv__tides ok "},
		"the run's list": {
			func(k *agent.Task) { k.RunTools = []string{"srv__tool_*"} },
			"find_tools", "find_tools ok ,srv__tides refused run_allowlist",
		},
		"the agent's list": {
			func(k *agent.Task) { k.Agent.Tools = []string{"srv__*"} },
			"find_tools", "find_tools ok ,srv__tides ok ",
		},
		"skills": {
			func(k *agent.Task) { k.SkillTools = []string{"srv__tool_*", "zeta"} },
			"find_tools zeta", "find_tools ok ,srv__tides refused skill_allowlist",
		},
		"the agent above": {
			func(k *agent.Task) { k.WorkerTools = []string{"srv__tool_*"} },
			"find_tools", "find_tools ok ,srv__tides refused worker_allowlist",
		},
		"grants": {
			func(k *agent.Task) {
				k.Principal.Admin, k.Principal.Grants = false, []string{"srv__tool_*", "zeta"}
			},
			"find_tools zeta", "find_tools ok ,srv__tides refused not_permitted",
		},
		"no tools": {
			func(k *agent.Task) { k.RunTools = []string{} },
			"", "find_tools refused run_allowlist,srv__tides refused run_allowlist",
		},
		"small": {
			func(k *agent.Task) { k.RunTools = []string{"zeta", "find_tools"} },
			"zeta", "find_tools refused not_offered,srv__tides refused run_allowlist",
		},
		"a name that must be called": {
			func(k *agent.Task) {
				k.Agent.ToolChoice = toolcrib.ToolChoice{Mode: toolcrib.ChoiceName, Name: "srv__tool_01"}
			},
			"find_tools zeta srv__tool_01", "find_tools ok ,srv__tides ok ",
		},
		"a small bound": {above(1), "find_tools", "find_tools ok ,srv__tides ok "},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, gate.ConfirmNever)
			withTools(t, w, nil, manyTools(w)...)
			w.script(calls("find_tools", `{"query":"tides"}`, "srv__tides", `{}`), say("done"))
			s := run(t, w, above(1000), c.change)
			equal(t, "first", w.shownIn()[0], c.first)
			equal(t, "results", strings.Join(results(s), ","), c.result)
			if content := s.Trace[0].Result.Content; strings.HasSuffix(c.result, "allowlist") && strings.Contains(content, "srv__tides") {
				t.Errorf("found what is not offered: %s", content)
			}
			found := slices.Contains(strings.Fields(w.shownIn()[1]), "srv__tides")
			equal(t, "shown then", found, strings.HasSuffix(c.result, "srv__tides ok "))
		})
	}
}

// Without find_tools, and at 0, every offer is given whole.
func TestFindTools_Whole(t *testing.T) {
	for bytes, from := range map[int]int{0: 0, 1000: 1} {
		w := newWorld(t, gate.ConfirmNever)
		withTools(t, w, nil, manyTools(w)[from:]...)
		w.script(say("done"))
		run(t, w, above(bytes))
		equal(t, "shown", len(w.requests[0].Tools), 41)
	}
}

// In a session, the tools that were called before are shown from the start.
func TestFindTools_CalledBeforeInTheSession(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	withTools(t, w, nil, manyTools(w)...)
	w.script(calls("srv__tides", `{}`), say("done"))
	first := run(t, w, above(1000))
	run(t, w, above(1000), func(k *agent.Task) { k.History = first.Messages })
	equal(t, "shown", w.shownIn()[2], "find_tools zeta srv__tides")
}

// The tokens of tools that were found since the last report are counted (N11).
func TestFindTools_EstimateGrows(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	withTools(t, w, nil, manyTools(w)...)
	w.script(calls("find_tools", `{"query":"something"}`), say("done"))
	s := run(t, w, above(1000))
	grown := 0
	for _, spec := range w.requests[1].Tools[len(w.requests[0].Tools):] {
		grown += len(spec.Name) + len(spec.Description)
	}
	var reserved []int64
	for _, e := range w.events(t, s.Run) {
		if b, ok := e.Body.(*journal.ModelRequest); ok {
			reserved = append(reserved, b.ReservedInput)
		}
	}
	if grown < 800 || len(reserved) != 2 || reserved[0] > 300 || reserved[1] < 100+int64(grown)/4 {
		t.Errorf("%d bytes of tools were found, and %d tokens were reserved", grown, reserved)
	}
}
