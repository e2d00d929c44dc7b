package journal

import "encoding/json"

// Subtask is the request of a call that another agent answers ([toolcrib.ByAgent]).
type Subtask struct {
	Agent string   `json:"agent"`
	Task  string   `json:"task"`
	Tools []string `json:"tools"` // names and globs; null means no restriction, [] no tools
}

// ReadSubtask reads the arguments of such a call. With an error, the subtask allows no tools. The names
// are compared exactly, like in the schema of the tool: encoding/json would accept AGENT for agent.
func ReadSubtask(arguments json.RawMessage) (Subtask, error) {
	var t Subtask
	var members map[string]json.RawMessage
	err := json.Unmarshal(arguments, &members)
	for name, into := range map[string]any{"agent": &t.Agent, "task": &t.Task, "tools": &t.Tools} {
		if raw, ok := members[name]; ok && err == nil {
			err = json.Unmarshal(raw, into)
		}
	}
	if err != nil {
		return Subtask{Tools: []string{}}, err
	}
	return t, nil
}
