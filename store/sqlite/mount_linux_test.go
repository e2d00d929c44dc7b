package sqlite_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// mounted mounts something over a folder for the time of the test.
func mounted(t *testing.T, source, folder, kind string, flags uintptr, data string) {
	t.Helper()
	err := syscall.Mount(source, folder, kind, flags, data)
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.ENODEV) {
		t.Skipf("this process may mount nothing: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(folder, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// On a full disk, also for root, an append that does not fit returns an error, nothing is stored
// partially, and the same store continues once there is room again.
func TestDiskFull(t *testing.T) {
	folder := t.TempDir()
	mounted(t, "tmpfs", folder, "tmpfs", 0, "size=3m")
	ballast := filepath.Join(folder, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "toolcrib.db")
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }() // a second Close does nothing
	after, err := fill(t.Context(), s, "run_a")
	if !errors.Is(err, store.ErrFull) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "make room") || after == 0 {
		t.Fatalf("after %d events: error %v, want ErrFull", after, err)
	}
	if err := s.Put(t.Context(), "run_a", "res_1", make([]byte, 3<<20)); !errors.Is(err, store.ErrFull) {
		t.Errorf("put: error %v, want ErrFull", err)
	}
	if err := s.Writable(t.Context()); !errors.Is(err, store.ErrFull) {
		t.Errorf("writable: error %v, want ErrFull", err)
	}
	if rec, err := s.Run(t.Context(), "run_a"); err != nil || rec.LastSeq != after {
		t.Errorf("the run is at event %d, error %v; want %d", rec.LastSeq, err, after)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Writable(t.Context()), healthy(t.Context(), s, "run_a", after)); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// No room for a new database: the error says so, and it is made when there is room.
func TestDiskFullAtFirst(t *testing.T) {
	folder := t.TempDir()
	mounted(t, "tmpfs", folder, "tmpfs", 0, "size=1m")
	ballast := filepath.Join(folder, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 1<<20-16<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "toolcrib.db")
	wantOpenError(t, path, sqlite.Options{}, store.ErrFull)
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	add(t, s, "run_a", 0, &journal.Notice{})
	verifyAll(t, s)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestDiskFullAtAnySize makes a database on disks of many sizes: where it does not fit, each attempt says that the
// disk is full, and it is made when there is room.
func TestDiskFullAtAnySize(t *testing.T) {
	for size := 4; size < 280; size += 4 {
		folder := t.TempDir()
		mounted(t, "tmpfs", folder, "tmpfs", 0, fmt.Sprintf("size=%dk", size))
		path := filepath.Join(folder, "toolcrib.db")
		for range 2 {
			s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
			if err != nil && !errors.Is(err, store.ErrFull) {
				t.Errorf("%d KiB: error %v, want ErrFull", size, err)
			}
			if err == nil {
				_ = s.Close() // it may have no room
			}
		}
		if err := syscall.Mount("", folder, "tmpfs", syscall.MS_REMOUNT, "size=8m"); err != nil {
			t.Fatal(err)
		}
		s := openAt(t, path, sqlite.Options{})
		verifyAll(t, s)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A file system that is mounted for reading, also for root: writing is refused with
// what to do, reading works, and nothing is changed; writable again, all is well.
func TestReadOnlyFileSystem(t *testing.T) {
	original := closedAt(t)
	folder := filepath.Dir(original)
	before, err := os.ReadFile(original)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("read-only", func(t *testing.T) {
		mounted(t, folder, folder, "", syscall.MS_BIND, "")
		if err := syscall.Mount("", folder, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
			t.Fatal(err)
		}
		wantOpenError(t, original, sqlite.Options{}, store.ErrReadOnly)
		wantOpenError(t, filepath.Join(folder, "new", "toolcrib.db"), sqlite.Options{}, store.ErrReadOnly)
		s, err := sqlite.Open(t.Context(), original, readOnly())
		if err != nil {
			t.Fatal(err)
		}
		if v, err := s.Verify(t.Context(), "run_a"); err != nil || v.Events != 2 {
			t.Errorf("%+v, error %v", v, err)
		}
		verifyAll(t, s)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	after, err := os.ReadFile(original)
	if err != nil || string(after) != string(before) {
		t.Errorf("the database was changed (error %v)", err)
	}
	s := openAt(t, original, sqlite.Options{})
	add(t, s, "run_a", 2, &journal.Notice{})
	verifyAll(t, s)
}
