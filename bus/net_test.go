package bus_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/bus"
	"github.com/toolcrib/toolcrib/gate"
)

// network carries messages between the nodes of a test. What happens to a message is decided by its faults.
type network struct {
	mu    sync.Mutex
	nodes map[bus.Address]*inbox
	sent  [][]byte // all messages to one address, and to whom
	to    []bus.Address
	cards [][]byte // all broadcasts
	// fault returns the delays after which copies of a message arrive; none if it is lost. It may be nil.
	fault func(to bus.Address, message []byte) []time.Duration
}

type inbox struct {
	messages chan []byte
	stop     chan struct{}
	done     chan struct{}
}

func newNetwork() *network { return &network{nodes: map[bus.Address]*inbox{}} }

// mailbox is the transport of one node.
type mailbox struct {
	*network
	self bus.Address
}

func (n *network) post(to bus.Address, message []byte) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	in := n.nodes[to]
	delays := []time.Duration{0}
	if n.fault != nil {
		delays = n.fault(to, message)
	}
	for _, delay := range delays {
		copied := bytes.Clone(message)
		deliver := func() {
			n.mu.Lock()
			in := n.nodes[to]
			n.mu.Unlock()
			if in != nil {
				select {
				case in.messages <- copied:
				case <-in.stop:
				}
			}
		}
		if delay == 0 && in != nil {
			select {
			case in.messages <- copied:
			default:
			}
		} else {
			time.AfterFunc(delay, deliver)
		}
	}
	return in != nil
}

func (m *mailbox) Send(to bus.Address, message []byte, nobody func()) error {
	m.mu.Lock()
	m.sent, m.to = append(m.sent, bytes.Clone(message)), append(m.to, to)
	m.mu.Unlock()
	if !m.post(to, message) && nobody != nil {
		go nobody()
	}
	return nil
}

func (m *mailbox) Broadcast(message []byte) error {
	m.mu.Lock()
	m.cards = append(m.cards, bytes.Clone(message))
	var all []bus.Address
	for at := range m.nodes {
		all = append(all, at)
	}
	m.mu.Unlock()
	for _, at := range all {
		m.post(at, message)
	}
	return nil
}

func (m *mailbox) Receive(self bus.Address, receive func([]byte)) (func(), error) {
	in := &inbox{messages: make(chan []byte, 4096), stop: make(chan struct{}), done: make(chan struct{})}
	m.mu.Lock()
	m.nodes[self] = in
	m.self = self
	m.mu.Unlock()
	go func() {
		defer close(in.done)
		for {
			select {
			case message := <-in.messages:
				receive(message)
				clear(message) // it must not be kept
			case <-in.stop:
				return
			}
		}
	}()
	return sync.OnceFunc(func() {
		m.mu.Lock()
		delete(m.nodes, self)
		m.mu.Unlock()
		close(in.stop)
		<-in.done
	}), nil
}

func (m *mailbox) MaxBytes() int { return 1 << 20 }

// member is a node of a test.
type member struct {
	*bus.Node
	key   bus.Key
	box   *mailbox
	trust map[bus.Key]toolcrib.Trust // of others; those that are missing are members
	token map[string]*access.Claims
	skew  atomic.Int64 // nanoseconds
	lost  atomic.Bool  // the register of trust cannot be read
	mu    sync.Mutex
	trace []bus.TraceEvent
}

// join starts a node that ends with the test.
func (n *network) join(t testing.TB, seed byte, change ...func(*bus.Options)) *member {
	t.Helper()
	m := &member{box: &mailbox{network: n}, trust: map[bus.Key]toolcrib.Trust{}, token: map[string]*access.Claims{}}
	o := bus.Options{
		Keys: keys(t, seed), Name: "node " + string(rune('A'+seed)), Transport: m.box,
		Trust: func(_ context.Context, node bus.Key) (toolcrib.Trust, error) {
			if m.lost.Load() {
				return "", errors.New("no register")
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			if trust, ok := m.trust[node]; ok {
				return trust, nil
			}
			return toolcrib.TrustMember, nil
		},
		Token: func(_ context.Context, token string, _ bus.Key) (*access.Claims, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			if c := m.token[token]; c != nil {
				return c, nil
			}
			return nil, toolcrib.Errorf(toolcrib.CodeTokenInvalid, "unknown token")
		},
		Schema: gate.CompileSchema,
		Now:    func() time.Time { return time.Now().Add(time.Duration(m.skew.Load())) },
		Trace: func(e bus.TraceEvent) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.trace = append(m.trace, e)
		},
		Log: slog.New(slog.DiscardHandler),
	}
	for _, f := range change {
		f(&o)
	}
	var err error
	if m.Node, err = bus.New(o); err != nil {
		t.Fatal(err)
	}
	m.key = m.Key()
	t.Cleanup(m.Close)
	return m
}

func (m *member) setTrust(node bus.Key, trust toolcrib.Trust) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.trust[node] = trust
}

func (m *member) traced() []bus.TraceEvent {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.trace)
}

func keys(t testing.TB, seed byte) *bus.Keys {
	t.Helper()
	k, err := bus.NewKeys(bytes.Repeat([]byte{seed + 1}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func name(t testing.TB, text string) bus.Name {
	t.Helper()
	n, err := bus.ParseName(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

const anyObject = `{"type":"object"}`

// offer offers a capability without a schema of its own.
func (m *member) offer(t testing.TB, text string, h bus.Handler, change ...func(*bus.Descriptor)) {
	t.Helper()
	d := bus.Descriptor{Name: name(t, text), Request: json.RawMessage(anyObject)}
	for _, f := range change {
		f(&d)
	}
	if err := m.Offer(d, h); err != nil {
		t.Fatal(err)
	}
}

// echo answers with the body.
func echo(_ context.Context, x *bus.Exchange) (json.RawMessage, error) { return x.Body, nil }

// settle lets nodes find each other.
func settle() {
	synctest.Wait()
	time.Sleep(3 * time.Second) // fake time
	synctest.Wait()
}

// inBubble runs a test with fake time.
func inBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func code(t testing.TB, err error, want toolcrib.Code) {
	t.Helper()
	if got := toolcrib.CodeOf(err); got != want {
		t.Fatalf("error %v with code %q, want %q", err, got, want)
	}
}

// shuffled makes a network that loses, doubles, delays and reorders messages.
func shuffled(r *rand.Rand, lose float64) func(bus.Address, []byte) []time.Duration {
	return func(bus.Address, []byte) []time.Duration {
		var delays []time.Duration
		for r.Float64() < 0.2 || len(delays) == 0 {
			if len(delays) == 0 && r.Float64() < lose {
				return nil
			}
			delays = append(delays, time.Duration(r.IntN(50))*time.Millisecond)
		}
		return delays
	}
}
