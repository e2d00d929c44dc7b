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
	only := flag.Bool("teams", false, "measure only several agents on one question")
	profile := flag.String("profile", "", "write a CPU profile of one kind of run to this `file`, and measure nothing else")
	which := flag.Int("kind", 1, "with -profile: 0 hand-written, 1 in memory, 2 hand-written with SQLite, 3 SQLite, 4 raw wire")
	stream := flag.Bool("stream", false, "with -profile: as an event stream")
	flag.Parse()
	if *profile != "" {
		exit(profileOf(*profile, *which, *stream, *runs))
		return
	}
	if *only {
		exit(onlyTeams(*runs))
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
	fmt.Printf("%s, %d CPUs; 5 model calls and 5 tool calls a run; ratios to the hand-written loop (with SQLite: to the one with SQLite), medians of turns\n\n", runtime.Version(), runtime.NumCPU())
	fmt.Printf("%-30s %10s %8s %8s %10s %10s\n", "", "CPU a run", "CPU ×", "wall ×", "allocs", "bytes")
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
	if err := printFirstToken(url, runs); err != nil {
		return err
	}
	if err := bigResult(); err != nil {
		return err
	}
	if err := teams(url, runs); err != nil {
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
	const turns = 11
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
	for i, k := range kinds {
		base := figures[0]
		if i == 2 || i == 3 {
			base = figures[2]
		}
		f := median(figures[i])
		fmt.Printf("  %-28s %10s %8.2f %8.2f %10d %10d\n", k.name, f.cpu.Round(time.Microsecond),
			paired(figures[i], base, cpuOf), paired(figures[i], base, wallOf), f.allocs, f.bytes)
	}
	return nil
}

func cpuOf(f figure) time.Duration  { return f.cpu }
func wallOf(f figure) time.Duration { return f.wall }

// paired is the median of the ratios of figures that were measured one right after
// the other.
func paired(a, b []figure, of func(figure) time.Duration) float64 {
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = ratio(of(a[i]), of(b[i]))
	}
	slices.Sort(ratios)
	return ratios[len(ratios)/2]
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }

// kindsOf makes the five kinds: floor, toolcrib in memory, floor with a synced
// event each, toolcrib with SQLite, and the raw wire.
func kindsOf(url, dir string, stream bool) ([]kind, func(), error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, err
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	db, err := floorSQLite(filepath.Join(dir, "floor.db"))
	if err != nil {
		return nil, nil, err
	}
	raw := &rawWire{url: url, stream: stream}
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
		{"raw wire", raw.run},
	}, func() { raw.close(); client.CloseIdleConnections(); _ = db.Close(); _ = durable.stop() }, nil
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
