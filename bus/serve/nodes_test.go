package serve_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/natstest"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/nodes"
	"github.com/toolcrib/toolcrib/toolcribtest"
)

// waiter is a tool that waits until its call is canceled.
type waiter struct {
	*toolcribtest.Tool
	began chan struct{}
	ended chan time.Time
}

func newWaiter() *waiter {
	w := &waiter{began: make(chan struct{}, 1), ended: make(chan time.Time, 1)}
	w.Tool = toolcribtest.NewTool(toolcribtest.ToolOptions{
		Spec: toolcrib.Spec{Name: "slow", Effect: toolcrib.EffectReadOnly, EnabledByDefault: true, Source: "go"},
		Do: func(ctx context.Context, _ toolcrib.Call) (toolcrib.Output, error) {
			w.began <- struct{}{}
			<-ctx.Done()
			w.ended <- time.Now()
			return toolcrib.Output{}, ctx.Err()
		},
	})
	return w
}

// A node that is not trusted calls the tools of another one by a token: just those that it names, as often as it says,
// and not after it was revoked, which ends calls in flight.
func TestM16_TokenForATool(t *testing.T) {
	url := fmt.Sprintf("url: %q", natstest.Start(t, 1, nil).URL())
	c, post, slow := corpus(), toolcribtest.Writer("post", "posted"), newWaiter()
	library := open(t, t.TempDir(), `
rules: [{name: offered, tools: [post], when: 'true', then: allow}]
bus: {`+url+`, offers: {rag.query@1.0: {tool: corpus}, market.post@1.0: {tool: post}, test.slow@1.0: {tool: slow}}}
`, nil, c, post, slow)
	guest := open(t, t.TempDir(), "bus: {"+url+"}", nil)
	waittest.Until(t, "the library is heard of", func() bool { return len(guest.node.Peers()) == 1 })
	issue := func(q nodes.TokenRequest) nodes.Token {
		t.Helper()
		q.For = string(guest.node.Key())
		token, err := library.Nodes.IssueToken(t.Context(), root, q)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	call := func(name, input, token string) error {
		r := request(t, name, "", input)
		r.Token, r.To = token, library.node.Key()
		_, err := guest.BusCall(t.Context(), root, nodes.CallRequest{Request: r})
		return err
	}
	twice := issue(nodes.TokenRequest{Capabilities: []string{"rag.query@1.0"}, MaxCalls: 2}).Token.Token
	seldom := issue(nodes.TokenRequest{Capabilities: []string{"rag.query@1.0"}, PerMinute: 1}).Token.Token
	const query, nested = `{"query":"rain"}`, `{"tool_call_id":"tc_1","target_capability":"market.post@1.0","target_body":{"input":{}}}`
	for _, tt := range []struct {
		what, name, input, token string
		code                     toolcrib.Code
		done                     int // calls of the corpus so far
	}{
		{"without a token", "rag.query@1.0", query, "", toolcrib.CodeUnauthorized, 0},
		{"another capability", "market.post@1.0", `{"title":"Beans"}`, twice, toolcrib.CodeScopeInsufficient, 0},
		{"another capability through llm.tools.call", "llm.tools.call@1.0", nested, twice, toolcrib.CodeScopeInsufficient, 0},
		{"first", "rag.query@1.0", query, twice, "", 1},
		{"second", "rag.query@1.0", query, twice, "", 2},
		{"third", "rag.query@1.0", query, twice, toolcrib.CodeScopeInsufficient, 2},
		{"first of the minute", "rag.query@1.0", query, seldom, "", 3},
		{"second of the minute", "rag.query@1.0", query, seldom, toolcrib.CodeRateLimited, 3},
	} {
		if err := call(tt.name, tt.input, tt.token); toolcrib.CodeOf(err) != tt.code || len(c.Calls()) != tt.done {
			t.Errorf("%s: %v, want %q; %d calls of the corpus", tt.what, err, tt.code, len(c.Calls()))
		}
	}
	if who := c.Calls()[0].Principal; who.User != "node:~"+string(guest.node.Key()) && !strings.HasPrefix(who.User, "node:~"+
		string(guest.node.Key())+":") || who.Admin || who.Trust != toolcrib.TrustMember {
		t.Errorf("the call acts for %+v", who)
	}
	token := issue(nodes.TokenRequest{Capabilities: []string{"test.slow@1.0"}})
	failed := make(chan error, 1)
	go func() { failed <- call("test.slow@1.0", `{}`, token.Token.Token) }()
	<-slow.began
	if _, _, err := library.Nodes.RevokeToken(t.Context(), root, token.ID); err != nil {
		t.Fatal(err)
	}
	revoked := time.Now()
	t.Logf("the call in flight ended %s after the revocation", (<-slow.ended).Sub(revoked))
	for range 2 {
		if err := <-failed; toolcrib.CodeOf(err) != toolcrib.CodeTokenRevoked {
			t.Errorf("after the revocation: %v", err)
		}
		failed <- call("test.slow@1.0", `{}`, token.Token.Token)
	}
	if len(post.Calls()) != 0 || len(slow.Calls()) != 1 {
		t.Errorf("%d calls of post, %d of slow", len(post.Calls()), len(slow.Calls()))
	}
}

// A run that is cancelled while the tool of another node works for it ends that work.
func TestCancel_BoundTool(t *testing.T) {
	url := fmt.Sprintf("url: %q", natstest.Start(t, 1, nil).URL())
	slow := newWaiter()
	library := open(t, t.TempDir(), "bus: {"+url+", offers: {test.slow@1.0: {tool: slow}}}", nil, slow)
	user := open(t, t.TempDir(), script+`
tools: {bound: {slow_there: {capability: test.slow@1.0, effect: read_only}}}
bus: {`+url+`}
`, map[string]string{"script.yaml": "- {tool_calls: [{name: slow_there, arguments: {}}]}\n- {text: x}\n"})
	trusts(t, library, user)
	user.offered(t, "slow_there", true)
	drive, err := user.pool.Start(t.Context(), root, service.StartRequest{Prompt: "Wait."})
	if err != nil {
		t.Fatal(err)
	}
	<-slow.began
	began := time.Now()
	if _, err := user.pool.Cancel(t.Context(), root, string(drive.ID())); err != nil {
		t.Fatal(err)
	}
	took := (<-slow.ended).Sub(began)
	// TestCancelReachesTheHandler of the bus has the limit of 200 ms, without the load of this machine.
	if t.Logf("the tool of the other node was told after %s", took); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
	run, err := user.pool.Outcome(t.Context(), root, drive)
	if err != nil || run.Status != toolcrib.StatusCancelled {
		t.Errorf("%s, %v", run.Status, err)
	}
	waittest.Until(t, "the run of the other node is cancelled", func() bool {
		runs, _, err := library.Runs(t.Context(), root, service.RunsQuery{})
		return err == nil && len(runs) == 1 && runs[0].Status == toolcrib.StatusCancelled
	})
}
