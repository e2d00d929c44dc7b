package natsbus_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"go.uber.org/goleak"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/bus"
	"github.com/toolcrib/toolcrib/internal/natstest"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/natsbus"
)

// newNode starts a node over a transport. All nodes trust each other.
func newNode(t testing.TB, over bus.Transport) *bus.Node {
	t.Helper()
	seed := make([]byte, 32)
	_, _ = rand.Read(seed)
	keys, err := bus.NewKeys(seed)
	if err != nil {
		t.Fatal(err)
	}
	n, err := bus.New(bus.Options{
		Keys: keys, Name: t.Name(), Transport: over,
		Trust: func(context.Context, bus.Key) (toolcrib.Trust, error) { return toolcrib.TrustMember, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}

// dial connects a node of its own.
func dial(t testing.TB, o natsbus.Options) *natsbus.Nodes {
	t.Helper()
	over, err := natsbus.DialNodes(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(over.Close)
	return over
}

// countTo offers a stream of n frames.
func countTo(t testing.TB, node *bus.Node, text string, n int) {
	t.Helper()
	name, err := bus.ParseName(text)
	if err != nil {
		t.Fatal(err)
	}
	err = node.Offer(bus.Descriptor{Name: name}, func(ctx context.Context, x *bus.Exchange) (json.RawMessage, error) {
		for i := range n {
			if err := x.Send(ctx, bus.Frame{Event: "count", Data: json.RawMessage(fmt.Sprint(i))}); err != nil {
				return nil, err
			}
		}
		return x.Body, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// count calls a stream, and returns the number of its frames.
func count(ctx context.Context, node *bus.Node, text string, to bus.Key, input []byte) (frames int, result json.RawMessage, err error) {
	name, err := bus.ParseName(text)
	if err != nil {
		return 0, nil, err
	}
	x, err := node.Open(ctx, bus.Request{Name: name, To: to, Input: input})
	if err != nil {
		return 0, nil, err
	}
	for ; ; frames++ {
		f, err := x.Recv(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return frames, nil, err
		}
		if string(f.Data) != fmt.Sprint(frames) {
			return frames, nil, fmt.Errorf("frame %d is %s", frames, f.Data)
		}
	}
	result, err = x.Result(ctx)
	return frames, result, err
}

// Five nodes on three NATS servers, one of them over the connection of a server's bus: each finds and calls all others.
func TestNodes_Five(t *testing.T) {
	here := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, here) })
	c := natstest.Start(t, 3, nil)
	over, err := open(t, c.URL(), "a").Nodes()
	if err != nil {
		t.Fatal(err)
	}
	nodes := []*bus.Node{newNode(t, over)}
	for range 4 {
		nodes = append(nodes, newNode(t, dial(t, natsbus.Options{URL: c.URL()})))
	}
	for i, n := range nodes {
		countTo(t, n, fmt.Sprintf("test.count%d@1.0", i), 50)
	}
	for _, n := range nodes {
		waittest.Until(t, "all are known", func() bool { return len(n.Known()) == len(nodes) })
	}
	for from, n := range nodes {
		for to := range nodes {
			input := fmt.Appendf(nil, `"from %d"`, from)
			frames, result, err := count(t.Context(), n, fmt.Sprintf("test.count%d@1.0", to), "", input)
			if want := `{"input":` + string(input) + `}`; frames != 50 || string(result) != want || err != nil {
				t.Errorf("%d calls %d: %d frames, %s, %v", from, to, frames, result, err)
			}
		}
	}
	large := fmt.Appendf(nil, `%q`, bytes.Repeat([]byte("x"), 3<<20))
	if _, result, err := count(t.Context(), nodes[1], "test.count2@1.0", "", large); err != nil || len(result) < len(large) {
		t.Errorf("a large body: %d bytes, %v", len(result), err)
	}
	gone := nodes[4].Key()
	nodes[4].Close()
	waittest.Until(t, "the node has left", func() bool { return len(nodes[0].Known()) == len(nodes)-1 })
	_, _, err = count(t.Context(), nodes[0], "test.count4@1.0", gone, nil)
	if toolcrib.CodeOf(err) != toolcrib.CodeNotFound {
		t.Errorf("a call to a node that has left: %v", err)
	}
}

// A node that ends without a word is noticed at the first call, which certainly was not received.
func TestNodes_Nobody(t *testing.T) {
	c := natstest.Start(t, 1, nil)
	over := dial(t, natsbus.Options{URL: c.URL()})
	var calls atomic.Int64
	if err := over.Send(bus.Address{Node: "AAAA", Instance: "B"}, []byte("x"), func() { calls.Add(1) }); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the sender knows", func() bool { return calls.Load() == 1 })
	for _, to := range []bus.Address{{}, {Node: "a.b", Instance: "c"}, {Node: "a", Instance: ">"}, {Node: "*", Instance: "c"}} {
		if err := over.Send(to, nil, nil); err == nil {
			t.Errorf("a message was sent to %+v", to)
		}
	}
}

// A node can be opened while the NATS server does not answer, and is reached once it does.
func TestNodes_OpenedWithoutAnswer(t *testing.T) {
	c := natstest.Start(t, 1, nil)
	over := dial(t, natsbus.Options{URL: c.URL()})
	c.Relay(0).StallBack()
	to := bus.Address{Node: "AAAA", Instance: "B"}
	got := make(chan string, 100)
	stop, err := over.Receive(to, func(m []byte) { got <- string(m) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	c.Relay(0).Heal()
	other := dial(t, natsbus.Options{URL: c.URL()})
	waittest.Until(t, "the node can be reached", func() bool { return other.Send(to, []byte("x"), nil) == nil && len(got) > 0 })
}

// The receiver of a message cannot tell its sender that nobody received another one.
func TestNodes_ForgedNobody(t *testing.T) {
	c := natstest.Start(t, 1, nil)
	over := dial(t, natsbus.Options{URL: c.URL()})
	conn, err := nats.Connect(c.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	sub, err := conn.SubscribeSync("tc.v1.node.AAAA.B")
	if err == nil {
		err = conn.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int64
	to := bus.Address{Node: "AAAA", Instance: "B"}
	for range 2 {
		if err := over.Send(to, []byte("x"), func() { calls.Add(1) }); err != nil {
			t.Fatal(err)
		}
	}
	m, err := sub.NextMsg(5 * time.Second)
	if err != nil {
		t.Fatal(err)
	}
	at := strings.LastIndexByte(m.Reply, '.') + 1
	for _, guess := range []string{"2", "2-", "2" + m.Reply[at+1:]} {
		forged := nats.NewMsg(m.Reply[:at] + guess)
		forged.Header.Set("Status", "503")
		if err := conn.PublishMsg(forged); err != nil {
			t.Fatal(err)
		}
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	// The answer to a message that nobody receives comes after the forged ones.
	if err := over.Send(bus.Address{Node: "AAAA", Instance: "C"}, []byte("x"), func() { calls.Add(100) }); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the sender knows", func() bool { return calls.Load() >= 100 })
	if n := calls.Load() - 100; n != 0 {
		t.Errorf("%d forged answers were believed", n)
	}
}

// `nats micro ls` shows the nodes: it sends a ping to all services.
func TestNodes_AreServices(t *testing.T) {
	c := natstest.Start(t, 1, nil)
	n := newNode(t, dial(t, natsbus.Options{URL: c.URL()}))
	conn, err := nats.Connect(c.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	m, err := conn.Request("$SRV.PING", nil, 5*time.Second)
	if err != nil || !strings.Contains(string(m.Data), `"name":"toolcrib-node"`) || !strings.Contains(string(m.Data), string(n.Key())) {
		t.Errorf("%s, %v", m.Data, err)
	}
}

// secured starts a NATS server with TLS where each of two users may receive the messages of one node only.
func secured(t *testing.T, a *authority, keys [2]*bus.Keys) (c *natstest.Cluster, o [2]natsbus.Options) {
	t.Helper()
	a.issue("server", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	pair, err := tls.LoadX509KeyPair(a.file("server.pem"), a.file("server.key"))
	if err != nil {
		t.Fatal(err)
	}
	var users []*server.NkeyUser
	for i, name := range []string{"a.nk", "b.nk"} {
		user, err := nkeys.CreateUser()
		if err != nil {
			t.Fatal(err)
		}
		public, _ := user.PublicKey()
		seed, _ := user.Seed()
		if err := os.WriteFile(a.file(name), seed, 0o600); err != nil {
			t.Fatal(err)
		}
		users = append(users, &server.NkeyUser{Nkey: public, Permissions: &server.Permissions{
			Subscribe: &server.SubjectPermission{Allow: []string{
				"tc.v1.node." + string(keys[i].Public()) + ".>", "tc.v1.nodes", "_INBOX.>", "$SRV.>",
			}},
			Publish: &server.SubjectPermission{Allow: []string{"tc.v1.node.>", "tc.v1.nodes", "_INBOX.>"}},
		}})
		o[i] = natsbus.Options{CAFile: a.file("ca.pem"), Credentials: a.file(name)}
	}
	c = natstest.Start(t, 1, func(s *server.Options) {
		s.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
		s.TLSTimeout, s.Nkeys = 5, users
	})
	for i := range o {
		o[i].URL = strings.ReplaceAll(c.URL(), "nats:", "tls:")
	}
	return c, o
}

// With the permissions of the documentation, two nodes call each other over TLS, and the user of one cannot receive
// the messages of the other.
func TestNodes_Permissions(t *testing.T) {
	var keys [2]*bus.Keys
	for i := range keys {
		var err error
		if keys[i], err = bus.NewKeys(bytes.Repeat([]byte{byte(i + 1)}, 32)); err != nil {
			t.Fatal(err)
		}
	}
	a := newAuthority(t)
	_, o := secured(t, a, keys)
	var nodes [2]*bus.Node
	for i := range nodes {
		var err error
		nodes[i], err = bus.New(bus.Options{
			Keys: keys[i], Transport: dial(t, o[i]),
			Trust: func(context.Context, bus.Key) (toolcrib.Trust, error) { return toolcrib.TrustMember, nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nodes[i].Close)
	}
	countTo(t, nodes[0], "test.count@1.0", 5)
	waittest.Until(t, "the other is known", func() bool { return len(nodes[1].Known()) == 1 })
	if frames, _, err := count(t.Context(), nodes[1], "test.count@1.0", "", nil); frames != 5 || err != nil {
		t.Errorf("%d frames, %v", frames, err)
	}

	thief := dial(t, o[1])
	var stolen atomic.Int64
	stop, err := thief.Receive(bus.Address{Node: keys[0].Public(), Instance: "thief"}, func(m []byte) {
		if string(m) == "x" { // others are cards, for all
			stolen.Add(1)
		}
	})
	if err == nil {
		t.Cleanup(stop)
	}
	var nobody atomic.Int64
	send := func() error {
		return dial(t, o[0]).Send(bus.Address{Node: keys[0].Public(), Instance: "thief"}, []byte("x"), func() { nobody.Add(1) })
	}
	if err := send(); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "nobody received the message", func() bool { return nobody.Load() == 1 })
	if stolen.Load() != 0 {
		t.Error("a user received the messages of another node")
	}
	if _, err := natsbus.DialNodes(t.Context(), natsbus.Options{URL: o[0].URL, CAFile: a.file("ca.pem")}); err == nil ||
		!strings.Contains(err.Error(), "refuses the credentials") {
		t.Errorf("without credentials: %v", err)
	}
}

// The bus is cut in the middle of a stream: both ends notice.
func TestNodes_Partition(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes 15 seconds until silence is noticed")
	}
	c := natstest.Start(t, 1, nil)
	a, b := newNode(t, dial(t, natsbus.Options{URL: c.URL()})), newNode(t, dial(t, natsbus.Options{URL: c.URL()}))
	name, _ := bus.ParseName("test.forever@1.0")
	ended := make(chan error, 1)
	err := b.Offer(bus.Descriptor{Name: name, Timeout: time.Hour}, func(ctx context.Context, x *bus.Exchange) (json.RawMessage, error) {
		err := x.Send(ctx, bus.Frame{Event: "token"})
		if err == nil {
			<-ctx.Done()
			err = context.Cause(ctx)
		}
		ended <- err
		return nil, err
	})
	if err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the other is known", func() bool { return len(a.Known()) == 1 })
	x, err := a.Open(t.Context(), bus.Request{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.Recv(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.Cut()
	_, err = x.Result(t.Context())
	if toolcrib.CodeOf(err) != toolcrib.CodePartition {
		t.Errorf("the caller: %v", err)
	}
	if err := <-ended; toolcrib.CodeOf(err) != toolcrib.CodePartition {
		t.Errorf("the handler: %v", err)
	}
	c.Heal()
	waittest.Until(t, "the nodes know each other again", func() bool { return len(a.Known()) == 1 })
}
