package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/toolcrib/toolcrib"
)

// RunFiles tests an implementation of [toolcrib.Files]. open returns the same files each time, as another
// process has them.
func RunFiles(t *testing.T, open func() toolcrib.Files) {
	t.Run("Files", func(t *testing.T) { files(t, open) })
}

func files(t *testing.T, open func() toolcrib.Files) {
	a, b := open(), open()
	ctx := t.Context()
	put := func(of toolcrib.Files, name string, content []byte) {
		t.Helper()
		must(t, of.ChangeFile(ctx, name, func([]byte) ([]byte, error) { return content, nil }))
	}
	want := func(name, content string) {
		t.Helper()
		for _, of := range []toolcrib.Files{a, b} {
			if got, err := of.File(ctx, name); err != nil || string(got) != content {
				t.Errorf("%s: %.50q, %v; want %.50q", name, got, err, content)
			}
		}
	}
	gone := func(name string) {
		t.Helper()
		for _, of := range []toolcrib.Files{a, b} {
			if got, err := of.File(ctx, name); !errors.Is(err, toolcrib.ErrNotFound) {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		}
	}
	gone("one.age")
	gone("notes/ann/x.json")
	put(a, "one.age", []byte("1"))
	want("one.age", "1")
	put(b, "one.age", []byte("\x00\xff2"))
	want("one.age", "\x00\xff2")
	must(t, a.ChangeFile(ctx, "one.age", func(before []byte) ([]byte, error) { return append(before, '3'), nil }))
	want("one.age", "\x00\xff23")
	put(a, "empty", []byte{})
	must(t, b.ChangeFile(ctx, "empty", func(before []byte) ([]byte, error) {
		if before == nil {
			t.Error("an empty file is nil")
		}
		return before, nil
	}))
	want("empty", "")

	refused := errors.New("refused")
	if err := a.ChangeFile(ctx, "one.age", func([]byte) ([]byte, error) { return []byte("x"), refused }); !errors.Is(err,
		refused) {
		t.Errorf("an error of change: %v", err)
	}
	want("one.age", "\x00\xff23")
	put(b, "one.age", nil)
	gone("one.age")
	put(a, "one.age", nil) // it is removed already
	largest := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	put(a, "large", largest)
	want("large", string(largest))
	if err := a.ChangeFile(ctx, "large", func([]byte) ([]byte, error) { return append(largest, 0), nil }); err == nil {
		t.Error("a file that is too large is stored")
	}
	want("large", string(largest))

	for _, name := range []string{
		"", ".", "..", "../x", "/x", "x/", "x//y", "x/../y", ".x", "x/.y", `x\y`, "x\x00",
		strings.Repeat("x", 256),
	} {
		err := a.ChangeFile(ctx, name, func([]byte) ([]byte, error) { return []byte("x"), nil })
		if toolcrib.CodeOf(err) != toolcrib.CodeBadRequest {
			t.Errorf("%q: %v", name, err)
		}
		if _, err := a.File(ctx, name); toolcrib.CodeOf(err) != toolcrib.CodeBadRequest {
			t.Errorf("%q: %v", name, err)
		}
	}
	filesInFolders(t, a, b, put)
	filesAtOnce(t, open)
}

func filesInFolders(t *testing.T, a, b toolcrib.Files, put func(toolcrib.Files, string, []byte)) {
	list := func(of toolcrib.Files, folder, want string) {
		t.Helper()
		found, err := of.FilesIn(t.Context(), folder)
		if got := fmt.Sprintf("%s", found); err != nil || got != want {
			t.Errorf("in %s: %s, %v; want %s", folder, got, err, want)
		}
	}
	list(a, "notes", "map[]")
	for _, name := range []string{
		"notes/ann/b~1.json", "notes/ann/a.json", "notes/ann2/c", "notes/ann-x", "notes",
		"notes/an/d",
	} {
		if name != "notes" { // on disk it is the folder
			put(a, name, []byte(name))
		}
	}
	list(b, "notes/ann", "map[a.json:notes/ann/a.json b~1.json:notes/ann/b~1.json]")
	list(b, "notes/an", "map[d:notes/an/d]")
	list(b, "notes", "map[ann-x:notes/ann-x]")
	put(b, "notes/ann/a.json", nil)
	list(a, "notes/ann", "map[b~1.json:notes/ann/b~1.json]")
}

// filesAtOnce changes files of one folder from several processes. None loses a change, and what change reads of
// the folder stays as it is until its result is stored.
func filesAtOnce(t *testing.T, open func() toolcrib.Files) {
	const writers, times = 4, 5
	var all sync.WaitGroup
	for w := range writers {
		of := open()
		all.Go(func() {
			for range times {
				err := of.ChangeFile(t.Context(), "sum/total",
					func(before []byte) ([]byte, error) { return append(before, 'x'), nil })
				if err == nil {
					err = of.ChangeFile(t.Context(), fmt.Sprintf("sum/of%d", w), func(before []byte) ([]byte, error) {
						others, err := of.FilesIn(t.Context(), "sum")
						n := 0
						for name, content := range others {
							if name != "total" {
								n += len(content)
							}
						}
						return append(before, strings.Repeat("y", min(1, max(0, writers*times/2-n)))...), err
					})
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	found, err := open().FilesIn(t.Context(), "sum")
	n := -len(found["total"])
	for _, content := range found {
		n += len(content)
	}
	if err != nil || len(found["total"]) != writers*times || n != writers*times/2 {
		t.Errorf("%d changes of %d are left, and %d of %d together, %v", len(found["total"]), writers*times, n,
			writers*times/2, err)
	}
}
