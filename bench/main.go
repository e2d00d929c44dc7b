package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "mock" {
		exit(mockMain())
		return
	}
	runs := flag.Int("runs", 300, "runs of each kind")
	cold := flag.String("cold", "", "toolcrib `binary` whose cold start is measured")
	profile := flag.String("profile", "", "write a CPU profile of one kind of run to this `file`, and measure nothing else")
	which := flag.Int("kind", 1, "with -profile: 0 hand-written, 1 in memory, 2 hand-written with SQLite, 3 SQLite")
	stream := flag.Bool("stream", false, "with -profile: as an event stream")
	flag.Parse()
	if *profile != "" {
		exit(profileOf(*profile, *which, *stream, *runs))
		return
	}
	exit(bench(*runs, *cold))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// kind is one way to do the work.
type kind struct {
	name string
	run  func(ctx context.Context, model string, rounds int) (string, error)
}

// figure is what a kind cost, per run.
type figure struct {
	cpu, wall time.Duration
	allocs    uint64
	bytes     uint64
}

func bench(runs int, cold string) error {
	url, stop, err := startMock()
	if err != nil {
		return err
	}
	defer stop()
	dir, err := os.MkdirTemp("", "toolcrib-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fmt.Printf("%s, %d CPUs; 5 model calls and 5 tool calls a run; ratios to the hand-written loop of the same row\n\n", runtime.Version(), runtime.NumCPU())
	fmt.Printf("%-28s %10s %8s %8s %10s %10s\n", "", "CPU a run", "CPU ×", "wall ×", "allocs", "bytes")
	for _, stream := range []bool{false, true} {
		for _, at := range []int{1, 32} {
			if err := compare(url, dir, stream, at, runs); err != nil {
				return err
			}
		}
	}
	if err := rounds(url, dir); err != nil {
		return err
	}
	if err := bigResult(); err != nil {
		return err
	}
	if cold != "" {
		return coldStart(cold)
	}
	return nil
}

// compare measures all kinds beside each other, turn by turn, and prints the
// medians: a noisy machine hits all of them alike.
func compare(url, dir string, stream bool, at, runs int) error {
	kinds, closeAll, err := kindsOf(url, filepath.Join(dir, fmt.Sprintf("%v-%d", stream, at)), stream)
	if err != nil {
		return err
	}
	defer closeAll()
	const turns = 7
	figures := make([][]figure, len(kinds))
	for turn := range turns + 1 {
		for i, k := range kinds {
			f, err := measure(k, "rounds-5", 5, at, max(runs/turns, at))
			if err != nil {
				return fmt.Errorf("%s: %w", k.name, err)
			}
			if turn > 0 { // the first warms up
				figures[i] = append(figures[i], f)
			}
		}
	}
	mode := map[bool]string{false: "JSON", true: "SSE"}[stream]
	fmt.Printf("%s, %d at once\n", mode, at)
	var floor, synced figure
	for i, k := range kinds {
		f := median(figures[i])
		base := floor
		switch i {
		case 0:
			floor, base = f, f
		case 2:
			synced, base = f, f
		case 3:
			base = synced
		}
		fmt.Printf("  %-26s %10s %8.2f %8.2f %10d %10d\n", k.name, f.cpu.Round(time.Microsecond), ratio(f.cpu, base.cpu), ratio(f.wall, base.wall), f.allocs, f.bytes)
	}
	return nil
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }

// kindsOf makes the four kinds: floor, toolcrib in memory, floor with a synced
// event each, toolcrib with SQLite.
func kindsOf(url, dir string, stream bool) ([]kind, func(), error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, err
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	db, err := floorSQLite(filepath.Join(dir, "floor.db"))
	if err != nil {
		return nil, nil, err
	}
	memory, err := newMemoryCrib(url, stream)
	if err != nil {
		return nil, nil, err
	}
	durable, err := newSQLiteCrib(url, stream, dir)
	if err != nil {
		return nil, nil, err
	}
	return []kind{
		{"hand-written", func(ctx context.Context, model string, _ int) (string, error) {
			return floorRun(ctx, client, url, model, stream, nil)
		}},
		{"toolcrib, journal in memory", memory.run},
		{"hand-written, synced SQLite", func(ctx context.Context, model string, _ int) (string, error) {
			return floorRun(ctx, client, url, model, stream, floorNote(db, "run"))
		}},
		{"toolcrib, SQLite", durable.run},
	}, func() { _ = db.Close(); _ = durable.stop() }, nil
}

// measure runs one kind n times, at so many at once.
func measure(k kind, model string, rounds, at, n int) (figure, error) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	cpu, began := cpuTime(), time.Now()
	errs := make(chan error, at)
	var wg sync.WaitGroup
	for i := range at {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for j := i; j < n; j += at {
				answer, err := k.run(context.Background(), model, rounds)
				if err == nil && answer != mockAnswer {
					err = fmt.Errorf("another answer: %q", answer)
				}
				if err != nil {
					errs <- err
					return
				}
			}
		}()
	}
	wg.Wait()
	wall, used := time.Since(began), cpuTime()-cpu
	runtime.ReadMemStats(&after)
	select {
	case err := <-errs:
		return figure{}, err
	default:
	}
	per := uint64(n)
	return figure{
		cpu: used / time.Duration(n), wall: wall / time.Duration(n),
		allocs: (after.Mallocs - before.Mallocs) / per, bytes: (after.TotalAlloc - before.TotalAlloc) / per,
	}, nil
}

func median(fs []figure) figure {
	byCPU := slices.Clone(fs)
	slices.SortFunc(byCPU, func(a, b figure) int { return int(a.cpu - b.cpu) })
	byWall := slices.Clone(fs)
	slices.SortFunc(byWall, func(a, b figure) int { return int(a.wall - b.wall) })
	m := byCPU[len(byCPU)/2]
	m.wall = byWall[len(byWall)/2].wall
	return m
}

// rounds measures long runs: what 10, 50 and 200 rounds cost, beside the
// hand-written loop, and what the last of them costs.
func rounds(url, dir string) error {
	fmt.Printf("\nlong runs, JSON, journal in memory: CPU of the whole run, and of one round at its end\n")
	kinds, closeAll, err := kindsOf(url, filepath.Join(dir, "rounds"), false)
	if err != nil {
		return err
	}
	defer closeAll()
	tenth := map[int]time.Duration{}
	for _, n := range []int{10, 50, 200} {
		var whole, last [2]time.Duration
		for i := range 2 {
			long, err := cpuOf(kinds[i], n)
			if err != nil {
				return err
			}
			short, err := cpuOf(kinds[i], n-5)
			if err != nil {
				return err
			}
			whole[i], last[i] = long, (long-short)/5
			if n == 10 {
				tenth[i] = last[i]
			}
		}
		fmt.Printf("  %3d rounds: whole %8s, %.2f × the hand-written loop; a round %8s, %.2f × its round 10 (hand-written %.2f ×)\n",
			n, whole[1].Round(time.Microsecond), ratio(whole[1], whole[0]), last[1].Round(time.Microsecond), ratio(last[1], tenth[1]), ratio(last[0], tenth[0]))
	}
	return nil
}

func cpuOf(k kind, rounds int) (time.Duration, error) {
	var all []figure
	for range 9 {
		f, err := measure(k, fmt.Sprintf("rounds-%d", rounds), rounds, 1, max(1, 400/rounds))
		if err != nil {
			return 0, err
		}
		all = append(all, f)
	}
	return median(all).cpu, nil
}
