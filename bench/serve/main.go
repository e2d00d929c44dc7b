// Command serve measures what a server costs: runs over HTTP beside the same runs in a program
// that uses the library, streams, parked runs, lists, a server that has nothing to do, and several servers
// with one PostgreSQL.
//
//	go build -o toolcrib ../../cmd/toolcrib && go run . -toolcrib ./toolcrib [-only ROW,…] [-stored N]
//
// The server is the shipped program in a process of its own, and so is the program that uses the
// library; the model is in this one, so that the CPU of the two is what they cost. It reads
// /proc, so it needs Linux. Each row says what the project aims at.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib/bench/stat"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "library" {
		exit(library(os.Args[2], os.Args[3]))
		return
	}
	b := &bench{}
	binary := flag.String("toolcrib", "toolcrib", "the `binary`")
	only := flag.String("only", "", "measure these `rows` only, separated by commas")
	flag.IntVar(&b.runs, "runs", 300, "runs in a turn")
	flag.IntVar(&b.turns, "turns", 7, "turns, of which medians are printed")
	flag.IntVar(&b.streams, "streams", 1000, "streams that are open")
	flag.IntVar(&b.parked, "parked", 10_000, "runs that wait, and runs that are to continue")
	flag.IntVar(&b.stored, "stored", 100_000, "runs in the lists")
	flag.StringVar(&b.kept, "kept", "", "`folder` that keeps them, for the next time")
	flag.IntVar(&b.rate, "rate", 4, "runs a second that each of several servers is asked for")
	flag.DurationVar(&b.long, "long", 20*time.Second, "how long several servers are asked")
	flag.Parse()
	var err error
	if b.binary, err = filepath.Abs(*binary); err == nil {
		err = b.measure(strings.FieldsFunc(*only, func(r rune) bool { return r == ',' }))
	}
	exit(err)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench/serve:", err)
		os.Exit(1)
	}
}

// bench is what is measured, and with what.
type bench struct {
	binary                               string
	runs, turns, streams, parked, stored int
	rate                                 int
	long                                 time.Duration
	kept                                 string
	model                                *model
}

func (b *bench) measure(only []string) (err error) {
	if b.model, err = startModel(); err != nil {
		return err
	}
	defer b.model.close()
	for _, row := range []struct {
		name string
		do   func(context.Context, string) error
	}{
		{"idle", b.idle},
		{"runs", b.overHTTP},
		{"streams", b.manyStreams},
		{"chats", b.manyChats},
		{"parked", b.manyParked},
		{"queued", b.manyQueued},
		{"lists", b.manyStored},
		{"servers", b.manyServers},
		{"lost", b.lostServers},
		{"lock", b.lock},
	} {
		if len(only) > 0 && !slices.Contains(only, row.name) {
			continue
		}
		dir, err := os.MkdirTemp("", "toolcrib-bench-")
		if err == nil {
			err = errors.Join(row.do(context.Background(), dir), os.RemoveAll(dir))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", row.name, err)
		}
	}
	return nil
}

// row prints a figure and its target.
func row(name, figure, aim string) { fmt.Printf("%-44s %-34s %s\n", name, figure, aim) }

// idle measures a server without requests.
func (b *bench) idle(ctx context.Context, dir string) error {
	s, err := b.start(ctx, dir, false)
	if err != nil {
		return err
	}
	defer s.kill()
	if err := b.answered(ctx, s, "rounds", nil); err != nil { // it has worked
		return err
	}
	const quiet = 20 * time.Second
	time.Sleep(5 * time.Second)
	from, began := s.cpu(), time.Now()
	time.Sleep(quiet)
	share := float64(s.cpu()-from) / float64(time.Since(began))
	row("idle server", fmt.Sprintf("%d MiB resident, %.2f %% of a core", s.resident()>>20, 100*share), "80 MiB, 0.5 %")
	return nil
}

// overHTTP compares runs over HTTP with the same ones in the library, turn by turn.
func (b *bench) overHTTP(ctx context.Context, dir string) error {
	s, err := b.start(ctx, dir, false)
	if err != nil {
		return err
	}
	defer s.kill()
	l, err := b.startLibrary(ctx, dir)
	if err != nil {
		return err
	}
	defer l.kill()
	var http, lib []time.Duration
	for turn := range b.turns + 1 {
		overHTTP, err := s.costs(b.runs, func() error { return b.answered(ctx, s, "rounds", nil) })
		if err != nil {
			return err
		}
		library, err := l.costs(b.runs, l.run)
		if err != nil {
			return err
		}
		if turn > 0 { // the first warms up
			http, lib = append(http, overHTTP), append(lib, library)
		}
	}
	row("a run over HTTP, CPU", fmt.Sprintf("%s, %.2f × the library's %s", stat.Median(http).Round(time.Microsecond),
		stat.Ratio(http, lib), stat.Median(lib).Round(time.Microsecond)), "1.5 ×")
	return nil
}
