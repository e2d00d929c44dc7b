package cli

import (
	"context"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/remote"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/policy"
)

// agentIs is what knows one agent.
type agentIs struct {
	backend
	def toolcrib.Agent
}

func (a agentIs) Ready(context.Context, toolcrib.Principal, service.StartRequest) (toolcrib.Agent, error) {
	return a.def, nil
}

// Here a model that was found holds for a whole conversation. A server may get another configuration: its
// agent has the model that it has by then.
func TestReady_Model(t *testing.T) {
	known := agentIs{def: toolcrib.Agent{Name: "default", Model: "demo/x"}}
	for _, c := range []struct {
		a          *app
		told, want string
	}{
		{&app{api: known}, "", "demo/x"},
		{&app{api: known, remote: &remote.Service{}}, "", ""},
		{&app{api: known, remote: &remote.Service{}}, "demo/y", "demo/y"},
	} {
		r := service.StartRequest{Change: policy.Change{Model: c.told}}
		if _, err := c.a.ready(t.Context(), toolcrib.Principal{}, &r); err != nil || r.Model != c.want {
			t.Errorf("remote %t, told %q: %q, %v", c.a.remote != nil, c.told, r.Model, err)
		}
	}
}
