// Command gate measures what one decision of the gate costs in a house that has
// grown: 1,000 tools in 40 groups, 500 overrides, 200 grants, lists of agent,
// skill, run and worker with globs, an access token, remembered approvals, and 50
// rules over arguments. It prints nanoseconds and allocations of a decision and of
// an offer, and how often the availability and the people were read for it.
//
//	go run ./gate [-rounds N] [-cpuprofile FILE]
//
// Seconds differ from machine to machine, and a busy one only ever adds to them: so
// each figure is the smallest of several rounds, and the targets are those of the
// project (5 µs, 25 µs with rules, 500 µs for an offer).
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/pprof"
	"testing"
	"time"
)

func main() {
	rounds := flag.Int("rounds", 200, "rounds of which the smallest counts")
	profile := flag.String("cpuprofile", "", "write a profile of the processor to `FILE`")
	only := flag.String("only", "", "measure this one only")
	flag.Parse()
	if err := run(*rounds, *profile, *only); err != nil {
		fmt.Fprintln(os.Stderr, "gate:", err)
		os.Exit(1)
	}
}

func run(rounds int, profile, only string) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if profile != "" {
		f, err := os.Create(profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	dir, err := os.MkdirTemp("", "toolcrib-gate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	works, done, err := newWorks(ctx, dir)
	if err != nil {
		return err
	}
	defer done()
	fmt.Printf("%-44s %12s %10s %8s %14s %8s\n", "", "ns", "target ns", "allocs", "availability", "people")
	for _, w := range works {
		if only != "" && only != w.name {
			continue
		}
		if err := w.measure(ctx, rounds); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	return nil
}

// work is one thing that is measured.
type work struct {
	name   string
	target time.Duration // 0 = none
	do     func(context.Context) error
	reads  *reads
}

// roundTime is how long one round takes at least: so short that on a busy machine
// some of them are left alone.
const roundTime = 2 * time.Millisecond

func (w work) measure(ctx context.Context, rounds int) error {
	if err := w.do(ctx); err != nil { // what is made once is made
		return err
	}
	before := *w.reads
	if err := w.do(ctx); err != nil {
		return err
	}
	availability, people := w.reads.availability-before.availability, w.reads.people-before.people
	var failed error
	allocs := testing.AllocsPerRun(100, func() {
		if err := w.do(ctx); err != nil {
			failed = err
		}
	})
	best := time.Duration(1<<63 - 1)
	for range rounds {
		n, begin := 0, time.Now()
		for n == 0 || time.Since(begin) < roundTime {
			if err := w.do(ctx); err != nil {
				return err
			}
			n++
		}
		best = min(best, time.Since(begin)/time.Duration(n))
	}
	target := ""
	if w.target > 0 {
		target = fmt.Sprint(w.target.Nanoseconds())
	}
	fmt.Printf("%-44s %12d %10s %8.0f %14d %8d\n", w.name, best.Nanoseconds(), target, allocs, availability, people)
	return failed
}
