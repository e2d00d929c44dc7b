package cli_test

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"

	"github.com/toolcrib/toolcrib"
)

// An agent that is called by another plays a script of its own, and its run is held
// against what the case says of it, by its journal and by tools explain --run.

// callsBelow are all calls of the agents that are called.
func (r *gateRun) callsBelow() []gateCall {
	var all []gateCall
	for _, name := range slices.Sorted(maps.Keys(r.Below)) {
		all = append(all, callsOf(r.Below[name])...)
	}
	return all
}

// agentsBelow notes the agents of the case that are called.
func (h *gateHouse) agentsBelow() {
	h.below = make(map[string]bool)
	for _, run := range append(slices.Clone(h.c.Earlier), h.c.Main) {
		for name := range run.Below {
			h.below[name] = true
		}
	}
}

func (h *gateHouse) scriptOf(agent string) string {
	return filepath.Join(h.root, "conf", "of_"+agent+".script")
}

// scriptsBelow puts the replies of the agents where their models take them from.
func (h *gateHouse) scriptsBelow(r *gateRun) {
	h.t.Helper()
	for name := range h.below {
		data, err := script(r.Below[name])
		if err != nil {
			h.t.Fatal(err)
		}
		h.put(h.scriptOf(name), string(data))
	}
}

// runsBelow holds the runs below the last one against what the case says of their
// agents: each agent that it names has run.
func (h *gateHouse) runsBelow(r *gateRun) {
	h.t.Helper()
	if len(r.Below) == 0 {
		return
	}
	administrator := *h
	administrator.as, administrator.token = "", ""
	var top struct {
		ID string `json:"id"`
	}
	administrator.read(&top, "runs", "show", "last", "--json")
	ran := make(map[string]bool)
	const mostBelow = 64
	for above := []string{top.ID}; len(above) > 0 && len(ran) < mostBelow; above = above[1:] {
		var runs []struct{ ID, Agent string }
		administrator.read(&runs, "runs", "list", "--json", "--parent", above[0])
		for _, run := range runs {
			above = append(above, run.ID)
			if turns, named := r.Below[run.Agent]; named {
				ran[run.Agent] = true
				told := administrator.journal(run.ID)
				told.compare(h.t, callsOf(turns))
				administrator.explainBelow(run.ID, callsOf(turns))
			}
		}
	}
	for name := range r.Below {
		if !ran[name] {
			h.t.Errorf("agent %s was not called", name)
		}
	}
}

// explainBelow asks tools explain about the calls of a run that were refused: the
// reasons that hold for any call of it must be the same.
func (h *gateHouse) explainBelow(run string, calls []gateCall) {
	h.t.Helper()
	lasting := []toolcrib.Reason{
		toolcrib.ReasonWorkerAllowlist, toolcrib.ReasonDepthExceeded, toolcrib.ReasonNotPermitted, toolcrib.ReasonAgentAllowlist,
		toolcrib.ReasonSkillAllowlist, toolcrib.ReasonRunAllowlist, toolcrib.ReasonReadOnlyMode, toolcrib.ReasonToolDisabled,
	}
	for i := range calls {
		call := &calls[i]
		if !slices.Contains(lasting, toolcrib.Reason(call.Want.Reason)) {
			continue
		}
		var all []struct {
			Call struct {
				Verdict struct{ Decision, Reason string } `json:"verdict"`
				Content json.RawMessage                   `json:"content"`
			} `json:"call"`
		}
		h.read(&all, "tools", "explain", "--run", run, call.Name, "--json", "--args", call.arguments())
		have := gateAnswer{Decision: all[0].Call.Verdict.Decision, Reason: all[0].Call.Verdict.Reason}
		if have.String() != call.Want.String() {
			h.t.Errorf("explain --run of %s: %s, want %s: %s", call.Name, have, call.Want, all[0].Call.Content)
		}
	}
}
