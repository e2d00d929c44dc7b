package standing_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/access/standing"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/toolcribtest"
)

// withNodes returns a directory whose node other may do something, until it is removed.
func withNodes(t *testing.T, removed *bool) (*world, *gate.Gate) {
	t.Helper()
	w := newWorld(t)
	var err error
	w.people, err = standing.New(standing.Options{
		Source: w.counted, Now: func() time.Time { return w.now },
		Node: func(_ context.Context, who toolcrib.Principal) (toolcrib.Trust, string, error) {
			if who.User == "node:other" && !*removed || who.Token != "" {
				return who.Trust, "", nil
			}
			return "", "the node is not trusted", nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var tools []toolcrib.Tool
	for _, name := range []string{"read_file", "write_file"} {
		spec := toolcrib.Spec{Name: name, Effect: toolcrib.EffectReadOnly, EnabledByDefault: true, Source: "go"}
		tools = append(tools, toolcribtest.NewTool(toolcribtest.ToolOptions{Spec: spec}))
	}
	spec := toolcrib.Spec{Name: "get_env", Effect: toolcrib.EffectReadOnly, EnabledByDefault: true, Source: "go", RequiresAdmin: true}
	tools = append(tools, toolcribtest.NewTool(toolcribtest.ToolOptions{Spec: spec}))
	g, err := gate.New(gate.Options{Tools: tools, Availability: always{}, People: w.people})
	if err != nil {
		t.Fatal(err)
	}
	return w, g
}

// allowed returns the tools of which a principal may make a call.
func allowed(t *testing.T, g *gate.Gate, who toolcrib.Principal) (tools []string) {
	t.Helper()
	scope := gate.Scope{Agent: "default", MaxCalls: 64, MaxDepth: 1}
	offer, err := g.Offer(t.Context(), who, scope)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range []string{"read_file", "write_file", "get_env"} {
		v := g.Judge(t.Context(), who, scope, gate.Facts{Offered: offer.Set()},
			[]toolcrib.ToolCall{{ID: "c", Name: tool, Arguments: json.RawMessage(`{}`)}})[0]
		if !v.Refused() {
			tools = append(tools, tool)
		}
	}
	return tools
}

// A node has its grants only, whatever its principal says, and nothing once it is removed.
func TestH19_NodeAtTheGate(t *testing.T) {
	removed := false
	_, g := withNodes(t, &removed)
	for what, tt := range map[string]struct {
		who  toolcrib.Principal
		want []string
	}{
		"one grant":        {toolcrib.Principal{User: "node:other", Grants: []string{"read_file"}}, []string{"read_file"}},
		"no restriction":   {toolcrib.Principal{User: "node:other"}, nil},
		"an administrator": {toolcrib.Principal{User: "node:other", Admin: true, Grants: []string{"get_env"}}, nil},
		"unknown":          {toolcrib.Principal{User: "node:~key", Grants: []string{"read_file"}}, nil},
	} {
		if got := allowed(t, g, tt.who); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v may be called, want %v", what, got, tt.want)
		}
	}
	removed = true
	if got := allowed(t, g, toolcrib.Principal{User: "node:other", Grants: []string{"read_file"}}); got != nil {
		t.Errorf("the removed node may call %v", got)
	}
}

func TestH19_TokenOfTheBusAtTheGate(t *testing.T) {
	removed := false
	w, g := withNodes(t, &removed)
	signer, err := access.NewSigner([]byte(strings.Repeat("s", 32)))
	if err != nil {
		t.Fatal(err)
	}
	issue := func(audience string) string {
		r := access.Request{
			By: toolcrib.Principal{User: by, Admin: true}, Issuer: "us", Subject: "them", Audience: audience, Via: "cli", TTL: time.Hour,
			Scope: access.Scope{Capabilities: []string{"rag.query@1.0"}, MaxCalls: 1},
		}
		_, claims, err := signer.Issue(r, w.now)
		if err == nil {
			_, err = w.AddToken(t.Context(), access.Issued{Claims: claims}, by)
		}
		if err != nil {
			t.Fatal(err)
		}
		return claims.ID
	}
	id := issue(access.BusAudience)
	node := toolcrib.Principal{User: "node:~key", Token: id, Grants: []string{"read_file"}}
	for range 3 { // the calls of a capability are counted, not those that serve it
		if got := allowed(t, g, node); !slices.Equal(got, []string{"read_file"}) {
			t.Fatalf("by the token %v may be called", got)
		}
	}
	if got := allowed(t, g, toolcrib.Principal{User: "them", Token: id}); got != nil {
		t.Errorf("a user may call %v by a token for the bus", got)
	}
	if got := allowed(t, g, toolcrib.Principal{User: "node:other", Token: issue(access.DefaultAudience), Grants: []string{"read_file"}}); got != nil {
		t.Errorf("a node may call %v by an access token", got)
	}
	if _, err := w.RevokeToken(t.Context(), id, by); err != nil {
		t.Fatal(err)
	}
	if got := allowed(t, g, node); got != nil {
		t.Errorf("by the revoked token %v may be called", got)
	}
	id = issue(access.BusAudience)
	w.now = w.now.Add(time.Hour)
	if got := allowed(t, g, toolcrib.Principal{User: "node:~key", Token: id, Grants: []string{"read_file"}}); got != nil {
		t.Errorf("by the expired token %v may be called", got)
	}
}
