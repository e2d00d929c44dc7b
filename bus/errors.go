package bus

import "strings"

// Alternatives is the cause of some errors with the code not_found or schema_mismatch: what could be called instead.
type Alternatives struct {
	Capabilities []string // of the same name, in other versions
	Nodes        []Key    // that have the capability
	SchemaHash   string   // of the capability as it is offered
}

func (a *Alternatives) Error() string {
	return "alternatives: " + strings.Join(a.Capabilities, ", ") + " " + a.SchemaHash
}
