// Command crash kills runs at every point that internal/crash knows of, and prints
// a table of what it found:
//
//	go run ./crash [-scenario NAME] [-pairs none|sparse|all] [-jobs N] [-seed N]
//
// The test of internal/crash takes a sample of the same.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/crash"
	"github.com/toolcrib/toolcrib/provider/script"
	"github.com/toolcrib/toolcrib/store/sqlite"
	"github.com/toolcrib/toolcrib/tool/ask"
	"github.com/toolcrib/toolcrib/tool/files"
	"github.com/toolcrib/toolcrib/tool/shell"
	"github.com/toolcrib/toolcrib/tool/spawn"
)

func main() {
	shell.Main()
	crash.Main(wiring())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := sweep(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "crash:", err)
		os.Exit(1)
	}
}

func wiring() crash.Wiring {
	return crash.Wiring{
		Open: func(ctx context.Context, path string) (crash.Store, error) {
			st, err := sqlite.Open(ctx, path, sqlite.Options{})
			if err != nil {
				return nil, err
			}
			return st, nil
		},
		Model: func(text string) (toolcrib.Model, error) { return script.New(script.Options{Bytes: []byte(text)}) },
		Tools: func() ([]toolcrib.Tool, error) {
			sh, err := shell.New(shell.Options{Mode: shell.ModeAny, Report: &shell.Report{Problem: "not for this test"}})
			return append(files.New(files.Options{}), ask.New(), sh), err
		},
		Spawn: func(names []string) toolcrib.Tool {
			var agents []spawn.Agent
			for _, name := range names {
				agents = append(agents, spawn.Agent{Name: name})
			}
			return spawn.New(agents)
		},
	}
}

func sweep(ctx context.Context) (err error) {
	only := flag.String("scenario", "", "only scenarios whose name has this in it")
	pairs := flag.String("pairs", string(crash.PairsSparse), "second kills: none, sparse (after appends, around effects; some of them, by the seed, where runs start one another) or all")
	jobs := flag.Int("jobs", runtime.NumCPU(), "stories at a time")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the moments of kills during an append or effect")
	dir := flag.String("dir", "", "folder for databases and files; empty = the system's for temporary files")
	flag.Parse()
	if !crash.Supported {
		return errors.New("a process cannot be killed here as kill -9 does; this needs Unix")
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp(*dir, "toolcrib-crash-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	h := &crash.Harness{Wiring: wiring(), Exe: exe, Dir: folder}
	r := rand.New(rand.NewPCG(*seed, 0))
	fmt.Printf("seed %d\n", *seed)
	fmt.Printf("%-26s %9s %7s %6s %8s %9s %8s %8s %12s %6s %7s\n",
		"scenario", "processes", "appends", "points", "one kill", "two kills", "too late", "in doubt", "told by tool", "failed", "seconds")
	total, began := crash.Row{Name: "all"}, time.Now()
	for _, sc := range crash.Scenarios() {
		if !strings.Contains(sc.Name, *only) {
			continue
		}
		start := time.Now()
		row, err := h.Sweep(ctx, sc, crash.Pairs(*pairs), *jobs, r, report)
		if err != nil {
			return err
		}
		write(row, time.Since(start))
		total.Add(row)
	}
	write(total, time.Since(began))
	if total.Failed > 0 {
		return fmt.Errorf("%d stories failed", total.Failed)
	}
	return nil
}

func write(r crash.Row, took time.Duration) {
	fmt.Printf("%-26s %9d %7d %6d %8d %9d %8d %8d %12d %6d %7.0f\n", r.Name, r.Processes, r.Appends, r.Points,
		r.Singles, r.Doubles, r.Missed, r.InDoubt, r.Told, r.Failed, took.Seconds())
}

func report(s *crash.Story) {
	fmt.Fprintf(os.Stderr, "FAILED %s\n", s)
	for _, p := range s.Problems {
		fmt.Fprintf(os.Stderr, "    %s\n", p)
	}
}
