package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store"
)

func TestPruneOptionsCheck(t *testing.T) {
	runs := []toolcrib.RunID{"run_a"}
	for name, c := range map[string]struct {
		o    store.PruneOptions
		good bool
	}{
		"runs":         {store.PruneOptions{Runs: runs, By: "ann"}, true},
		"age":          {store.PruneOptions{OlderThan: time.Hour, By: "ann"}, true},
		"nothing":      {store.PruneOptions{By: "ann"}, false},
		"nobody":       {store.PruneOptions{Runs: runs}, false},
		"negative age": {store.PruneOptions{OlderThan: -time.Hour, By: "ann"}, false},
		"both":         {store.PruneOptions{Runs: runs, OlderThan: time.Hour, By: "ann"}, false},
	} {
		if err := c.o.Check(); (err == nil) != c.good {
			t.Errorf("%s: error %v, want good %v", name, err, c.good)
		}
	}
}

func TestOpenRunError(t *testing.T) {
	var err error = &store.OpenRunError{Run: "run_c", Open: "run_p", Status: toolcrib.StatusRunning}
	want := "run run_c is part of run run_p, which has not ended (running) and needs it; resume or cancel that one first"
	if err.Error() != want || !errors.Is(err, toolcrib.ErrConflict) {
		t.Errorf("%v, want %s", err, want)
	}
}
