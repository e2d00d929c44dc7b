package tui

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	tea "charm.land/bubbletea/v2"

	"github.com/toolcrib/toolcrib/journal"
)

// TestHistory: what was typed is there again, bounded, and only for this
// user.
func TestHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "chat", "history")
	h, err := OpenHistory(path)
	if err != nil || len(h.Lines()) != 0 {
		t.Fatalf("a new history: %v, %q", err, h.Lines())
	}
	h.Mask = func(line string) string { return strings.ReplaceAll(line, "secret", "***") }
	for i := range 3*maxHistory + 1 {
		if err := h.Add(fmt.Sprintf("line %d\nmore", i)); err != nil {
			t.Fatal(err)
		}
	}
	for _, line := range []string{"", "the secret", "the secret", strings.Repeat("x", maxHistoryLine+1)} {
		if err := h.Add(line); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(path)
	if err != nil || strings.Contains(string(data), "secret") {
		t.Fatalf("the file holds a secret, or: %v", err)
	}
	if err := os.WriteFile(path, append(data, "no JSON\n\"\"\n7\n\"cut of"...), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := OpenHistory(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := again.Lines()
	if len(lines) != maxHistory || lines[maxHistory-1] != "the ***" ||
		lines[maxHistory-2] != fmt.Sprintf("line %d\nmore", 3*maxHistory) {
		t.Fatalf("%d lines, the last are %q", len(lines), lines[max(len(lines)-2, 0):])
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(data), "\n"); n != maxHistory {
		t.Errorf("the file has %d lines", n)
	}
	if runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v", info.Mode())
	}
	left, err := os.ReadDir(filepath.Dir(path))
	left = slices.DeleteFunc(left, func(e os.DirEntry) bool { return e.Name() == ".lock" })
	if err != nil || len(left) != 1 {
		t.Errorf("beside the history lies %v, %v", left, err)
	}
}

// Conversations that add at the same moment lose nothing of one another.
func TestHistory_Together(t *testing.T) {
	path := filepath.Join(t.TempDir(), "chat", "history")
	const conversations, lines = 4, 10
	var adding sync.WaitGroup
	for c := range conversations {
		adding.Go(func() {
			h, err := OpenHistory(path)
			for i := range lines {
				if err == nil {
					err = h.Add(fmt.Sprint(c, i))
				}
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	adding.Wait()
	if h, err := OpenHistory(path); err != nil || len(h.Lines()) != conversations*lines {
		t.Errorf("%d lines are kept, %v", len(h.Lines()), err)
	}
}

// TestAskEndsWithItsTurn: a question is withdrawn when its turn ends.
func TestAskEndsWithItsTurn(t *testing.T) {
	d := newFixture(t, 80, false)
	ctx, cancel := context.WithCancel(t.Context())
	var asked sync.WaitGroup
	var ok bool
	shown := make(chan bool, 2)
	screen := &Screen{send: func(msg tea.Msg) { d.Update(msg); shown <- true }}
	asked.Go(func() { _, ok = screen.Ask(ctx, Question{Ask: approval(item("a"))}) })
	<-shown
	if d.asking == nil {
		t.Fatal("nothing is asked")
	}
	cancel()
	asked.Wait()
	if ok || d.asking != nil {
		t.Errorf("after the end of the turn: answered %v, asking %v", ok, d.asking)
	}
}

// TestMessage shows a reply that did not stream, did in part, or was
// started again, once.
func TestMessage(t *testing.T) {
	for name, frames := range map[string][]journal.Frame{
		"not streamed": {message("The answer.")},
		"in part":      {token("The an"), message("The answer.")},
		"streamed":     {token("The an"), token("swer."), message("The answer.")},
		"only at the end": {
			frame(string(journal.KindDone), journal.DoneView{Done: journal.Done{Content: "The answer."}}),
		},
		"end repeats": {token("The answer."), message("The answer."), frame(string(journal.KindDone), journal.DoneView{Done: journal.Done{Content: "The answer."}})},
	} {
		d := newFixture(t, 80, false)
		d.work()
		d.frames(frames...)
		text := strings.ReplaceAll(strings.Join(d.prints, ""), "\n", "")
		if text != "│ The answer." && name != "in part" || strings.Count(text, "answer") > 1 ||
			!strings.Contains(text, "swer.") {
			t.Errorf("%s: printed %q", name, text)
		}
	}
}
