//go:build unix

package worker_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/mcpset"
	"github.com/toolcrib/toolcrib/store"
)

// limitedAgents are agents whose runs wait at a limit: each reply costs 1.001 dollars.
const limitedAgents = `  rounds: {model: slow/x, limits: {max_iterations: 2, on_limit: ask}}
  costly: {model: dear, budget: {max_cost_usd: 1.001}, limits: {on_limit: ask}}
models:
  dear: {provider: slow, model: x, price: {input: 1, output: 1000}}
`

// limited returns two servers on one PostgreSQL which share their workspaces, or each have their own.
func limited(t *testing.T, shared bool) (a, b *site) {
	t.Helper()
	h := newHouse(t, limitedAgents)
	h.onPostgreSQL()
	h.more += "keys: '" + filepath.Join(h.dir, "data", env.KeysName) + "'\n"
	step := "- tool_calls: [{name: current_time, arguments: {}}]\n  usage: {input: 1000, output: 1000}\n"
	h.write("slow.script", strings.Repeat(step, 12))
	a = h.site("a")
	if !shared {
		return a, h.site("b")
	}
	err := os.MkdirAll(filepath.Join(h.dir, "b"), 0o700)
	if err == nil {
		err = os.Symlink(filepath.Join(a.data, "workspaces"), filepath.Join(h.dir, "b", "workspaces"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return a, h.site("b")
}

// granted returns what a run may use in addition, and how often it got something.
func (s *site) granted(run toolcrib.RunID) (sum journal.Granted, times int) {
	s.t.Helper()
	for e, err := range s.s.Env.Store.Read(s.t.Context(), run, 0) {
		if err != nil {
			s.t.Fatal(err)
		}
		if g, ok := e.Body.(*journal.Granted); ok {
			sum.Iterations += g.Iterations
			sum.CostUSD += g.CostUSD
			times++
		}
	}
	return sum, times
}

// used waits until a run waits for more, and compares what it has used.
func (s *site) used(run toolcrib.RunID, requests int) {
	s.t.Helper()
	waittest.Until(s.t, fmt.Sprintf("the run waits after %d requests", requests), func() bool {
		rec := s.record(run)
		return rec.Status == toolcrib.StatusWaitingForInput && rec.Usage.Requests >= requests
	})
	if rec := s.record(run); rec.Usage.Requests != requests || rec.Iterations != requests {
		s.t.Errorf("%d requests, %d rounds, want %d", rec.Usage.Requests, rec.Iterations, requests)
	}
}

// add raises a limit of a run by a request to this server, and nothing else. The request is repeated while the drive of
// the run before is ending.
func (s *site) add(run toolcrib.RunID, add journal.Granted) {
	s.t.Helper()
	waittest.Until(s.t, "the limit is raised", func() bool {
		err := s.tryAdd(run, add, "")
		if err != nil && toolcrib.CodeOf(err) != toolcrib.CodeConflict {
			s.t.Fatal(err)
		}
		return err == nil
	})
}

func (s *site) tryAdd(run toolcrib.RunID, add journal.Granted, once string) error {
	_, err := s.pool.Resume(s.t.Context(), ann, service.ResumeRequest{
		Run: string(run), Add: add, Once: service.Once(ann, once, once),
	})
	return err
}

// A run that waits at a limit gets exactly what requests to another server add, and uses no more. A request that comes
// to both servers at once, many times, adds once. The run continues on the other server or, if that does not have its
// workspace, on its own.
func TestPool_LimitRaisedElsewhere(t *testing.T) {
	for name, shared := range map[string]bool{"shared": true, "bound": false} {
		t.Run(name, func(t *testing.T) {
			a, b := limited(t, shared)
			for agent, test := range map[string]struct {
				requests int             // until it waits
				each     journal.Granted // what one more request needs
			}{
				"rounds": {2, journal.Granted{Iterations: 1}}, "costly": {1, journal.Granted{CostUSD: 1.001}},
			} {
				d, err := a.pool.Start(t.Context(), ann, a.own(agent))
				if err != nil {
					t.Fatal(err)
				}
				run := d.ID()
				a.used(run, test.requests)
				b.add(run, test.each)
				b.used(run, test.requests+1)
				var all sync.WaitGroup
				for i := range 8 {
					all.Go(func() {
						err := []*site{a, b}[i%2].tryAdd(run, test.each, "again "+agent)
						if err != nil && toolcrib.CodeOf(err) != toolcrib.CodeConflict {
							t.Error(err)
						}
					})
				}
				all.Wait()
				b.used(run, test.requests+2)
				if shared { // the other server alone is left
					a.stop()
				}
				two := journal.Granted{Iterations: 2 * test.each.Iterations, CostUSD: 2 * test.each.CostUSD}
				b.add(run, two)
				b.used(run, test.requests+4)
				sum, times := b.granted(run)
				if times != 3 || sum.Iterations != 4*test.each.Iterations || sum.CostUSD != 4*test.each.CostUSD {
					t.Errorf("%d times more, in all %+v", times, sum)
				}
				if shared {
					a = b.site("a")
				}
			}
		})
	}
}

// A server with other keys does not start. The run that waits is not touched, and continues on one with the right keys.
func TestPool_OtherKeys(t *testing.T) {
	a := onSites(t, false, "a")[0]
	run := a.ask()
	a.decide(run)
	a.stop()
	other := *a.poolHouse
	if err := os.WriteFile(filepath.Join(a.dir, "other.keys"), store.NewKeys().Text(), 0o600); err != nil {
		t.Fatal(err)
	}
	other.more = strings.Replace(other.more, "keys: '", "keys: '"+filepath.Join(a.dir, "other.keys")+"' # '", 1)
	if _, _, err := other.tryIn(a.data, 0, nil); err == nil || !strings.Contains(err.Error(), "it has other keys than those "+
		"that have sealed the database") || !strings.Contains(err.Error(), "other.keys") {
		t.Errorf("started with other keys: %v", err)
	}
	a = a.site("a")
	a.becomes(run, toolcrib.StatusCompleted)
	if v, err := a.s.Env.Store.VerifyAll(t.Context()); err != nil || !a.wrote() {
		t.Errorf("%+v, %v, written: %v", v, err, a.wrote())
	}
}

// The run of a sub-agent whose call of an MCP tool was approved continues on a server that lacks the MCP server: the call
// is refused, the run at the top has a notice with the reason, and nothing waits for that server.
func TestPool_NoMCPServerElsewhere(t *testing.T) {
	var calls atomic.Int32
	h := newHouse(t, "")
	h.onPostgreSQL()
	h.more += "keys: '" + filepath.Join(h.dir, "data", env.KeysName) + "'\nmcpServers: {m: {start_timeout: 1s, url: '"
	h.write("slow.script", "- tool_calls: [{name: spawn, arguments: {agent: asks, task: Greet.}}]\n- {text: done}\n")
	h.write("asks.script", "- tool_calls: [{name: m__hit, arguments: {}}]\n- {text: greeted}\n")
	with, without := *h, *h
	with.more += counted(t, &calls) + "'}}\n"
	without.more += "http://127.0.0.1:1/'}}\n"
	a := with.site("a")
	a.review("m")
	greets := func(s *site, finish func(run toolcrib.RunID) *site) (said string, notices []string) {
		t.Helper()
		d, err := s.pool.Start(t.Context(), ann, s.own("slow"))
		if err != nil {
			t.Fatal(err)
		}
		s.becomes(d.ID(), toolcrib.StatusWaitingForApproval)
		child := s.record(d.ID()).Pending.Run
		s = finish(child)
		s.becomes(d.ID(), toolcrib.StatusCompleted)
		for _, run := range []toolcrib.RunID{child, d.ID()} {
			for e, err := range s.s.Env.Store.Read(t.Context(), run, 0) {
				if err != nil {
					t.Fatal(err)
				}
				switch b := e.Body.(type) {
				case *journal.ToolResult:
					if run == child {
						said = string(b.Status) + " " + b.Content
					}
				case *journal.Notice:
					if b.Code == mcpset.NoticeServerMissing {
						notices = append(notices, b.Message)
					}
				}
			}
		}
		return said, notices
	}
	said, notices := greets(a, func(run toolcrib.RunID) *site { a.approve(run); return a })
	if !strings.HasPrefix(said, "ok") || !strings.Contains(said, "hello") {
		t.Errorf("with its server it says %q, %q", said, notices)
	}
	said, notices = greets(a, func(run toolcrib.RunID) *site {
		a.decide(run)
		a.stop()
		return without.site("a")
	})
	if !strings.HasPrefix(said, "refused") || !strings.Contains(said, "tool not found: m__hit") || calls.Load() != 1 {
		t.Errorf("without its server it says %q after %d calls", said, calls.Load())
	}
	if len(notices) != 1 || !strings.Contains(notices[0], "MCP server m does not run, so its tools are missing: ") {
		t.Errorf("the notices are %q", notices)
	}
}
