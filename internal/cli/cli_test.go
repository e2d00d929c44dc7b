package cli

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/store"
)

func TestNearest(t *testing.T) {
	names := []string{"run", "runs", "tools", "list", "model", "max-iterations"}
	for word, want := range map[string]string{
		"rnu": "run", "lst": "list", "modle": "model", "max-iteration": "max-iterations", "elephant": "", "": "",
	} {
		if got := guard.Nearest(word, names); got != want {
			t.Errorf("%s: %q, want %q", word, got, want)
		}
	}
}

func TestParseSince(t *testing.T) {
	now := time.Date(2026, 5, 10, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"24h":                  now.Add(-24 * time.Hour),
		"7d":                   now.Add(-7 * 24 * time.Hour),
		"2026-05-01T00:00:00Z": time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC),
		"2026-05-01":           time.Date(2026, 5, 1, 0, 0, 0, 0, time.Local),
	} {
		got, err := parseSince(text, now)
		if err != nil || !got.Equal(want) {
			t.Errorf("%s: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "yesterday", "-1h", "-3d", "5"} {
		if got, err := parseSince(text, now); err == nil {
			t.Errorf("%q: %v, want an error", text, got)
		}
	}
}

func TestSplitListIsNeverNil(t *testing.T) {
	if got := splitList(" , "); got == nil || len(got) != 0 {
		t.Errorf("got %#v", got)
	}
	if got := splitList("a, b,"); len(got) != 2 || got[0] != "a" || got[1] != "b" {
		t.Errorf("got %#v", got)
	}
}

func TestExitCodes(t *testing.T) {
	for _, test := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("x"), 1},
		{usagef("x"), 2},
		{toolcrib.Errorf(toolcrib.CodeBadRequest, "x"), 2},
		{errTerminated, 143},
		{errHangup, 129},
		{context.Canceled, 130},
		{silent(4), 4},
		{store.ErrLocked, 1},
	} {
		if got := codeOf(test.err); got != test.want {
			t.Errorf("%v: %d, want %d", test.err, got, test.want)
		}
	}
}

// An output that has gone stops no command, and its exit code says so, as does that of one that is full.
func TestOutputFailure(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	o := &output{w: w}
	if n, err := o.Write([]byte("x")); n != 1 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	if err := o.failure(); !errors.Is(err, syscall.EPIPE) || o.unread() == nil {
		t.Errorf("a reader that has gone: %v", err)
	}
	full := &output{w: failing{}}
	_, _ = full.Write([]byte("x"))
	if full.failure() == nil {
		t.Error("a full disk goes untold")
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("no space left") }

// Every command says what it does and shows an example.
func TestEveryCommandHasExamples(t *testing.T) {
	a := newApp(os.Stdin, os.Stdout, os.Stderr)
	seen := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		seen++
		if cmd.Short == "" || !strings.Contains(cmd.Example, "toolcrib") {
			t.Errorf("%s: needs a short description and an example", cmd.CommandPath())
		}
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(a.root())
	if seen < 25 {
		t.Errorf("only %d commands", seen)
	}
}
