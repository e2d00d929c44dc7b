package main

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"github.com/toolcrib/toolcrib/bench/stat"
)

// marks notes the CPU time at each tool call of one run.
type marks struct{ at []time.Duration }

func (m *marks) note() { m.at = append(m.at, stat.CPU()) }

// between is what a round cost from one round to another, as a mean; the first round
// has two calls.
func (m *marks) between(from, to int) time.Duration {
	return (m.at[to] - m.at[from]) / time.Duration(to-from)
}

// windows returns the rounds whose means are reported as rounds 10, 50 and 200.
func windows() [3][2]int { return [3][2]int{{5, 15}, {40, 60}, {170, 199}} }

// longRuns is how many runs of 200 rounds a round's cost is taken from.
const longRuns = 25

// rounds measures long runs: what 10, 50 and 200 rounds cost beside the hand-written
// loop, and what one round costs early and late in a run. A round is too short to be
// measured by itself: it is the mean of the rounds around it, and of that the median
// over many runs.
func rounds(url, dir string) error {
	fmt.Printf("\nlong runs, JSON, journal in memory\n")
	kinds, closeAll, err := kindsOf(url, filepath.Join(dir, "rounds"), false)
	if err != nil {
		return err
	}
	defer closeAll()
	for _, n := range []int{10, 50, 200} {
		all, err := inTurns(kinds[:2], fmt.Sprintf("rounds-%d", n), n, 1, max(1, 400/n))
		if err != nil {
			return err
		}
		hand, crib := all[0], all[1]
		fmt.Printf("  %3d rounds: CPU %8s, %.2f × the hand-written loop; %d allocations, %d bytes (hand-written %d, %d)\n",
			n, stat.Median(crib.cpu).Round(time.Microsecond), stat.Ratio(crib.cpu, hand.cpu), crib.allocs, crib.bytes,
			hand.allocs, hand.bytes)
	}
	return oneRound(url)
}

// oneRound measures what a round costs early and late in a run of 200.
func oneRound(url string) error {
	const length = 200
	m := &marks{}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	defer client.CloseIdleConnections()
	memory, err := newCrib(url, false, &perRun{}, func() error { return nil }, m.note)
	if err != nil {
		return err
	}
	kinds := []kind{
		{"hand-written", func(ctx context.Context, model string, _ int) (string, error) {
			return floorRun(ctx, client, url, model, false, func(kind string, _ any) error {
				if kind == "result" {
					m.note()
				}
				return nil
			})
		}},
		{"toolcrib", memory.run},
	}
	var cost [2][3][]time.Duration // by kind and window
	for run := range longRuns + 1 {
		for i, k := range kinds {
			m.at = make([]time.Duration, 0, length+1)
			if answer, err := k.run(context.Background(), fmt.Sprintf("rounds-%d", length), length); err != nil ||
				answer != mockAnswer {
				return fmt.Errorf("%s: %q %w", k.name, answer, err)
			}
			for w, window := range windows() {
				if run > 0 { // the first warms up
					cost[i][w] = append(cost[i][w], m.between(window[0], window[1]))
				}
			}
		}
	}
	for w, window := range windows() {
		var mid, growth [2]time.Duration
		for i := range mid {
			mid[i], growth[i] = stat.Median(cost[i][w]), stat.Median(cost[i][0])
		}
		fmt.Printf("  a round, of rounds %3d to %3d: CPU %8s, %.2f × the hand-written loop's; %.2f × its round 10 (hand-written %.2f ×)\n",
			window[0], window[1], mid[1].Round(time.Microsecond), ratio(mid[1], mid[0]), ratio(mid[1], growth[1]),
			ratio(mid[0], growth[0]))
	}
	return nil
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }
