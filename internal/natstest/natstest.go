// Package natstest runs a cluster of NATS servers with JetStream on the loopback interface, with a relay before each
// server that tests can cut.
package natstest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/toolcrib/toolcrib/internal/relaytest"
	"github.com/toolcrib/toolcrib/internal/waittest"
)

// Cluster is a cluster of NATS servers.
type Cluster struct {
	t      testing.TB
	dir    string
	change func(*server.Options)
	nodes  []*node
}

type node struct {
	relay   *relaytest.Relay
	server  *server.Server
	options server.Options
}

// Start starts n servers, which end with the test. change may change the options of each; it may be nil.
func Start(t testing.TB, n int, change func(*server.Options)) *Cluster {
	t.Helper()
	c := &Cluster{t: t, dir: t.TempDir(), change: change}
	var routes []string
	var routePorts []int
	for range n {
		port := freePort(t)
		routePorts = append(routePorts, port)
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", port))
	}
	for i := range n {
		o := server.Options{
			ServerName: fmt.Sprintf("n%d", i), Host: "127.0.0.1", Port: freePort(t), NoSigs: true, NoLog: true,
			JetStream: true, DisableJetStreamBanner: true, StoreDir: filepath.Join(c.dir, fmt.Sprint(i)),
			JetStreamMaxMemory: 1 << 30, JetStreamMaxStore: 1 << 30,
		}
		if n > 1 {
			o.Cluster = server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: routePorts[i], NoAdvertise: true}
			o.Routes = server.RoutesFromStr(strings.Join(routes, ","))
		}
		if change != nil {
			change(&o)
		}
		c.nodes = append(c.nodes, &node{options: o, relay: relaytest.New(t, fmt.Sprintf("127.0.0.1:%d", o.Port))})
	}
	t.Cleanup(func() {
		for i := range c.nodes {
			c.Kill(i)
		}
	})
	for i := range c.nodes {
		c.Restart(i)
	}
	c.Await()
	return c
}

// freePort returns a port that no program uses, below those that the system gives to listeners and connections: one of
// these could be taken before the server has it, and then the server would never start.
func freePort(t testing.TB) int {
	t.Helper()
	for range 1000 {
		port := 10_000 + rand.IntN(20_000)
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

// URL returns the addresses of the relays, separated by commas.
func (c *Cluster) URL() string {
	var all []string
	for i := range c.nodes {
		all = append(all, "nats://"+c.Relay(i).Address())
	}
	return strings.Join(all, ",")
}

// Relay returns the relay before a server.
func (c *Cluster) Relay(i int) *relaytest.Relay { return c.nodes[i].relay }

// Kill ends a server.
func (c *Cluster) Kill(i int) {
	if s := c.nodes[i].server; s != nil {
		s.Shutdown()
		s.WaitForShutdown()
		c.nodes[i].server = nil
	}
}

// Restart starts a server that was ended.
func (c *Cluster) Restart(i int) {
	c.t.Helper()
	o := c.nodes[i].options // the server changes them
	s, err := server.NewServer(&o)
	if err != nil {
		c.t.Fatal(err)
	}
	c.nodes[i].server = s
	s.Start()
}

// Await waits until the servers have found each other and JetStream has a leader.
func (c *Cluster) Await() {
	c.t.Helper()
	waittest.Until(c.t, "the cluster is ready", func() bool {
		leaders := 0
		for _, n := range c.nodes {
			if n.server == nil {
				continue
			}
			current := len(c.nodes) == 1 || !n.options.JetStream || n.server.JetStreamIsCurrent()
			if !n.server.ReadyForConnections(time.Second) || !current {
				return false
			}
			if n.server.JetStreamIsLeader() {
				leaders++
			}
		}
		return len(c.nodes) == 1 || leaders == 1 || !c.nodes[0].options.JetStream
	})
}

// Empty ends all servers, removes what they have stored, and starts them again.
func (c *Cluster) Empty() {
	c.t.Helper()
	for i := range c.nodes {
		c.Kill(i)
		if err := os.RemoveAll(c.nodes[i].options.StoreDir); err != nil {
			c.t.Fatal(err)
		}
	}
	for i := range c.nodes {
		c.Restart(i)
	}
	c.Await()
}

// Cut cuts all relays, and Heal heals them.
func (c *Cluster) Cut() {
	for _, n := range c.nodes {
		n.relay.Cut()
	}
}

// Heal heals all relays.
func (c *Cluster) Heal() {
	for _, n := range c.nodes {
		n.relay.Heal()
	}
}
