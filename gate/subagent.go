package gate

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
)

// A subtask is given to another agent by a tool that an agent answers
// ([toolcrib.ByAgent]): the call becomes a run of its own, each call of which passes
// the gate again, with a [Scope] that is within that of the run which made the call.

// Subtask is what such a call asks for.
type Subtask struct {
	Agent string   `json:"agent"`
	Task  string   `json:"task"`
	Tools []string `json:"tools"` // names and globs; null = no restriction, [] = no tools
}

// ReadSubtask reads the arguments of such a call. What cannot be read is empty, and
// restricts to nothing.
func ReadSubtask(arguments json.RawMessage) Subtask {
	t, err := readSubtask(arguments)
	if err != nil {
		return Subtask{Tools: []string{}}
	}
	return t
}

// readSubtask takes the names of the members as they are: encoding/json would take
// AGENT for agent, and the schema of the tool would not.
func readSubtask(arguments json.RawMessage) (t Subtask, err error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(arguments, &members); err != nil {
		return Subtask{}, err
	}
	for name, into := range map[string]any{"agent": &t.Agent, "task": &t.Task, "tools": &t.Tools} {
		if raw, ok := members[name]; ok {
			if err := json.Unmarshal(raw, into); err != nil {
				return Subtask{}, err
			}
		}
	}
	return t, nil
}

// subtaskStep refuses a subtask that is none, whatever the schema of the tool says.
func (j *judgement) subtaskStep(arguments json.RawMessage) *refusal {
	if !j.entry.byAgent() {
		return nil
	}
	t, err := readSubtask(arguments)
	switch {
	case err != nil:
		return invalid(schemaError{Expected: "agent and task as texts, tools as an array of texts or null", Got: "something else"})
	case strings.TrimSpace(t.Agent) == "":
		return invalid(schemaError{Path: "/agent", Expected: "the name of an agent", Got: "nothing"})
	case strings.TrimSpace(t.Task) == "":
		return invalid(schemaError{Path: "/task", Expected: "a text that says what to do", Got: "nothing"})
	}
	return nil
}

// targetAgent makes the agent that a subtask is for one of the call's targets, should
// the tool not tell it: whoever may not use the agent must not reach it through a tool.
func (j *judgement) targetAgent() {
	if !j.entry.byAgent() {
		return
	}
	agent := toolcrib.Target{Kind: toolcrib.TargetAgent, Name: ReadSubtask(j.call.Arguments).Agent}
	told := slices.ContainsFunc(j.targets, func(t toolcrib.Target) bool { return t.Kind == agent.Kind && t.Name == agent.Name })
	if !told {
		j.targets = append(j.targets, agent)
	}
}

// shareStep refuses a subtask for which the run's budget has no part left.
func (j *judgement) shareStep() *refusal {
	if !j.entry.byAgent() || j.facts.Share == nil {
		return nil
	}
	if why := j.facts.Share(j.asked.ID); why != "" {
		return noShare(why)
	}
	return nil
}

// byAgent tells whether another agent answers the calls of the tool.
func (e *entry) byAgent() bool { return e.spec.AnsweredBy == toolcrib.ByAgent }

// nested tells whether the tool calls tools or agents.
func (e *entry) nested() bool { return e.spec.Nested || e.byAgent() }

// tooDeep tells whether a run of this scope is too deep for calls of the tool.
func (e *entry) tooDeep(s *Scope) bool {
	return s.Depth > s.MaxDepth || e.nested() && s.Depth >= s.MaxDepth
}
