package nodes_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/bus"
	"github.com/toolcrib/toolcrib/internal/natstest"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/nodes"
	"github.com/toolcrib/toolcrib/store"
)

func setTrust(t *testing.T, of *service.Service, in *nodes.Instance, level toolcrib.Trust, name string) {
	t.Helper()
	if _, err := of.Nodes.SetTrust(t.Context(), root, in.Key(), level, name); err != nil {
		t.Fatal(err)
	}
}

// A call in flight ends when any node on its way loses the trust that it needs, also with a token, and when its token
// is revoked.
func TestH19_TrustOfAllOnTheWay(t *testing.T) {
	c := natstest.Start(t, 1, nil)
	a, node := serve(t, c.URL(), "alpha")
	b, middle := serve(t, c.URL(), "beta")
	_, origin := serve(t, c.URL(), "gamma")
	began, ended := make(chan struct{}, 1), make(chan error, 1)
	err := node.Offer(bus.Descriptor{Name: parse(t, "test.wait@1.0"), Timeout: time.Minute, Trust: toolcrib.TrustTrusted}, nil,
		func(ctx context.Context, _ toolcrib.Principal, _ *bus.Exchange) (json.RawMessage, error) {
			began <- struct{}{}
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return nil, context.Cause(ctx)
		})
	if err != nil {
		t.Fatal(err)
	}
	q := bus.Request{Name: parse(t, "test.wait@1.0"), To: node.Key(), Timeout: time.Minute}
	err = middle.Offer(bus.Descriptor{Name: parse(t, "test.pass@1.0"), Timeout: time.Minute}, nil,
		func(ctx context.Context, _ toolcrib.Principal, x *bus.Exchange) (json.RawMessage, error) {
			q := q
			q.Via = x
			return middle.Call(ctx, q)
		})
	if err != nil {
		t.Fatal(err)
	}
	tok, err := a.Nodes.IssueToken(t.Context(), root, nodes.TokenRequest{For: "*", Capabilities: []string{"test.wait@1.0"}})
	if err != nil {
		t.Fatal(err)
	}
	byToken := q
	byToken.Token = tok.Token.Token
	for _, tt := range []struct {
		what string
		from *nodes.Instance
		call bus.Request
		end  func()
		code toolcrib.Code
	}{
		{
			"the origin is a member", origin,
			bus.Request{Name: parse(t, "test.pass@1.0"), To: middle.Key(), Timeout: time.Minute},
			func() { setTrust(t, a, origin, toolcrib.TrustMember, "") }, toolcrib.CodeRevoked,
		},
		{
			"the caller with a token is a member", middle, byToken,
			func() { setTrust(t, a, middle, toolcrib.TrustMember, "") }, toolcrib.CodeRevoked,
		},
		{
			"the token is revoked", middle, byToken, func() {
				if _, _, err := a.Nodes.RevokeToken(t.Context(), root, tok.ID); err != nil {
					t.Fatal(err)
				}
			}, toolcrib.CodeTokenRevoked,
		},
	} {
		for _, of := range []*service.Service{a, b} {
			for name, in := range map[string]*nodes.Instance{"beta": middle, "gamma": origin} {
				if of != b || in != middle {
					setTrust(t, of, in, toolcrib.TrustTrusted, name)
				}
			}
		}
		waittest.Until(t, "the nodes are heard of", func() bool {
			return len(tt.from.Peers()) == 2 && len(middle.Peers()) == 2
		})
		x, err := tt.from.Open(t.Context(), tt.call)
		if err != nil {
			t.Fatal(tt.what, err)
		}
		select {
		case <-began:
		case <-time.After(20 * time.Second):
			x.Cancel()
			_, err := x.Result(t.Context())
			t.Fatal(tt.what, err)
		}
		tt.end()
		select {
		case err := <-ended:
			wants(t, tt.what, err, tt.code)
		case <-time.After(10 * time.Second):
			t.Errorf("%s: the call does not end", tt.what)
			x.Cancel()
			<-ended
		}
		x.Cancel()
	}
}

// A run that continues later has the current trust of the node.
func TestH19_TrustOfToday(t *testing.T) {
	c := natstest.Start(t, 1, nil)
	a, _ := serve(t, c.URL(), "alpha")
	_, other := serve(t, c.URL(), "beta")
	setTrust(t, a, other, toolcrib.TrustMember, "beta")
	for was, want := range map[toolcrib.Trust]toolcrib.Trust{
		toolcrib.TrustAnchor: toolcrib.TrustMember, toolcrib.TrustMember: toolcrib.TrustMember,
	} {
		now, err := a.People.Standing().Standing(t.Context(), toolcrib.Principal{User: "node:beta:anna", Trust: was})
		if err != nil || now.Refused != "" || now.Principal.Trust != want {
			t.Errorf("%s became %+v, %v", was, now, err)
		}
	}
}

// No node but the issuer of a token gets it.
func TestM16_TokenGoesToItsIssuer(t *testing.T) {
	c := natstest.Start(t, 1, nil)
	a, node := serve(t, c.URL(), "alpha")
	b, caller := serve(t, c.URL(), "beta")
	other, third := serve(t, c.URL(), "gamma")
	echo(t, node, "test.echo@1.0", "")
	echo(t, third, "test.echo@1.0", "")
	setTrust(t, other, caller, toolcrib.TrustMember, "beta")
	setTrust(t, b, third, toolcrib.TrustMember, "gamma")
	tok, err := a.Nodes.IssueToken(t.Context(), root, nodes.TokenRequest{For: "*", Capabilities: []string{"test.echo@1.0"}})
	if err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the nodes are heard of", func() bool { return len(caller.Peers()) == 2 && len(caller.Known()) == 1 })
	q := nodes.CallRequest{Request: bus.Request{Name: parse(t, "test.echo@1.0"), Token: tok.Token.Token}}
	out, err := b.BusCall(t.Context(), root, q)
	var who toolcrib.Principal
	if err == nil {
		err = json.Unmarshal(out, &who)
	}
	if err != nil || who.Token != tok.ID {
		t.Errorf("without a node: %+v, %v", who, err)
	}
	q.Node = "gamma"
	_, err = b.BusCall(t.Context(), root, q)
	wants(t, "to another node", err, toolcrib.CodeBadRequest)
}

// interrupted is a store in which something else happens before the next change of a file.
type interrupted struct {
	store.Store
	before func()
}

func (s *interrupted) ChangeFile(ctx context.Context, name string, change func([]byte) ([]byte, error)) error {
	if before := s.before; before != nil {
		s.before = nil
		before()
	}
	return s.Store.ChangeFile(ctx, name, change)
}

// A change of trust does not undo one that was made meanwhile.
func TestRegister_ChangedMeanwhile(t *testing.T) {
	s := open(t, t.TempDir(), "", "alone")
	keys, err := bus.NewKeys(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	set := func(level toolcrib.Trust) error {
		_, err := s.Nodes.SetTrust(t.Context(), root, keys.Public(), level, "")
		return err
	}
	if err := set(toolcrib.TrustMember); err != nil {
		t.Fatal(err)
	}
	s.Env.Store = &interrupted{s.Env.Store, func() {
		if err := set(toolcrib.TrustUnknown); err != nil {
			t.Error(err)
		}
	}}
	wants(t, "a change of an entry that was removed meanwhile", set(toolcrib.TrustTrusted), toolcrib.CodeConflict)
	if trust, err := s.Nodes.TrustOf(t.Context(), keys.Public()); err != nil || trust != toolcrib.TrustUnknown {
		t.Errorf("the node is trusted as %q, %v", trust, err)
	}
}
