package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib/bench/stat"
	"github.com/toolcrib/toolcrib/internal/postgrestest"
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
	which := flag.Int("kind", 1, "with -profile: 0 hand-written, 1 in memory, 2 hand-written with SQLite, 3 SQLite, 4 raw wire, 5 PostgreSQL")
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
	cpu, wall     time.Duration
	allocs, bytes uint64
}

// figures are those of a kind, by turn; the allocations are those of the last.
type figures struct {
	cpu, wall     []time.Duration
	allocs, bytes uint64
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
	if err := firstToken(url, runs); err != nil {
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

// compare measures all kinds, and prints the medians.
func compare(url, dir string, stream bool, at, runs int) error {
	kinds, closeAll, err := kindsOf(url, filepath.Join(dir, fmt.Sprintf("%v-%d", stream, at)), stream)
	if err != nil {
		return err
	}
	defer closeAll()
	all, err := inTurns(kinds, "rounds-5", 5, at, max(runs/turns, at))
	if err != nil {
		return err
	}
	mode := map[bool]string{false: "JSON", true: "SSE"}[stream]
	fmt.Printf("%s, %d at once\n", mode, at)
	for i, k := range kinds {
		f, base := all[i], all[0]
		if i == 2 || i == 3 || i == 5 {
			base = all[2]
		}
		fmt.Printf("  %-28s %10s %8.2f %8.2f %10d %10d\n", k.name, stat.Median(f.cpu).Round(time.Microsecond),
			stat.Ratio(f.cpu, base.cpu), stat.Ratio(f.wall, base.wall), f.allocs, f.bytes)
	}
	if len(kinds) > 5 {
		low, mid, high := stat.Ratios(all[5].cpu, all[3].cpu)
		fmt.Printf("  PostgreSQL beside SQLite: CPU %.2f × (%.2f to %.2f)\n", mid, low, high)
	}
	return nil
}

// turns is how many times each kind is measured.
const turns = 11

// inTurns measures kinds alternately, so that noise of the machine affects all of them alike.
func inTurns(kinds []kind, model string, rounds, at, n int) ([]figures, error) {
	all := make([]figures, len(kinds))
	for turn := range turns + 1 {
		for i, k := range kinds {
			f, err := measure(k, model, rounds, at, n)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", k.name, err)
			}
			if turn > 0 { // the first warms up
				all[i].cpu, all[i].wall = append(all[i].cpu, f.cpu), append(all[i].wall, f.wall)
			}
			all[i].allocs, all[i].bytes = f.allocs, f.bytes
		}
	}
	return all, nil
}

// kindsOf makes the kinds: floor, toolcrib in memory, floor with a synced event each, toolcrib with SQLite, the raw
// wire, and toolcrib with PostgreSQL, if it is installed.
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
	kinds := []kind{
		{"hand-written", func(ctx context.Context, model string, _ int) (string, error) {
			return floorRun(ctx, client, url, model, stream, nil)
		}},
		{"toolcrib, journal in memory", memory.run},
		{"hand-written, synced SQLite", func(ctx context.Context, model string, _ int) (string, error) {
			return floorRun(ctx, client, url, model, stream, floorNote(db, "run"))
		}},
		{"toolcrib, SQLite", durable.run},
		{"raw wire", raw.run},
	}
	stop := func() error { return nil }
	shared, err := newPostgresCrib(url, stream, dir)
	switch {
	case err == nil:
		kinds, stop = append(kinds, kind{"toolcrib, PostgreSQL", shared.run}), shared.stop
	case !errors.Is(err, postgrestest.ErrMissing):
		return nil, nil, err
	}
	return kinds, func() {
		raw.close()
		client.CloseIdleConnections()
		_, _, _ = db.Close(), durable.stop(), stop()
	}, nil
}

// measure runs one kind n times, at so many at once.
func measure(k kind, model string, rounds, at, n int) (figure, error) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	cpu, began := stat.CPU(), time.Now()
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
	wall, used := time.Since(began), stat.CPU()-cpu
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
