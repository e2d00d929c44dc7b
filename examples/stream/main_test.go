package main

import (
	"strings"
	"testing"
	"time"
)

func TestStream(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "")
	var out strings.Builder
	noon := func() time.Time { return time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC) }
	if err := run(t.Context(), &out, noon, "demo", "What time is it?"); err != nil {
		t.Fatal(err)
	}
	if want := "Let me see. [clock {}]\nIt is noon.\n"; out.String() != want {
		t.Errorf("it printed %q", out.String())
	}
}
