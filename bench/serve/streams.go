package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib/bench/stat"
)

// manyStreams opens many streams of one run, and then has its model answer: each piece says when
// it was sent.
func (b *bench) manyStreams(ctx context.Context, dir string) error {
	s, err := b.start(ctx, dir, true)
	if err != nil {
		return err
	}
	defer s.kill()
	if err := b.answered(ctx, s, "rounds", nil); err != nil {
		return err
	}
	var watched run
	body := map[string]any{"agent": "waits", "input": "Begin.", "detach": true}
	if err := s.ask(ctx, "POST", "/api/runs", body, &watched); err != nil {
		return err
	}
	<-b.model.begun
	before, err := s.live(ctx)
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var first, each []time.Duration
	for range b.streams {
		c, r, err := s.events(ctx, watched.ID, 0)
		if err != nil {
			return err
		}
		defer c.Close()
		all.Go(func() {
			delays := read(c, r)
			mu.Lock()
			defer mu.Unlock()
			each = append(each, delays...)
			if len(delays) > 0 {
				first = append(first, delays[0])
			}
		})
	}
	with, err := s.live(ctx)
	if err != nil {
		return err
	}
	close(b.model.begin)
	all.Wait()
	if len(first) != b.streams || len(each) != ticks*b.streams {
		return fmt.Errorf("of %d streams %d had a token; %d tokens in all", b.streams, len(first), len(each))
	}
	kept := float64(with-before) / float64(b.streams) / 1024
	row(fmt.Sprintf("%d streams, heap of each", b.streams), fmt.Sprintf("%.1f KiB", kept), "64 KiB")
	row("  delay of the first token", spread(first), "p99 20 ms")
	row("  delay of every token", spread(each), "")
	return nil
}

func spread(all []time.Duration) string {
	return fmt.Sprintf("p50 %s, p99 %s", round(stat.Quantile(all, 50)), round(stat.Quantile(all, 99)))
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }

// read reads a stream to its end, and returns how late each token came.
func read(c net.Conn, r *bufio.Reader) (delays []time.Duration) {
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Minute))
	for {
		name, data, err := event(r)
		if err != nil || name == "done" || name == "error" {
			return delays
		}
		if name != "token" {
			continue
		}
		now := time.Now().UnixNano()
		var token struct{ Text string }
		if json.Unmarshal([]byte(data), &token) != nil {
			continue
		}
		for text := range strings.FieldsSeq(token.Text) {
			if at, err := strconv.ParseInt(text, 10, 64); err == nil {
				delays = append(delays, time.Duration(now-at))
			}
		}
	}
}
