package natsbus

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/toolcrib/toolcrib/bus"
)

// Nodes carries the messages of a node to others, over NATS: each instance receives those of the subject
// tc.v1.node.KEY.INSTANCE, and all receive those of tc.v1.nodes. `nats micro ls` shows each instance as a service.
//
// A user of NATS for one node needs the permission to subscribe to tc.v1.node.KEY.>, tc.v1.nodes, _INBOX.> and $SRV.>,
// and to publish to tc.v1.node.>, tc.v1.nodes and _INBOX.>.
type Nodes struct {
	conn  *nats.Conn
	own   bool // the connection ends with it
	inbox string

	denied *denied
	sub    *nats.Subscription
	sent   atomic.Uint64

	mu   sync.Mutex
	wait [maxWait]waiting // of the last messages
}

// waiting is called if nobody received a message.
type waiting struct {
	reply  string // the last part of its subject, which nobody can guess
	nobody func()
}

const (
	nodesPrefix = "tc." + version + "."
	nodeService = "toolcrib-node"
	maxWait     = 4096
	// maxNodeIn is how many messages to a node wait to be read, and maxNodeSize their bytes: those of thousands of streams
	// whose frames are small.
	maxNodeIn   = 128 << 10
	maxNodeSize = 128 << 20
)

// Nodes returns the transport of a node over the connection of the bus, or nil without a cluster.
func (b *Bus) Nodes() (*Nodes, error) {
	if b.conn == nil {
		return nil, nil
	}
	return newNodes(b.conn, false, &b.denied)
}

// DialNodes connects to a cluster for a node only. Of the options it uses URL, Credentials, CAFile, CertFile, KeyFile
// and Log.
func DialNodes(ctx context.Context, o Options) (*Nodes, error) {
	b := &Bus{Options: o}
	if b.Log == nil {
		b.Log = slog.New(slog.DiscardHandler)
	}
	b.ctx, b.end = context.WithCancel(ctx)
	defer b.end()
	options, err := b.security()
	if err != nil {
		return nil, err
	}
	b.conn, err = nats.Connect(o.URL, append(options, nats.Name("toolcrib node"), nats.Timeout(patience),
		nats.MaxReconnects(-1), nats.ReconnectBufSize(-1), nats.PingInterval(pingEvery), nats.MaxPingsOutstanding(2),
		nats.FlusherTimeout(pingEvery),
		nats.IgnoreAuthErrorAbort(), nats.NoEcho(), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			b.denied.note(err, b.Log)
		}))...)
	if err != nil {
		return nil, b.explain(err)
	}
	return newNodes(b.conn, true, &b.denied)
}

func newNodes(conn *nats.Conn, own bool, denied *denied) (*Nodes, error) {
	n := &Nodes{conn: conn, own: own, denied: denied, inbox: conn.NewInbox()}
	var err error
	n.sub, err = conn.Subscribe(n.inbox+".*", n.answered)
	if err == nil {
		err = n.sub.SetPendingLimits(maxWait, maxInSize)
	}
	if err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

// answered takes the answer of the NATS server to a message that nobody received.
func (n *Nodes) answered(m *nats.Msg) {
	reply := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
	text, _, _ := strings.Cut(reply, "-")
	number, err := strconv.ParseUint(text, 10, 64)
	if err != nil || len(m.Data) > 0 || m.Header.Get("Status") != "503" {
		return
	}
	n.mu.Lock()
	w := &n.wait[number%maxWait]
	var nobody func()
	if w.reply == reply {
		nobody, w.nobody = w.nobody, nil
	}
	n.mu.Unlock()
	if nobody != nil {
		nobody()
	}
}

func nodeSubject(to bus.Address) (string, error) {
	if !token(string(to.Node)) || !token(to.Instance) {
		return "", errors.New("this is not the address of a node")
	}
	return nodesPrefix + "node." + string(to.Node) + "." + to.Instance, nil
}

// Send implements [bus.Transport].
func (n *Nodes) Send(to bus.Address, message []byte, nobody func()) error {
	subject, err := nodeSubject(to)
	if err != nil {
		return err
	}
	if nobody == nil {
		return n.conn.Publish(subject, message)
	}
	if !n.conn.IsConnected() {
		return fmt.Errorf("%w: the bus is not connected", bus.ErrNobody)
	}
	number := n.sent.Add(1)
	reply := strconv.FormatUint(number, 10) + "-" + rand.Text()
	n.mu.Lock()
	n.wait[number%maxWait] = waiting{reply, nobody}
	n.mu.Unlock()
	return n.conn.PublishRequest(subject, n.inbox+"."+reply, message)
}

// Broadcast implements [bus.Transport].
func (n *Nodes) Broadcast(message []byte) error { return n.conn.Publish(nodesPrefix+"nodes", message) }

// Receive implements [bus.Transport]. If receive is slow, messages are lost.
func (n *Nodes) Receive(self bus.Address, receive func([]byte)) (stop func(), err error) {
	subject, err := nodeSubject(self)
	if err != nil {
		return nil, err
	}
	all, err := n.conn.Subscribe(nodesPrefix+"nodes", func(m *nats.Msg) { receive(m.Data) })
	if err != nil {
		return nil, err
	}
	err = all.SetPendingLimits(maxIn, maxInSize)
	var service micro.Service
	if err == nil {
		service, err = micro.AddService(n.conn, micro.Config{
			Name: nodeService, Version: "1.0.0", Description: "a node of toolcrib",
			Metadata: map[string]string{"node": string(self.Node)},
		})
	}
	if err == nil {
		err = service.AddEndpoint("node", micro.HandlerFunc(func(r micro.Request) { receive(r.Data()) }),
			micro.WithEndpointSubject(subject), micro.WithEndpointQueueGroupDisabled(),
			micro.WithEndpointPendingLimits(maxNodeIn, maxNodeSize))
	}
	stop = sync.OnceFunc(func() {
		if service != nil {
			_ = service.Stop() // the connection is closed otherwise
		}
		_ = all.Unsubscribe()
	})
	if err != nil {
		stop()
		return nil, err
	}
	if n.conn.IsConnected() {
		_ = n.conn.FlushTimeout(patience) // the node can be reached now; after an error, once the connection is back
	}
	return stop, nil
}

// MaxBytes implements [bus.Transport].
func (n *Nodes) MaxBytes() int {
	if most := n.conn.MaxPayload(); most > 0 {
		return int(most)
	}
	return 1 << 20 // not connected yet; the default of a NATS server
}

// Close ends the transport, and its connection if it has its own.
func (n *Nodes) Close() {
	if n.sub != nil {
		_ = n.sub.Unsubscribe() // the connection is closed otherwise
	}
	if n.own {
		n.conn.Close()
	}
}
