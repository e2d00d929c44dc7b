package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/bench/stat"
	"github.com/toolcrib/toolcrib/journal"
)

// The delay that toolcrib adds to the first token of an answer: from the start of
// the run to the first text that a watcher sees, beside a hand-written request that
// looks for the same. Both stream from the same server, by turns.

// firstToken times so many runs of each, and prints the medians.
func firstToken(url string, n int) error {
	client := &http.Client{}
	c, err := newMemoryCrib(url, true)
	if err != nil {
		return err
	}
	var seen time.Time
	c.runner.Watch = func(_ toolcrib.RunID, f journal.Frame) {
		if f.Event == journal.FrameToken && seen.IsZero() {
			seen = time.Now()
		}
	}
	var hands, cribs []time.Duration
	for range n {
		took, err := handFirst(client, url)
		if err != nil {
			return err
		}
		hands = append(hands, took)
		began := time.Now()
		seen = time.Time{}
		if _, err := c.run(context.Background(), "rounds-1", 1); err != nil {
			return err
		}
		if seen.IsZero() {
			return errors.New("no token was shown")
		}
		cribs = append(cribs, seen.Sub(began))
	}
	hand, mine := stat.Median(hands), stat.Median(cribs)
	fmt.Printf("\nfirst token of a streamed answer (median of %d, a run from its start): "+
		"hand-written %s, toolcrib %s, added %s\n", n, hand, mine, mine-hand)
	return nil
}

// handFirst sends one request by hand and waits for the first text of the reply.
func handFirst(client *http.Client, url string) (time.Duration, error) {
	text := func(s string) *string { return &s }
	began := time.Now()
	body, err := json.Marshal(floorRequest{
		Model: "rounds-1", Tools: floorTools, Stream: true,
		Messages: []floorMessage{{Role: "system", Content: text(system)}, {Role: "user", Content: text(prompt)}},
	})
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequest(http.MethodPost, url+"/chat/completions", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	var took time.Duration
	sc := bufio.NewScanner(resp.Body)
	for sc.Scan() {
		line, ok := bytes.CutPrefix(sc.Bytes(), []byte("data: "))
		if !ok || took > 0 || string(line) == "[DONE]" {
			continue
		}
		var chunk floorReply
		if err := json.Unmarshal(line, &chunk); err != nil {
			return 0, err
		}
		if len(chunk.Choices) > 0 && chunk.Choices[0].Delta.Content != nil && *chunk.Choices[0].Delta.Content != "" {
			took = time.Since(began)
		}
	}
	if took == 0 {
		return 0, fmt.Errorf("no token came: %w", sc.Err())
	}
	return took, sc.Err()
}
