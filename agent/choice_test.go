package agent_test

import (
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/gate"
)

// H13, H14: a demanded call that is missing is reported for every provider, and requested once more;
// then the answer is final.
func TestH14_ChoiceIgnored(t *testing.T) {
	required, named := toolcrib.ToolChoice{Mode: toolcrib.ChoiceRequired}, toolcrib.ToolChoice{Mode: toolcrib.ChoiceName, Name: "echo"}
	for name, c := range map[string]struct {
		choice            toolcrib.ToolChoice
		replies           [][]toolcrib.Delta
		requests, notices int
		iterations        int
		content           string
	}{
		"never":        {required, [][]toolcrib.Delta{say("no"), say("no, no")}, 2, 2, 20, "no, no"},
		"at last":      {required, [][]toolcrib.Delta{say("no"), calls("echo", `{}`), say("done")}, 3, 1, 20, "done"},
		"named":        {named, [][]toolcrib.Delta{say("no"), calls("echo", `{}`), say("done")}, 3, 1, 20, "done"},
		"another":      {named, [][]toolcrib.Delta{calls("fail", `{}`), say("done")}, 2, 1, 20, "done"},
		"no round":     {required, [][]toolcrib.Delta{say("no")}, 1, 1, 1, "no"},
		"as it should": {required, [][]toolcrib.Delta{calls("echo", `{}`), say("done")}, 2, 0, 20, "done"},
		"auto":         {toolcrib.ToolChoice{Mode: toolcrib.ChoiceAuto}, [][]toolcrib.Delta{say("no")}, 1, 0, 20, "no"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, gate.ConfirmNever)
			w.script(c.replies...)
			s := run(t, w, func(k *agent.Task) { k.Agent.ToolChoice, k.Agent.Limits.MaxIterations = c.choice, c.iterations })
			equal(t, "content", s.Done.Content, c.content)
			equal(t, "requests", len(w.requests), c.requests)
			equal(t, "notices", countNotices(w, core.NoticeChoiceIgnored), c.notices)
			if c.requests > 1 && c.notices > 0 && name != "another" {
				again := w.requests[1]
				equal(t, "demanded again", again.ToolChoice, c.choice)
				last := again.Messages[len(again.Messages)-1]
				equal(t, "in words", last.Role, toolcrib.RoleUser)
			}
			for _, later := range w.requests[min(2, len(w.requests)):] {
				equal(t, "later", later.ToolChoice.Mode, "")
			}
		})
	}
}
