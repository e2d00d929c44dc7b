package gate

import "encoding/json"

// Subtask is what a call that another agent answers asks for ([toolcrib.ByAgent]).
type Subtask struct {
	Agent string   `json:"agent"`
	Task  string   `json:"task"`
	Tools []string `json:"tools"` // names and globs; null = no restriction, [] = no tools
}

// ReadSubtask reads the arguments of such a call. What cannot be read is empty, and
// restricts to nothing.
func ReadSubtask(arguments json.RawMessage) Subtask {
	var t Subtask
	if err := json.Unmarshal(arguments, &t); err != nil {
		return Subtask{Tools: []string{}}
	}
	return t
}
