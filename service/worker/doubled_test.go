package worker_test

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/nats-io/nats.go"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/natstest"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/journal"
)

// doubled repeats each message on a NATS server twice, late and in another order, to all including its sender. It
// returns how often it has repeated messages whose subject contains a word.
func doubled(t *testing.T, url string) (times func(word string) int) {
	t.Helper()
	conn, err := nats.Connect(url, nats.NoEcho())
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan *nats.Msg, 1<<14)
	if _, err = conn.ChanSubscribe("toolcrib.>", got); err == nil {
		err = conn.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	repeated := map[string]int{}
	over := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		random := rand.New(rand.NewPCG(1, 2))
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		var late []*nats.Msg
		for {
			select {
			case m := <-got:
				late = append(late, m, m)
				continue
			case <-tick.C:
			case <-over:
				return
			}
			random.Shuffle(len(late), func(i, j int) { late[i], late[j] = late[j], late[i] })
			now := (len(late) + 1) / 2
			for _, m := range late[:now] {
				if err := conn.PublishMsg(&nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data}); err != nil {
					t.Error(err)
				}
				mu.Lock()
				repeated[m.Subject]++
				mu.Unlock()
			}
			late = late[now:]
		}
	})
	t.Cleanup(func() {
		close(over)
		running.Wait()
		conn.Close()
	})
	return func(word string) (n int) {
		mu.Lock()
		defer mu.Unlock()
		for subject, times := range repeated {
			if strings.Contains(subject, word) {
				n += times
			}
		}
		return n
	}
}

// counted starts an MCP server with a tool that counts its calls, and returns its address.
func counted(t *testing.T, calls *atomic.Int32) string {
	t.Helper()
	tools := sdk.NewServer(&sdk.Implementation{Name: "counter", Version: "1"}, nil)
	tools.AddTool(&sdk.Tool{Name: "hit", InputSchema: map[string]any{"type": "object"}},
		func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			calls.Add(1)
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "hello"}}}, nil
		})
	web := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return tools }, nil))
	t.Cleanup(web.Close)
	return web.URL
}

// review accepts the tools of an MCP server.
func (h *poolHouse) review(name string) {
	h.t.Helper()
	root := toolcrib.Principal{User: "local:root", Admin: true}
	review, err := h.s.MCP.Review(h.t.Context(), root, name)
	if err == nil {
		err = h.s.MCP.Accept(h.t.Context(), root, review, review.Digest)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// If the bus delivers everything three times, late and out of order, each run is taken up once for each thing that it
// has waited for, and each of its calls is made once.
func TestBus_Doubled(t *testing.T) {
	const runs = 12
	cluster := natstest.Start(t, 1, nil)
	times := doubled(t, cluster.URL())
	var calls atomic.Int32
	h := newHouse(t, "bus: {url: '"+cluster.URL()+"'}\nmcpServers: {m: {url: '"+counted(t, &calls)+"'}}\n")
	h.write("asks.script", "- tool_calls: [{name: m__hit, arguments: {}}]\n- {text: done}\n")
	h.s, h.pool = h.open(0, nil)
	h.review("m")
	_, other := h.open(0, nil)
	waittest.Until(t, "the servers know each other", func() bool { return !h.pool.Alone() && !other.Alone() })
	var all []toolcrib.RunID
	for range runs {
		all = append(all, h.queue("asks").ID())
	}
	for _, run := range all {
		h.becomes(run, toolcrib.StatusWaitingForApproval)
		h.decide(run)
		other.Wake(run)
	}
	for _, run := range all {
		h.becomes(run, toolcrib.StatusCompleted)
	}
	was := times("")
	waittest.Until(t, "what is left is repeated", func() bool { return times("") > was+4 })
	for _, run := range all {
		results := 0
		for e, err := range h.s.Env.Store.Read(t.Context(), run, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Body.EventKind() == journal.KindToolResult {
				results++
			}
		}
		if n := h.takenUp(run); n != 2 || results != 1 {
			t.Errorf("run %s was taken up %d times, want 2, and has %d results, want 1", run, n, results)
		}
	}
	if n := calls.Load(); n != runs {
		t.Errorf("%d calls were made, want %d", n, runs)
	}
	queued, woken := times(".runs."), times(".wake.")
	t.Logf("repeated: %d entries of the queue, %d messages to look at a run, %d others", queued, woken, times("")-queued-woken)
	if queued < 2*runs || woken == 0 {
		t.Error("too few messages were repeated")
	}
}
