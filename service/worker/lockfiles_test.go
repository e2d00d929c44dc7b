package worker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/toolcrib/toolcrib"
)

// Files of dead drivers are removed when the next run is driven; those that are held stay.
func TestLockFiles_OfTheDeadGo(t *testing.T) {
	dir := t.TempDir()
	living, next := NewLockFiles(dir), NewLockFiles(dir)
	if _, err := living.Take("run_held"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"run_dead.lock", "run_dead.cancel", "other.txt"} {
		if err := os.WriteFile(filepath.Join(dir, "drivers", name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := next.Take("run_new"); err != nil {
		t.Fatal(err)
	}
	var left []string
	entries, err := os.ReadDir(filepath.Join(dir, "drivers"))
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{"other.txt", "run_held.lock", "run_new.lock"}; err != nil || !slices.Equal(left, want) {
		t.Errorf("%v, error %v, want %v", left, err, want)
	}
}

// A process that claims a run twice holds it until both claims have ended, however often each is ended.
func TestLockFiles_SeveralClaims(t *testing.T) {
	dir := t.TempDir()
	ours, others := NewLockFiles(dir), NewLockFiles(dir)
	first, err := ours.Take("run_A")
	if err != nil {
		t.Fatal(err)
	}
	second, err := ours.Take("run_A")
	if err != nil {
		t.Fatal(err)
	}
	first()
	first()
	if !others.Driven("run_A") {
		t.Error("the run is free, though it is still claimed")
	}
	second()
	leave, err := others.Take("run_A")
	if err != nil {
		t.Fatal(err)
	}
	second()
	if !ours.Driven("run_A") {
		t.Error("a claim that had ended freed the run of another process")
	}
	leave()
}

// A file that was released by one run is used for the next. It never replaces a file that is held, and keeps no process
// from the earlier run.
func TestLockFiles_Spare(t *testing.T) {
	dir := t.TempDir()
	mine, other := NewLockFiles(dir), NewLockFiles(dir)
	for i := range 4 {
		run := toolcrib.RunID(fmt.Sprint("run_", i))
		leave, err := mine.Take(run)
		if err != nil {
			t.Fatal(err)
		}
		if !other.Driven(run) || other.Process(run) != fmt.Sprint("process ", os.Getpid()) {
			t.Errorf("%s is driven: %v by %s", run, other.Driven(run), other.Process(run))
		}
		if _, err := other.Take(run); !errors.Is(err, ErrDriven) {
			t.Errorf("%s is taken by two: %v", run, err)
		}
		leave()
		if other.Driven(run) {
			t.Errorf("%s is still driven", run)
		}
		theirs, err := other.Take(run)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := mine.Take(run); !errors.Is(err, ErrDriven) {
			t.Errorf("%s is taken away: %v", run, err)
		}
		theirs()
	}
	if err := errors.Join(mine.Close(), other.Close()); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "drivers")); err != nil || len(left) != 0 {
		t.Errorf("%v %v", left, err)
	}
}
