package service

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service/env"
)

// prepared is the record that a file tool journals before it writes.
func prepared(t *testing.T, path, before, after string) *journal.ToolStarted {
	t.Helper()
	hash := func(text string) string {
		if text == "" {
			return ""
		}
		return contentHash([]byte(text))
	}
	raw, err := json.Marshal(fileWrite{Path: path, Before: hash(before), After: contentHash([]byte(after))})
	if err != nil {
		t.Fatal(err)
	}
	return &journal.ToolStarted{Name: "write_file", Write: true, Prepared: raw}
}

// /undo also finds the writes of the runs that a turn has started, in the order of the writes.
func TestUndo_WritesOfRunsBelow(t *testing.T) {
	s := New(env.Options{DataDir: t.TempDir()})
	if err := s.Env.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	began, last := time.Now(), map[toolcrib.RunID]toolcrib.Seq{}
	at := func(run toolcrib.RunID, minute int, body toolcrib.Body) {
		t.Helper()
		event := toolcrib.Event{Time: began.Add(time.Duration(minute) * time.Minute), Body: body}
		if err := s.Env.Store.Append(t.Context(), run, last[run], event); err != nil {
			t.Fatal(err)
		}
		last[run]++
	}
	wrote := func(run toolcrib.RunID, minute int, id, path, before, after string, status toolcrib.ResultStatus) {
		t.Helper()
		started := prepared(t, path, before, after)
		started.ID = id
		at(run, minute, started)
		at(run, minute, &journal.ToolResult{ToolCallID: id, Name: "write_file", Status: status})
	}
	const parent, child, grandchild = toolcrib.RunID("run_1"), toolcrib.RunID("run_2"), toolcrib.RunID("run_3")
	for i, run := range []toolcrib.RunID{parent, child, grandchild} {
		at(run, 0, &journal.RunStarted{Format: journal.Format, Depth: i})
	}
	wrote(parent, 1, "call_1", "a.txt", "one", "two", toolcrib.ResultOK)
	at(parent, 2, &journal.ChildStarted{ID: "call_2", Run: child})
	wrote(child, 3, "call_1", "a.txt", "two", "three", toolcrib.ResultOK)
	wrote(child, 3, "call_2", "failed.txt", "", "x", toolcrib.ResultError)
	at(child, 4, &journal.ChildStarted{ID: "call_3", Run: grandchild})
	wrote(grandchild, 5, "call_1", "b.txt", "", "new", toolcrib.ResultOK)
	at(parent, 6, &journal.ChildStarted{ID: "call_3", Run: "run_that_never_began"})
	wrote(parent, 7, "call_4", "b.txt", "new", "newer", toolcrib.ResultOK)

	files, err := s.WrittenBy(t.Context(), toolcrib.Principal{User: "local:root", Admin: true}, parent)
	if err != nil {
		t.Fatal(err)
	}
	want := []Written{
		{Run: parent, Call: "call_1", Path: "a.txt", Before: contentHash([]byte("one")), After: contentHash([]byte("three"))},
		{Run: grandchild, Call: "call_1", Path: "b.txt", Before: "", After: contentHash([]byte("newer"))},
	}
	if len(files) != len(want) {
		t.Fatalf("%d files were written, want %d", len(files), len(want))
	}
	for i, f := range files {
		if *f != want[i] {
			t.Errorf("%d: %+v, want %+v", i, *f, want[i])
		}
	}
}

// Only the file that a turn made is removed, when a judged call has emptied it.
func TestUndo_RemovesOnlyWhatWasMade(t *testing.T) {
	for _, test := range []struct {
		name         string
		make         func(path string) error
		emptied      string // content of the file before it was emptied
		path         string // path that the call emptied
		removed, err string
	}{
		{"made", func(path string) error { return os.WriteFile(path, nil, 0o600) }, "made", "made.txt", "yes", ""},
		{"gone", func(string) error { return nil }, "made", "made.txt", "yes", ""},
		{"written again since", func(path string) error { return os.WriteFile(path, []byte("x"), 0o600) }, "made", "made.txt", "", "something else"},
		{"written while it was asked about", func(path string) error { return os.WriteFile(path, nil, 0o600) }, "theirs", "made.txt", "", "something else"},
		{"another file", func(path string) error { return os.WriteFile(path, nil, 0o600) }, "made", "other.txt", "", "something else"},
		{"a folder", func(path string) error { return os.Mkdir(path, 0o700) }, "made", "made.txt", "", "something else"},
		{"a link", func(path string) error { return os.Symlink("kept.txt", path) }, "made", "made.txt", "", "something else"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "kept.txt"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "made.txt")
			if err := test.make(path); err != nil {
				t.Fatal(err)
			}
			made := &Written{Path: "made.txt", After: contentHash([]byte("made"))}
			err := made.Remove(dir, prepared(t, test.path, test.emptied, ""))
			if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("error %v, want %q", err, test.err)
			}
			_, err = os.Lstat(path)
			if os.IsNotExist(err) != (test.removed != "") {
				t.Errorf("after it: %v", err)
			}
			if _, err := os.Lstat(filepath.Join(dir, "kept.txt")); err != nil {
				t.Error(err)
			}
		})
	}
	if err := (&Written{Path: "x"}).Remove(t.TempDir(), nil); err == nil {
		t.Error("without a call that emptied it a file is removed")
	}
}
