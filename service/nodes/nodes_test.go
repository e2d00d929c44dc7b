package nodes_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/bus"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/natstest"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/nodes"
	"github.com/toolcrib/toolcrib/store"
)

var root = toolcrib.Principal{User: "local:test", Admin: true}

// open opens a data folder on a bus.
func open(t *testing.T, dir, url, name string) *service.Service {
	t.Helper()
	c, err := config.Parse("toolcrib.yaml", fmt.Appendf(nil, "bus: {url: %q, name: %q}", url, name))
	if err != nil {
		t.Fatal(err)
	}
	s := service.New(env.Options{DataDir: filepath.Join(dir, "data"), Config: c})
	if err := s.Env.OpenFor(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// serve opens a data folder, and starts its node as a server does.
func serve(t *testing.T, url, name string) (*service.Service, *nodes.Instance) {
	t.Helper()
	s := open(t, t.TempDir(), url, name)
	p, err := s.NewPool(slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return s, p.Node()
}

func parse(t *testing.T, text string) bus.Name {
	t.Helper()
	name, err := bus.ParseName(text)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// echo offers a capability that returns whom it acts for.
func echo(t *testing.T, i *nodes.Instance, name string, trust toolcrib.Trust) {
	t.Helper()
	err := i.Offer(bus.Descriptor{Name: parse(t, name), Trust: trust}, []string{"read_file"},
		func(_ context.Context, who toolcrib.Principal, _ *bus.Exchange) (json.RawMessage, error) {
			return json.Marshal(who)
		})
	if err != nil {
		t.Fatal(err)
	}
}

// called calls a capability of a node that was heard of.
func called(t *testing.T, from, to *nodes.Instance, r bus.Request) (who toolcrib.Principal, err error) {
	t.Helper()
	waittest.Until(t, "the node is heard of", func() bool {
		return from.Key() == to.Key() || slices.ContainsFunc(from.Peers(), func(p bus.Peer) bool { return p.Node == to.Key() })
	})
	r.To = to.Key()
	out, err := from.Call(t.Context(), r)
	if err == nil {
		err = json.Unmarshal(out, &who)
	}
	return who, err
}

func wants(t *testing.T, what string, err error, code toolcrib.Code) {
	t.Helper()
	if toolcrib.CodeOf(err) != code {
		t.Errorf("%s: %v, want %q", what, err, code)
	}
}

func audited(t *testing.T, s *service.Service, kind toolcrib.Kind) (payloads []string) {
	t.Helper()
	page, err := s.People.Audit(t.Context(), root, store.AuditFilter{Kinds: []toolcrib.Kind{kind}, OldestFirst: true}, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range page.Entries {
		payloads = append(payloads, string(e.Payload))
	}
	return payloads
}

// An invite is the only thing that two nodes need for a first call beside the bus: it works once, for one node.
func TestM16_Invite(t *testing.T) {
	c := natstest.Start(t, 1, nil)
	a, node := serve(t, c.URL(), "alpha")
	echo(t, node, "test.echo@1.0", toolcrib.TrustTrusted)
	b := open(t, t.TempDir(), c.URL(), "Beta.s_Laptop")
	v, err := a.Nodes.Invite(t.Context(), root, nodes.InviteRequest{Trust: toolcrib.TrustTrusted, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	stored, err := a.Env.Store.FilesIn(t.Context(), env.InvitesFolder)
	if err != nil || len(stored) != 1 {
		t.Fatal(stored, err)
	}
	secret := v.Code[strings.LastIndex(v.Code, ".")+1:]
	for name, content := range stored {
		if strings.Contains(name+string(content), secret) {
			t.Error("the secret is stored")
		}
	}
	e, theirs, err := b.JoinNode(t.Context(), root, v.Code, toolcrib.TrustMember)
	if err != nil || theirs != "trusted" || e.Name != "alpha" || e.Trust != toolcrib.TrustMember || e.Key != node.Key() {
		t.Fatalf("%+v, trusted as %q, %v", e, theirs, err)
	}
	register, err := a.Nodes.Register(t.Context())
	if err != nil || len(register) != 1 || register[0].Name != "beta-s-laptop" || register[0].Trust != toolcrib.TrustTrusted ||
		register[0].Invite != v.ID || register[0].By != root.User {
		t.Fatalf("%+v, %v", register, err)
	}
	out, err := b.BusCall(t.Context(), root, nodes.CallRequest{Request: bus.Request{Name: parse(t, "test.echo@1.0")}})
	var who toolcrib.Principal
	if err == nil {
		err = json.Unmarshal(out, &who)
	}
	if err != nil || who.User != "node:beta-s-laptop:local:test" || who.Trust != toolcrib.TrustTrusted || who.Admin ||
		!slices.Equal(who.Grants, []string{"read_file"}) || who.Token != "" {
		t.Errorf("the call acts for %+v, %v", who, err)
	}

	if _, _, err := b.JoinNode(t.Context(), root, v.Code, toolcrib.TrustMember); err != nil {
		t.Errorf("again by the same node: %v", err)
	}
	// An invite that was used does not return the trust that an administrator has withdrawn.
	if _, err := a.Nodes.SetTrust(t.Context(), root, register[0].Key, toolcrib.TrustMember, ""); err != nil {
		t.Fatal(err)
	}
	if _, theirs, err := b.JoinNode(t.Context(), root, v.Code, toolcrib.TrustMember); err != nil || theirs != "member" {
		t.Errorf("again after its trust was lowered: trusted as %q, %v", theirs, err)
	}
	third := open(t, t.TempDir(), c.URL(), "third")
	_, _, err = third.JoinNode(t.Context(), root, v.Code, toolcrib.TrustMember)
	if wants(t, "by another node", err, toolcrib.CodeConflict); err == nil || !strings.Contains(err.Error(), "used already") {
		t.Errorf("by another node: %v", err)
	}
	if left, err := third.Nodes.Register(t.Context()); err != nil || len(left) != 0 {
		t.Errorf("the refused node trusts %v, %v", left, err)
	}
	if got := audited(t, a, access.NodeTrusted); len(got) != 2 || !strings.Contains(got[0], `"was":"unknown"`) ||
		!strings.Contains(got[0], v.ID) || strings.Contains(got[0], secret) {
		t.Errorf("audited %v", got)
	}
	if got := audited(t, a, access.NodeInvited); len(got) != 1 || !strings.Contains(got[0], v.ID) {
		t.Errorf("audited %v", got)
	}
}

func TestM16_InviteRefused(t *testing.T) {
	c := natstest.Start(t, 1, nil)
	a, _ := serve(t, c.URL(), "alpha")
	b := open(t, t.TempDir(), c.URL(), "beta")
	invite := func(ttl time.Duration) nodes.Invite {
		v, err := a.Nodes.Invite(t.Context(), root, nodes.InviteRequest{TTL: ttl})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	join := func(code string) error {
		_, _, err := b.JoinNode(t.Context(), root, code, toolcrib.TrustMember)
		return err
	}
	short := invite(time.Second)
	waittest.Until(t, "the invite has expired", func() bool { return !a.People.Now().Before(short.Expires) })
	wants(t, "expired", join(short.Code), toolcrib.CodeExpired)
	revoked := invite(time.Hour)
	if _, err := a.Nodes.RevokeInvite(t.Context(), root, revoked.ID[:9]); err != nil {
		t.Fatal(err)
	}
	wants(t, "revoked", join(revoked.Code), toolcrib.CodeUnauthorized)
	good := invite(time.Hour)
	key, secret, err := nodes.ReadInvite(good.Code)
	if err != nil {
		t.Fatal(err)
	}
	for what, code := range map[string]string{
		"cut": good.Code[:len(good.Code)-1], "no prefix": string(key) + "." + secret, "a key": string(key), "empty": "",
		"lower case": nodes.InvitePrefix + string(key) + "." + strings.ToLower(secret),
	} {
		wants(t, what, join(code), toolcrib.CodeBadRequest)
	}
	_, _, err = a.JoinNode(t.Context(), root, good.Code, toolcrib.TrustMember)
	wants(t, "its own", err, toolcrib.CodeBadRequest)
	alone := open(t, t.TempDir(), "", "alone")
	_, _, err = alone.JoinNode(t.Context(), root, good.Code, toolcrib.TrustMember)
	if wants(t, "without a bus", err, toolcrib.CodeBadRequest); err == nil || !strings.Contains(err.Error(), "bus.url") {
		t.Errorf("without a bus: %v", err)
	}
	for _, who := range []toolcrib.Principal{{User: "anna"}, {User: "boss", Admin: true, Token: "tok_1"}} {
		_, err := a.Nodes.Invite(t.Context(), who, nodes.InviteRequest{})
		wants(t, who.User, err, toolcrib.CodeForbidden)
	}
	wrong := nodes.InvitePrefix + string(key) + "." + strings.Repeat("A", len(secret))
	wants(t, "a guess", join(wrong), toolcrib.CodeUnauthorized)
	if left, err := a.Nodes.Register(t.Context()); err != nil || len(left) != 0 {
		t.Errorf("registered %v, %v", left, err)
	}
}

// A change of trust reaches the other servers of the node within a second, and removing a node ends its calls in flight.
func TestH19_TrustIsWithdrawn(t *testing.T) {
	c := natstest.Start(t, 1, nil)
	a, node := serve(t, c.URL(), "alpha")
	b, other := serve(t, c.URL(), "beta")
	began, ended := make(chan struct{}, 1), make(chan error, 1)
	err := node.Offer(bus.Descriptor{Name: parse(t, "test.wait@1.0"), Timeout: time.Minute}, nil,
		func(ctx context.Context, _ toolcrib.Principal, _ *bus.Exchange) (json.RawMessage, error) {
			began <- struct{}{}
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return nil, context.Cause(ctx)
		})
	if err != nil {
		t.Fatal(err)
	}
	echo(t, node, "test.echo@1.0", "")
	trust := func(level toolcrib.Trust) {
		t.Helper()
		// Another process of the data folder changes the register.
		command := service.New(a.Env.Options)
		if err := command.Env.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer command.Close()
		if _, err := command.Nodes.SetTrust(t.Context(), root, other.Key(), level, ""); err != nil {
			t.Fatal(err)
		}
	}
	_, err = called(t, other, node, bus.Request{Name: parse(t, "test.echo@1.0")})
	wants(t, "an unknown node", err, toolcrib.CodeUnauthorized)
	trust(toolcrib.TrustMember)
	waittest.Until(t, "the node is trusted", func() bool {
		_, err = called(t, other, node, bus.Request{Name: parse(t, "test.echo@1.0")})
		return err == nil
	})
	x, err := other.Open(t.Context(), bus.Request{Name: parse(t, "test.wait@1.0"), To: node.Key()})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Cancel()
	<-began
	trust(toolcrib.TrustUnknown)
	start := time.Now()
	wants(t, "the call in flight", <-ended, toolcrib.CodeRevoked)
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
	_, err = x.Result(t.Context())
	wants(t, "the caller", err, toolcrib.CodeRevoked)
	_, err = called(t, other, node, bus.Request{Name: parse(t, "test.echo@1.0")})
	wants(t, "a removed node", err, toolcrib.CodeUnauthorized)
	if got := audited(t, a, access.NodeTrusted); len(got) != 2 || !strings.Contains(got[1], `"trust":"unknown","was":"member"`) {
		t.Errorf("audited %v", got)
	}
	_ = b
}

// The error map of M16 at the door of a node.
func TestM16_TokensAtTheDoor(t *testing.T) {
	c := natstest.Start(t, 1, nil)
	a, node := serve(t, c.URL(), "alpha")
	_, other := serve(t, c.URL(), "beta")
	b2, third := serve(t, c.URL(), "gamma")
	echo(t, node, "test.echo@1.0", "")
	echo(t, node, "test.more@1.0", "")
	echo(t, node, "test.trusted@1.0", toolcrib.TrustTrusted)
	issue := func(of *service.Service, change func(*nodes.TokenRequest)) nodes.Token {
		t.Helper()
		q := nodes.TokenRequest{For: string(other.Key()), Capabilities: []string{"test.echo@1.0"}}
		if change != nil {
			change(&q)
		}
		tok, err := of.Nodes.IssueToken(t.Context(), root, q)
		if err != nil {
			t.Fatal(err)
		}
		return tok
	}
	plain := issue(a, nil).Token.Token
	call := func(from *nodes.Instance, name, params, token string) (toolcrib.Principal, error) {
		t.Helper()
		r := bus.Request{Name: parse(t, name), Token: token}
		if params != "" {
			r.Params = json.RawMessage(params)
		}
		return called(t, from, node, r)
	}
	who, err := call(other, "test.echo@1.0", "", plain)
	if err != nil || who.User != "node:~"+string(other.Key()) || who.Trust != toolcrib.TrustMember || who.Token == "" || who.Admin {
		t.Fatalf("by a token: %+v, %v", who, err)
	}
	params := func(q *nodes.TokenRequest) { q.Params = map[string][]any{"corpus": {"notes"}} }
	twice := func(q *nodes.TokenRequest) { q.MaxCalls = 2 }
	anyone := issue(a, func(q *nodes.TokenRequest) { q.For = "*"; q.PerMinute = 1 })
	revoked, bound, counted := issue(a, nil), issue(a, params), issue(a, twice)
	if _, changed, err := a.Nodes.RevokeToken(t.Context(), root, revoked.ID); err != nil || !changed {
		t.Fatal(changed, err)
	}
	short := issue(a, func(q *nodes.TokenRequest) { q.TTL = time.Second })
	waittest.Until(t, "the token has expired", func() bool { return !a.People.Now().Before(short.Expires) })
	for _, tt := range []struct {
		what         string
		from         *nodes.Instance
		name, params string
		token        string
		code         toolcrib.Code
	}{
		{"no token", other, "test.echo@1.0", "", "", toolcrib.CodeUnauthorized},
		{"malformed", other, "test.echo@1.0", "", "hntoken://v1/x", toolcrib.CodeBadRequest},
		{"an access token", other, "test.echo@1.0", "", access.TokenPrefix + strings.TrimPrefix(plain, access.BusPrefix), toolcrib.CodeBadRequest},
		{"changed", other, "test.echo@1.0", "", plain[:len(plain)-2] + "AA", toolcrib.CodeTokenInvalid},
		{"expired", other, "test.echo@1.0", "", short.Token.Token, toolcrib.CodeTokenExpired},
		{"of somebody else", third, "test.echo@1.0", "", plain, toolcrib.CodeUnauthorized},
		{"revoked", other, "test.echo@1.0", "", revoked.Token.Token, toolcrib.CodeTokenRevoked},
		{"another capability", other, "test.more@1.0", "", plain, toolcrib.CodeScopeInsufficient},
		{"without the param", other, "test.echo@1.0", "", bound.Token.Token, toolcrib.CodeScopeInsufficient},
		{"another param", other, "test.echo@1.0", `{"corpus": "mail"}`, bound.Token.Token, toolcrib.CodeScopeInsufficient},
		{"several params", other, "test.echo@1.0", `{"corpus": ["notes", "mail"]}`, bound.Token.Token, toolcrib.CodeScopeInsufficient},
		{"the param", other, "test.echo@1.0", `{"corpus": "notes"}`, bound.Token.Token, ""},
		{"of another node", other, "test.echo@1.0", "", issue(b2, nil).Token.Token, toolcrib.CodeTokenInvalid},
		{"more trust", other, "test.trusted@1.0", "", issue(a, func(q *nodes.TokenRequest) { q.Capabilities = []string{"test.trusted@1.0"} }).Token.Token, toolcrib.CodeUnauthorized},
		{"first", other, "test.echo@1.0", "", counted.Token.Token, ""},
		{"out of scope is not counted", other, "test.more@1.0", "", counted.Token.Token, toolcrib.CodeScopeInsufficient},
		{"second", other, "test.echo@1.0", "", counted.Token.Token, ""},
		{"third", other, "test.echo@1.0", "", counted.Token.Token, toolcrib.CodeScopeInsufficient},
		{"any bearer", third, "test.echo@1.0", "", anyone.Token.Token, ""},
		{"any bearer, too often", other, "test.echo@1.0", "", anyone.Token.Token, toolcrib.CodeRateLimited},
	} {
		_, err := call(tt.from, tt.name, tt.params, tt.token)
		wants(t, tt.what, err, tt.code)
	}
	// The issuer of a token was removed. Only a node that is trusted learns that.
	foreign := issue(b2, nil).Token.Token
	for _, level := range []toolcrib.Trust{toolcrib.TrustMember, toolcrib.TrustUnknown} {
		if _, err := a.Nodes.SetTrust(t.Context(), root, third.Key(), level, ""); err != nil {
			t.Fatal(err)
		}
	}
	_, err = call(other, "test.echo@1.0", "", foreign)
	wants(t, "to an unknown node", err, toolcrib.CodeTokenInvalid)
	if _, err := a.Nodes.SetTrust(t.Context(), root, other.Key(), toolcrib.TrustMember, ""); err != nil {
		t.Fatal(err)
	}
	_, err = call(other, "test.echo@1.0", "", foreign)
	wants(t, "a removed issuer", err, toolcrib.CodeRevoked)
	// Removing a node revokes the tokens for it.
	if _, err := a.Nodes.SetTrust(t.Context(), root, other.Key(), toolcrib.TrustUnknown, ""); err != nil {
		t.Fatal(err)
	}
	_, err = call(other, "test.echo@1.0", "", plain)
	wants(t, "after its node was removed", err, toolcrib.CodeTokenRevoked)
}

func TestM16_WhoIssuesTokens(t *testing.T) {
	s := open(t, t.TempDir(), "", "alone")
	q := nodes.TokenRequest{For: "*", Capabilities: []string{"test.echo@1.0"}}
	for what, who := range map[string]toolcrib.Principal{
		"a user": {User: "anna"}, "a token": {User: "boss", Admin: true, Token: "tok_1"}, "nobody": {},
	} {
		_, err := s.Nodes.IssueToken(t.Context(), who, q)
		wants(t, what, err, toolcrib.CodeForbidden)
		_, err = s.Nodes.SetTrust(t.Context(), who, "", toolcrib.TrustMember, "")
		wants(t, what, err, toolcrib.CodeForbidden)
		_, err = s.BusStatus(t.Context(), who)
		wants(t, what, err, toolcrib.CodeForbidden)
		_, err = s.BusCall(t.Context(), who, nodes.CallRequest{})
		wants(t, what, err, toolcrib.CodeForbidden)
	}
	tok, err := s.Nodes.IssueToken(t.Context(), root, q)
	if err != nil || !strings.HasPrefix(tok.Token.Token, access.BusPrefix) {
		t.Fatal(tok, err)
	}
	if all, err := s.People.Tokens(t.Context(), root, ""); err != nil || len(all) != 0 {
		t.Errorf("among the access tokens of people: %v, %v", all, err)
	}
	if _, err := s.People.ActBy(t.Context(), "", tok.Token.Token); toolcrib.CodeOf(err) != toolcrib.CodeTokenInvalid {
		t.Errorf("as an access token: %v", err)
	}
	for what, change := range map[string]func(*nodes.TokenRequest){
		"no capability": func(q *nodes.TokenRequest) { q.Capabilities = nil },
		"no version":    func(q *nodes.TokenRequest) { q.Capabilities = []string{"rag.query"} },
		"no node":       func(q *nodes.TokenRequest) { q.For = "somebody" },
	} {
		bad := q
		change(&bad)
		_, err := s.Nodes.IssueToken(t.Context(), root, bad)
		wants(t, what, err, toolcrib.CodeBadRequest)
	}
}

// Names of nodes are chosen once and are those of one node forever, because runs belong to them.
func TestRegister_Names(t *testing.T) {
	s := open(t, t.TempDir(), "", "alone")
	key := func(b byte) bus.Key {
		keys, err := bus.NewKeys([]byte(strings.Repeat(string([]byte{b}), 32)))
		if err != nil {
			t.Fatal(err)
		}
		return keys.Public()
	}
	set := func(b byte, level toolcrib.Trust, name string) (nodes.Entry, error) {
		return s.Nodes.SetTrust(t.Context(), root, key(b), level, name)
	}
	if _, err := set('a', toolcrib.TrustMember, "laptop"); err != nil {
		t.Fatal(err)
	}
	_, err := set('b', toolcrib.TrustMember, "laptop")
	wants(t, "the name of another node", err, toolcrib.CodeConflict)
	_, err = set('b', toolcrib.TrustMember, "1aptop")
	wants(t, "a name that looks alike", err, toolcrib.CodeConflict)
	_, err = set('b', toolcrib.TrustMember, "a/b")
	wants(t, "no name", err, toolcrib.CodeBadRequest)
	_, err = set('b', toolcrib.TrustUnknown, "")
	wants(t, "not registered", err, toolcrib.CodeNotFound)
	if e, err := set('a', toolcrib.TrustUnknown, ""); err != nil || e.Name != "laptop" {
		t.Fatal(e, err)
	}
	_, err = set('b', toolcrib.TrustMember, "laptop")
	wants(t, "the name of a removed node", err, toolcrib.CodeConflict)
	_, err = set('a', toolcrib.TrustAnchor, "desktop")
	wants(t, "another name", err, toolcrib.CodeConflict)
	if e, err := set('a', toolcrib.TrustAnchor, "laptop"); err != nil || e.Trust != toolcrib.TrustAnchor {
		t.Fatal(e, err)
	}
	if e, err := set('c', toolcrib.TrustMember, ""); err != nil || !strings.HasPrefix(e.Name, "node") {
		t.Fatal(e, err)
	}
	self, err := s.Nodes.Key(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Nodes.SetTrust(t.Context(), root, self, toolcrib.TrustMember, "")
	wants(t, "itself", err, toolcrib.CodeBadRequest)
	other := open(t, t.TempDir(), "", "other")
	if theirs, err := other.Nodes.Key(t.Context()); err != nil || theirs == self {
		t.Errorf("two data folders have the key %s, %v", theirs, err)
	}
}

// A served call goes through the gate of the serving node as a user of the calling node: it has the grants of the
// capability only, owns its runs, and reads no others.
func TestH19_ServedCallAtTheGate(t *testing.T) {
	c := natstest.Start(t, 1, nil)
	a, node := serve(t, c.URL(), "alpha")
	_, other := serve(t, c.URL(), "beta")
	_, third := serve(t, c.URL(), "gamma")
	for key, name := range map[bus.Key]string{other.Key(): "beta", third.Key(): "gamma"} {
		if _, err := a.Nodes.SetTrust(t.Context(), root, key, toolcrib.TrustAnchor, name); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	who := make(chan toolcrib.Principal, 1)
	err := node.Offer(bus.Descriptor{Name: parse(t, "test.tool@1.0")}, []string{"list_directory"},
		func(ctx context.Context, by toolcrib.Principal, x *bus.Exchange) (json.RawMessage, error) {
			var body struct{ Input toolcrib.ToolCall }
			if err := json.Unmarshal(x.Body, &body); err != nil {
				return nil, err
			}
			who <- by
			run, err := a.Start(ctx, by, service.StartRequest{Given: &body.Input, Workspace: dir}, service.Front{})
			if err != nil {
				return nil, err
			}
			return json.Marshal(run)
		})
	if err != nil {
		t.Fatal(err)
	}
	run := func(from *nodes.Instance, user, tool string) (out service.Run, by toolcrib.Principal) {
		t.Helper()
		input := fmt.Sprintf(`{"id": "c1", "name": %q, "arguments": {}}`, tool)
		r := bus.Request{Name: parse(t, "test.tool@1.0"), To: node.Key(), Input: json.RawMessage(input), Timeout: 20 * time.Second}
		if user != "" {
			r.From = bus.Hop{User: user, Trust: toolcrib.TrustMember}
		}
		waittest.Until(t, "the node is heard of", func() bool {
			return slices.ContainsFunc(from.Peers(), func(p bus.Peer) bool { return p.Node == node.Key() })
		})
		raw, err := from.Call(t.Context(), r)
		if err == nil {
			err = json.Unmarshal(raw, &out)
		}
		if err != nil {
			t.Fatal(err)
		}
		return out, <-who
	}
	mine, by := run(other, "anna", "list_directory")
	if mine.User != "node:beta:anna" || by.Trust != toolcrib.TrustMember || len(mine.Trace) != 1 || mine.Trace[0].Status != "ok" {
		t.Errorf("run of %s (%+v): %+v", mine.User, by, mine.Trace)
	}
	for _, tool := range []string{"read_file", "exec_shell", "get_env", "spawn"} {
		if got, _ := run(other, "anna", tool); len(got.Trace) != 1 || got.Trace[0].Status != "refused" {
			t.Errorf("%s: %+v", tool, got.Trace)
		}
	}
	_, root1 := run(other, "local:root", "list_directory")
	_, node1 := run(other, "", "list_directory")
	_, slash := run(other, "../anna", "list_directory")
	_, elsewhere := run(third, "anna", "list_directory")
	for _, p := range []toolcrib.Principal{root1, node1, slash, elsewhere} {
		if p.Admin || strings.ContainsAny(p.User, "/\\") {
			t.Errorf("principal %+v", p)
		}
		if _, err := a.FindRun(t.Context(), p, string(mine.ID)); toolcrib.CodeOf(err) != toolcrib.CodeNotFound {
			t.Errorf("%s reads the run of %s: %v", p.User, mine.User, err)
		}
	}
	if node1.Trust != toolcrib.TrustAnchor || elsewhere.User != "node:gamma:anna" {
		t.Errorf("%+v, %+v", node1, elsewhere)
	}
	if got, err := a.FindRun(t.Context(), by, string(mine.ID)); err != nil || got.ID != mine.ID {
		t.Errorf("its own: %v", err)
	}
	if _, err := a.Nodes.Tokens(t.Context(), by); toolcrib.CodeOf(err) != toolcrib.CodeForbidden {
		t.Errorf("it administrates: %v", err)
	}
}

// A server starts while the bus is gone, and its node is heard of once the bus is back.
func TestH18_BusIsGoneAtTheStart(t *testing.T) {
	c := natstest.Start(t, 1, nil)
	c.Kill(0)
	a, node := serve(t, c.URL(), "alpha")
	echo(t, node, "test.echo@1.0", "")
	s, err := a.BusStatus(t.Context(), root)
	if err != nil || s.Connected || s.Problem == "" || !slices.Equal(s.Offers, []string{"test.echo@1.0"}) {
		t.Errorf("%+v, %v", s, err)
	}
	who, err := called(t, node, node, bus.Request{Name: parse(t, "test.echo@1.0"), From: bus.Hop{User: "anna", Trust: toolcrib.TrustMember}})
	if err != nil || who.User != "anna" || who.Admin {
		t.Errorf("its own capability: %+v, %v", who, err)
	}
	c.Restart(0)
	b, other := serve(t, c.URL(), "beta")
	if _, err := a.Nodes.SetTrust(t.Context(), root, other.Key(), toolcrib.TrustMember, "beta"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Nodes.SetTrust(t.Context(), root, node.Key(), toolcrib.TrustMember, "alpha"); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the capability is known", func() bool {
		all, err := b.BusCapabilities(t.Context(), root, "alpha")
		return err == nil && len(all) == 1 && all[0].Name.String() == "test.echo@1.0"
	})
	if _, err := called(t, other, node, bus.Request{Name: parse(t, "test.echo@1.0")}); err != nil {
		t.Error(err)
	}
	trace, err := a.BusTrace(t.Context(), root, 0)
	if err != nil || len(trace.Entries) < 2 || trace.Entries[len(trace.Entries)-1].Seq < 2 || len(trace.Counters) == 0 {
		t.Errorf("trace %+v, %v", trace, err)
	}
	last := trace.Entries[len(trace.Entries)-1]
	if last.FromName != "beta" || last.ToName != "alpha" {
		t.Errorf("the call of beta: %+v", last)
	}
	own := func(e nodes.TraceEntry) bool { return strings.HasPrefix(e.Capability.Name, "node.") }
	if slices.ContainsFunc(trace.Entries, own) || !slices.ContainsFunc(trace.Counters, func(c bus.Counter) bool {
		return strings.HasPrefix(c.Capability, "node.offers@")
	}) {
		t.Errorf("calls of nodes for themselves: %+v", trace)
	}
	if rest, err := a.BusTrace(t.Context(), root, last.Seq); err != nil || len(rest.Entries) != 0 {
		t.Errorf("after the last: %+v, %v", rest.Entries, err)
	}
	if all, err := a.BusTrace(t.Context(), root, last.Seq+1000); err != nil || len(all.Entries) == 0 {
		t.Errorf("after a call of an earlier server: %+v, %v", all.Entries, err)
	}
}
