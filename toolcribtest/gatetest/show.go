package gatetest

import (
	"encoding/json"

	"github.com/toolcrib/toolcrib/gate"
)

// show writes a query out for a failure's message.
func show(q gate.Query) string {
	b, err := json.Marshal(q)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
