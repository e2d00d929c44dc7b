package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	nats "github.com/nats-io/nats-server/v2/server"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/bus"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/natsbus"
)

// chat is the capability that serves a model.
var chat = bus.Name{Name: "llm.chat", Major: 2}

// chatNode is a node in this process, and the NATS server that it shares with the other one.
type chatNode struct {
	nats *nats.Server
	*bus.Node
	over *natsbus.Nodes
	key  bus.Key
}

func startNode(ctx context.Context, dir string) (*chatNode, error) {
	c := &chatNode{}
	var err error
	c.nats, err = nats.NewServer(&nats.Options{
		Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true, JetStream: true, StoreDir: dir,
	})
	if err != nil {
		return nil, err
	}
	c.nats.Start()
	if !c.nats.ReadyForConnections(10 * time.Second) {
		c.close()
		return nil, errors.New("the NATS server does not start")
	}
	seed := make([]byte, 32)
	_, _ = rand.Read(seed) // does not fail
	keys, err := bus.NewKeys(seed)
	if err == nil {
		c.key = keys.Public()
		c.over, err = natsbus.DialNodes(ctx, natsbus.Options{URL: c.nats.ClientURL()})
	}
	if err == nil {
		c.Node, err = bus.New(bus.Options{
			Keys: keys, Transport: c.over, Schema: gate.CompileSchema,
			Trust: func(context.Context, bus.Key) (toolcrib.Trust, error) { return toolcrib.TrustMember, nil },
		})
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *chatNode) close() {
	if c.Node != nil {
		c.Node.Close()
	}
	if c.over != nil {
		c.over.Close()
	}
	c.nats.Shutdown()
}

// chatOffer is the configuration of the node with the model.
const chatOffer = `
server: {max_runs: %d}
bus: {url: '%s', name: model, offers: {llm.chat@2.0: {agent: waits, params: {model: [mock/waits]}, max_concurrent: %d}}}
`

// manyChats has a node call the model of another one many times, and then has the model answer: each piece says when it
// was sent.
func (b *bench) manyChats(ctx context.Context, dir string) error {
	count := b.streams
	c, err := startNode(ctx, dir)
	if err != nil {
		return err
	}
	defer c.close()
	s, err := b.startOn(ctx, dir, "data", fmt.Sprintf(chatOffer, max(count, 16), c.nats.ClientURL(), count), true)
	if err != nil {
		return err
	}
	defer s.kill()
	command := []string{"--config", dir + "/data.yaml", "bus", "trust", string(c.key), "member", "--name", "bench"}
	trust := exec.CommandContext(ctx, b.binary, command...)
	trust.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir)
	if said, err := trust.CombinedOutput(); err != nil {
		return fmt.Errorf("bus trust: %w: %s", err, said)
	}
	for changed := c.Changed(); !offers(c.Node); changed = c.Changed() {
		<-changed
	}
	before, err := s.live(ctx)
	if err != nil {
		return err
	}
	cpu, began := s.cpu(), time.Now()
	body := json.RawMessage(`{"messages":[{"role":"user","content":"Begin."}]}`)
	var all sync.WaitGroup
	var mu sync.Mutex
	var first, each []time.Duration
	failed := make(chan error, count)
	for range count {
		all.Go(func() {
			delays, err := listen(ctx, c.Node, bus.Request{Name: chat, Input: body, Timeout: 5 * time.Minute})
			if err != nil {
				failed <- err
				return
			}
			mu.Lock()
			defer mu.Unlock()
			each = append(each, delays...)
			first = append(first, delays[0])
		})
	}
	for range count {
		select {
		case <-b.model.begun:
		case err := <-failed:
			return err
		}
	}
	took, used := time.Since(began), s.cpu()-cpu
	with, err := s.live(ctx)
	if err != nil {
		return err
	}
	close(b.model.begin)
	all.Wait()
	select {
	case err := <-failed:
		return err
	default:
	}
	row(fmt.Sprintf("%d llm.chat of another node, heap of each", count), fmt.Sprintf("%.1f KiB", float64(with-before)/float64(count)/1024), "")
	row("  to begin one", fmt.Sprintf("CPU %s, all after %s", round(used/time.Duration(count)), round(took)), "")
	row("  delay of the first token", spread(first), "")
	row("  delay of every token", spread(each), "")
	return nil
}

// offers reports whether a node knows of another one with a model.
func offers(n *bus.Node) bool {
	return slices.ContainsFunc(n.Known(), func(k bus.Known) bool { return k.Name == chat })
}

// listen makes a call, and returns how late each piece of its answer came.
func listen(ctx context.Context, n *bus.Node, r bus.Request) (delays []time.Duration, err error) {
	x, err := n.Open(ctx, r)
	if err != nil {
		return nil, err
	}
	for {
		f, err := x.Recv(ctx)
		if err != nil {
			break // the result says how it ended
		}
		now := time.Now().UnixNano()
		var piece struct{ Text string }
		if err := json.Unmarshal(f.Data, &piece); err != nil {
			return nil, err
		}
		for text := range strings.FieldsSeq(piece.Text) {
			if at, err := strconv.ParseInt(text, 10, 64); err == nil {
				delays = append(delays, time.Duration(now-at))
			}
		}
	}
	if _, err := x.Result(ctx); err != nil {
		return nil, err
	}
	if len(delays) != ticks {
		return nil, fmt.Errorf("%d tokens of an answer arrived", len(delays))
	}
	return delays, nil
}
