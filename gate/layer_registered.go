package gate

import "github.com/toolcrib/toolcrib"

// registered refuses what is no tool (N4).
type registered struct{}

func (registered) Reason() toolcrib.Reason { return toolcrib.ReasonNotRegistered }

func (registered) Judge(q Query) Answer {
	if q.Spec == nil {
		return unknownTool()
	}
	return allowed("registered")
}
