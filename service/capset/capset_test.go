package capset_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/bus"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/natstest"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/natsbus"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/nodes"
)

var root = toolcrib.Principal{User: "local:test", Admin: true}

// open opens a data folder as a command does.
func open(t *testing.T, text string) *service.Service {
	t.Helper()
	c, err := config.Parse("toolcrib.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s := service.New(env.Options{DataDir: filepath.Join(dir, "data"), Config: c, Driver: "cli:test"})
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

// serving opens a data folder with a node that offers a capability, as a server's does. held may be nil.
func serving(t *testing.T, url, name, capability string, h *held) (*service.Service, *nodes.Instance) {
	t.Helper()
	s := open(t, fmt.Sprintf("bus: {url: %q, name: %q}", url, name))
	over, err := natsbus.DialNodes(t.Context(), natsbus.Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	link := nodes.Link{Transport: over, Close: over.Close}
	if h != nil {
		h.Transport, link.Transport = over, h
	}
	i, err := s.Nodes.Open(t.Context(), link, true, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.Close)
	offer(t, i, capability)
	return s, i
}

func offer(t *testing.T, i *nodes.Instance, capability string) {
	t.Helper()
	err := i.Offer(bus.Descriptor{Name: parse(t, capability)}, []string{"read_file"},
		func(_ context.Context, who toolcrib.Principal, _ *bus.Exchange) (json.RawMessage, error) {
			return json.Marshal(map[string]string{"user": who.User})
		})
	if err != nil {
		t.Fatal(err)
	}
}

// held is a transport that keeps the messages of a node until it is released.
type held struct {
	bus.Transport
	mu   sync.Mutex
	kept []func() error
	open bool
}

func (h *held) do(send func() error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open {
		return send()
	}
	h.kept = append(h.kept, send)
	return nil
}

func (h *held) Send(to bus.Address, message []byte, nobody func()) error {
	return h.do(func() error { return h.Transport.Send(to, message, nobody) })
}

func (h *held) Broadcast(message []byte) error {
	return h.do(func() error { return h.Transport.Broadcast(message) })
}

func (h *held) release(t *testing.T) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open = true
	for _, send := range h.kept {
		if err := send(); err != nil {
			t.Error(err)
		}
	}
}

func parse(t *testing.T, text string) bus.Name {
	t.Helper()
	name, err := bus.ParseName(text)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func trust(t *testing.T, of *service.Service, key bus.Key, level toolcrib.Trust, name string) {
	t.Helper()
	if _, err := of.Nodes.SetTrust(t.Context(), root, key, level, name); err != nil {
		t.Fatal(err)
	}
}

func key(t *testing.T, s *service.Service) bus.Key {
	t.Helper()
	k, err := s.Nodes.Key(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func names(s *service.Service) (all []string) {
	for _, tool := range s.Bus.Tools() {
		all = append(all, tool.Spec().Name+" "+tool.Spec().Source)
	}
	return all
}

// A command waits until it has heard what each node that it trusts offers, not only the first.
func TestH15_NeedWaitsForEachTrustedNode(t *testing.T) {
	c := natstest.Start(t, 1, nil)
	laptop := open(t, fmt.Sprintf("bus: {url: %q, name: laptop}", c.URL()))
	a, first := serving(t, c.URL(), "alpha", "trans.text@1.0", nil)
	late := new(held)
	b, second := serving(t, c.URL(), "beta", "rag.query@1.0", late)
	trust(t, a, key(t, laptop), toolcrib.TrustMember, "laptop")
	trust(t, b, key(t, laptop), toolcrib.TrustMember, "laptop")
	trust(t, laptop, first.Key(), toolcrib.TrustMember, "library")
	trust(t, laptop, second.Key(), toolcrib.TrustMember, "school")
	laptop.Bus.WaitFor(waittest.Patience)
	done := make(chan error, 1)
	go func() { done <- laptop.Bus.Need(t.Context()) }()
	waittest.Until(t, "the first node has said what it offers", func() bool {
		return slices.ContainsFunc(first.Counters(), func(c bus.Counter) bool {
			return c.Capability == "node.offers@1.0" && c.Served && c.Result == "ok" && c.Calls > 0
		})
	})
	select {
	case err := <-done:
		t.Fatal("the second node was not waited for: ", names(laptop), err)
	default:
	}
	late.release(t)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	want := "search_corpus bus:school/rag.query@1.0, translate bus:library/trans.text@1.0, find_neighbour bus:*/node.list@1.0"
	if got := strings.Join(names(laptop), ", "); got != want {
		t.Errorf("the tools are %s", got)
	}
}

// call makes a run of one call, and returns its result.
func call(t *testing.T, s *service.Service, tool string) string {
	t.Helper()
	run, err := s.Start(t.Context(), root, service.StartRequest{Given: s.Policy.GivenCall(tool, []byte("{}"))}, service.Front{})
	if err != nil {
		t.Fatal(err)
	}
	return run.Trace[0].Result
}

// H19: by its token, a bound tool calls a node that does not trust this one, until that revokes the token.
func TestH19_BoundToken(t *testing.T) {
	c := natstest.Start(t, 1, nil)
	school, node := serving(t, c.URL(), "school", "school.fees@1.0", nil)
	offer(t, node, "school.grades@1.0")
	tok, err := school.Nodes.IssueToken(t.Context(), root, nodes.TokenRequest{For: "*", Capabilities: []string{"school.fees@1.0"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("SCHOOL_TOKEN", tok.Token.Token)
	text := fmt.Sprintf(`
bus: {url: %q, name: laptop}
tools:
  bound:
    fees: {capability: school.fees@1.0, effect: read_only, token: "${env:SCHOOL_TOKEN}"}
    grades: {capability: school.grades@1.0, effect: read_only, token: "${env:SCHOOL_TOKEN}"}
    by_trust: {capability: school.fees@1.0, effect: read_only}
`, c.URL())
	other := open(t, text) // knows of no other node
	waittest.Until(t, "a call with a token only", func() bool {
		return strings.Contains(call(t, other, "fees"), `"user":"node:`)
	})
	if got := names(other); !slices.Contains(got, "fees bus:"+string(node.Key())+"/school.fees@1.0") {
		t.Errorf("the tools are %q", got)
	}
	laptop := open(t, text)
	laptop.Bus.WaitFor(waittest.Patience)
	trust(t, school, key(t, laptop), toolcrib.TrustMember, "laptop")
	trust(t, laptop, node.Key(), toolcrib.TrustMember, "school")
	if got := call(t, laptop, "by_trust"); !strings.Contains(got, `{"user":"node:laptop:local:test"}`) {
		t.Errorf("by trust: %s", got)
	}
	trust(t, school, key(t, laptop), toolcrib.TrustUnknown, "")
	for _, step := range []struct{ what, tool, want string }{
		{"without the token", "by_trust", `"error":"unauthorized"`},
		{"with it", "fees", `"user":"node:`},
		{"for another capability", "grades", `"error":"token_scope_insufficient"`},
	} {
		if got := call(t, laptop, step.tool); !strings.Contains(got, step.want) {
			t.Errorf("%s: %s, want %s", step.what, got, step.want)
		}
	}
	if _, _, err := school.Nodes.RevokeToken(t.Context(), root, tok.ID); err != nil {
		t.Fatal(err)
	}
	if got := call(t, laptop, "fees"); !strings.Contains(got, `"error":"token_revoked"`) {
		t.Errorf("revoked: %s", got)
	}
}
