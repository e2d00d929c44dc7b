package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

func TestCountTool(t *testing.T) {
	counts := map[string]store.ToolCount{}
	for _, r := range []struct {
		name   string
		status toolcrib.ResultStatus
	}{
		{"read_file", toolcrib.ResultOK},
		{"read_file", toolcrib.ResultRefused},
		{"read_file", toolcrib.ResultError},
		{"exec-shell", toolcrib.ResultTimeout},
		{strings.Repeat("x", 64), toolcrib.ResultOK},
		{strings.Repeat("x", 65), toolcrib.ResultOK},
		{"", toolcrib.ResultOK},
		{"a b", toolcrib.ResultRefused},
		{"a\x00", toolcrib.ResultRefused},
	} {
		store.CountTool(counts, &journal.ToolResult{Name: r.name, Status: r.status})
	}
	store.CountTool(counts, &journal.ToolCall{ToolCall: toolcrib.ToolCall{Name: "read_file"}})
	want := map[string]store.ToolCount{
		"read_file": {Calls: 3, Errors: 2}, "exec-shell": {Calls: 1, Errors: 1}, strings.Repeat("x", 64): {Calls: 1},
	}
	if diff := cmp.Diff(want, counts); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

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
