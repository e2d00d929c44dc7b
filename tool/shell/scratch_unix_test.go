//go:build unix

package shell

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// C18: what a killed process left behind is cleared away, what is in use is not.
func TestC18_ScratchOfKilledProcesses(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	used, err := newScratch()
	if err != nil {
		t.Fatal(err)
	}
	defer used.remove()
	left := filepath.Join(dir, scratchPrefix+"left")
	young := filepath.Join(dir, scratchPrefix+"young")
	other := filepath.Join(dir, "other")
	for _, path := range []string{filepath.Join(left, "deep", "er"), young, other} {
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(other, filepath.Join(dir, scratchPrefix+"link")); err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(young, later, later); err != nil {
		t.Fatal(err)
	}
	sweep(later)
	for path, want := range map[string]bool{used.path: true, left: false, young: true, other: true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", filepath.Base(path), err == nil, want)
		}
	}
	used.remove()
	if _, err := os.Stat(used.path); err == nil {
		t.Error("a folder stays behind")
	}
}
