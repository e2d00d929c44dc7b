package gate_test

import (
	"context"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
)

// Names of agents may have dots, even in grants (N18).
func TestN18_GrantsOfAgentsWithDots(t *testing.T) {
	g, err := gate.New(gate.Options{Availability: gate.Overrides{}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		grant, agent string
		may          bool
	}{
		{"agent:review.v2", "review.v2", true},
		{"agent:review.*", "review.v2", true},
		{"agent:review.v2", "review_v2", false},
		{"agent:review_v2", "review.v2", false},
		{"agent:review/v2", "review/v2", false},
		{"agent:*", "review.v2", false},
		{"agent:-", "review.v2", false},
		{"agent:", "review.v2", false},
	} {
		refused, err := g.MayRun(context.Background(), toolcrib.Principal{User: "ann", Grants: []string{tt.grant}}, tt.agent)
		if err != nil || (refused == "") != tt.may {
			t.Errorf("%s, agent %s: %q (%v)", tt.grant, tt.agent, refused, err)
		}
	}
}
