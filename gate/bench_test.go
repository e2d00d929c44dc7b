package gate_test

import (
	"fmt"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

func thousand(b *testing.B) *gate.Gate {
	b.Helper()
	tools := make([]toolcrib.Tool, 1000)
	for i := range tools {
		spec := withSchema(reads(fmt.Sprintf("server%02d__tool_%03d", i%50, i)), strict)
		spec.Group = fmt.Sprintf("server%02d", i%50)
		tools[i] = tool(spec)
	}
	return gateOf(b, gate.Options{Tools: tools, Availability: gate.Overrides{Tools: map[string]bool{"server01__tool_001": false}}})
}

func narrowed() gate.Scope {
	s := wide()
	s.AgentTools = []string{"server0*", "server1*", "server2*", "server3*", "server4*"}
	s.RunTools = []string{"*__tool_*"}
	return s
}

func BenchmarkJudge1000(b *testing.B) {
	g := thousand(b)
	f := offering(g)
	turn := []toolcrib.ToolCall{call("1", "server07__tool_007", `{"n":3,"path":"notes.txt"}`)}
	s := narrowed()
	b.ReportAllocs()
	for b.Loop() {
		if v := g.Judge(b.Context(), alice(), s, f, turn); v[0].Refused() {
			b.Fatal(v[0].Message)
		}
	}
}

// BenchmarkWorker1000 is a run three below another one, with all tools passed on by name
// and the skills of each run above.
func BenchmarkWorker1000(b *testing.B) {
	g := thousand(b)
	f := offering(g)
	s := narrowed()
	s.WorkerTools, s.Depth, s.MaxDepth = g.Names(), 3, 9
	for range 3 {
		s.AboveSkills = append(s.AboveSkills, []string{"server0*", "server1*", "server2*", "server3*", "server4*"})
	}
	s.Worker = &journal.WorkerLimits{Hops: 9, CostCapUSD: 1, CostCapMode: "enforce"}
	turn := []toolcrib.ToolCall{call("1", "server07__tool_007", `{"n":3,"path":"notes.txt"}`)}
	b.Run("judge", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if v := g.Judge(b.Context(), alice(), s, f, turn); v[0].Refused() {
				b.Fatal(v[0].Message)
			}
		}
	})
	b.Run("offer", func(b *testing.B) {
		for b.Loop() {
			if o, err := g.Offer(b.Context(), alice(), s); err != nil || len(o.Specs) != 999 {
				b.Fatal(len(o.Specs), err)
			}
		}
	})
}

func BenchmarkJudgeTurnOf64(b *testing.B) {
	g := thousand(b)
	f := offering(g)
	var turn []toolcrib.ToolCall
	for i := range 64 {
		turn = append(turn, call(fmt.Sprint(i), "server07__tool_007", `{"n":3,"path":"notes.txt"}`))
	}
	s := narrowed()
	b.ReportAllocs()
	for b.Loop() {
		if v := g.Judge(b.Context(), alice(), s, f, turn); v[63].Refused() {
			b.Fatal(v[63].Message)
		}
	}
}

func BenchmarkJudgeRefused1000(b *testing.B) {
	g := thousand(b)
	f := offering(g)
	turn := []toolcrib.ToolCall{call("1", "server07__tool_7", `{}`)}
	s := narrowed()
	b.ReportAllocs()
	for b.Loop() {
		if v := g.Judge(b.Context(), alice(), s, f, turn); !v[0].Refused() {
			b.Fatal("allowed")
		}
	}
}

func BenchmarkOffer1000(b *testing.B) {
	g := thousand(b)
	s := narrowed()
	b.ReportAllocs()
	for b.Loop() {
		if o, err := g.Offer(b.Context(), alice(), s); err != nil || len(o.Specs) != 999 {
			b.Fatal(len(o.Specs), err)
		}
	}
}

func BenchmarkExplain1000(b *testing.B) {
	g := thousand(b)
	s := narrowed()
	for b.Loop() {
		if x := g.Explain(b.Context(), alice(), s); len(x) != 1000 {
			b.Fatal(len(x))
		}
	}
}

// BenchmarkOfferFound is the offer of a request, with 20 tools and with 1,000 of 50 servers that
// are found by find_tools.
func BenchmarkOfferFound(b *testing.B) {
	for _, n := range []int{20, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			tools := []toolcrib.Tool{finds(reads("find_tools"))}
			for i := range n {
				tools = append(tools, tool(from("mcp:server", withSchema(reads(fmt.Sprintf("server%02d__tool_%03d", i%50, i)), strict))))
			}
			g := gateOf(b, gate.Options{Tools: tools, Availability: gate.Overrides{}})
			s := wide()
			s.FindAbove = 32 << 10
			b.ReportAllocs()
			for b.Loop() {
				o, err := g.Offer(b.Context(), alice(), s)
				if shown := o.Record.Shown([]string{"server07__tool_007"}); err != nil || len(shown) > 2 {
					b.Fatal(len(shown), err)
				}
			}
		})
	}
}
