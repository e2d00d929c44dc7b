package tui

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/toolcrib/toolcrib/journal"
)

// TestIssue5_8_History: what was typed is there again, bounded, and only for this
// user.
func TestIssue5_8_History(t *testing.T) {
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
	if info.Size() >= int64(len(data)) {
		t.Errorf("the file was not rewritten: %d bytes", info.Size())
	}
	if runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v", info.Mode())
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("beside the history lies %v, %v", left, err)
	}
}

// TestIssue5_8_FeedIsBounded: whoever puts never waits, and what streams does not
// pile up.
func TestIssue5_8_FeedIsBounded(t *testing.T) {
	f := newFeed()
	s := &Screen{feed: f}
	for range 100_000 {
		s.Frame(token("word "))
	}
	if items := f.take(); len(items) != 1 || len(items[0].(*streamItem).text) != 500_000 {
		t.Fatalf("100,000 pieces are %d items", len(items))
	}
	piece := token(strings.Repeat("x", 1<<20))
	for range 20 {
		s.Frame(piece)
	}
	if items := f.take(); len(items[0].(*streamItem).text) > maxWaitingBytes {
		t.Fatalf("%d bytes wait", len(items[0].(*streamItem).text))
	}
	for range 2 * maxWaiting {
		s.Frame(frame("usage", nil))
	}
	if n := len(f.take()); n != maxWaiting {
		t.Fatalf("%d items wait", n)
	}
	s.Frame(token("a"))
	s.Frame(thinking("b"))
	s.Frame(token("c"))
	if n := len(f.take()); n != 3 {
		t.Fatalf("text and thoughts are joined: %d", n)
	}
}

// TestIssue5_8_AskEndsWithItsTurn: a question is withdrawn when its turn ends.
func TestIssue5_8_AskEndsWithItsTurn(t *testing.T) {
	d := newDesk(t, 80, Look{})
	ctx, cancel := context.WithCancel(t.Context())
	var asked sync.WaitGroup
	asked.Add(1)
	var ok bool
	go func() {
		defer asked.Done()
		_, ok = d.screen.Ask(ctx, Question{Ask: approval(item("a"))})
	}()
	<-d.screen.feed.ready
	d.drain()
	if d.asking == nil {
		t.Fatal("nothing is asked")
	}
	cancel()
	asked.Wait()
	d.drain()
	if ok || d.asking != nil {
		t.Errorf("after the end of the turn: answered %v, asking %v", ok, d.asking)
	}
}

func TestIssue5_8_LookOf(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		goos string
		want Look
	}{
		{map[string]string{"TERM": "xterm", "LANG": "de_DE.UTF-8"}, "linux", Look{Color: true, Unicode: true}},
		{map[string]string{"TERM": "xterm", "LANG": "C.utf8"}, "linux", Look{Color: true, Unicode: true}},
		{map[string]string{"TERM": "xterm", "LANG": "de_DE.UTF-8", "LC_ALL": "C"}, "linux", Look{Color: true}},
		{map[string]string{"TERM": "xterm", "NO_COLOR": "1", "LC_CTYPE": "UTF-8"}, "darwin", Look{Unicode: true}},
		{map[string]string{"TERM": "dumb"}, "linux", Look{}},
		{nil, "windows", Look{Color: true, Unicode: true}},
	} {
		if got := LookOf(func(name string) string { return c.env[name] }, c.goos); got != c.want {
			t.Errorf("%v on %s: %+v, want %+v", c.env, c.goos, got, c.want)
		}
	}
}

// TestIssue5_8_Message shows a reply that did not stream, did in part, or was
// started again, once.
func TestIssue5_8_Message(t *testing.T) {
	for name, frames := range map[string][]journal.Frame{
		"not streamed": {message("The answer.")},
		"in part":      {token("The an"), message("The answer.")},
		"streamed":     {token("The an"), token("swer."), message("The answer.")},
		"only at the end": {
			frame(string(journal.KindDone), journal.DoneView{Done: journal.Done{Content: "The answer."}}),
		},
		"end repeats": {token("The answer."), message("The answer."), frame(string(journal.KindDone), journal.DoneView{Done: journal.Done{Content: "The answer."}})},
	} {
		d := newDesk(t, 80, Look{})
		d.work()
		d.frames(frames...)
		text := strings.ReplaceAll(strings.Join(d.prints, ""), "\n", "")
		if text != "| The answer." && name != "in part" || strings.Count(text, "answer") > 1 ||
			!strings.Contains(text, "swer.") {
			t.Errorf("%s: printed %q", name, text)
		}
	}
}
