package service

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store"
)

func TestLockFiles(t *testing.T) {
	dir := t.TempDir()
	rec := store.RunRecord{ID: "run_A", Driver: "cli", Status: toolcrib.StatusRunning}
	ours, others := NewLockFiles(dir), NewLockFiles(dir)
	theirs := &Service{Options: Options{Driver: "cli", Drivers: others}}
	if !theirs.Interrupted(rec) {
		t.Error("a run that nobody holds is interrupted")
	}
	if err := ours.Take(rec.ID); err != nil {
		t.Error(err)
	}
	if err := others.Take(rec.ID); !errors.Is(err, ErrDriven) {
		t.Errorf("a second driver: %v", err)
	}
	if theirs.Interrupted(rec) {
		t.Error("a run that is held is not interrupted")
	}
	if err := ours.Close(); err != nil {
		t.Error(err)
	}
	if !theirs.Interrupted(rec) {
		t.Error("a run that was let go is interrupted")
	}
	for _, status := range []toolcrib.Status{toolcrib.StatusCompleted, toolcrib.StatusWaitingForApproval} {
		rec.Status = status
		if theirs.Interrupted(rec) {
			t.Errorf("%s is not interrupted", status)
		}
	}
	rec.Status, rec.Driver = toolcrib.StatusRunning, "server"
	if theirs.Interrupted(rec) {
		t.Error("a server's run is not ours to judge")
	}
	if err := ours.Take("../evil"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "evil.lock")); err == nil {
		t.Error("an ID led out of the folder")
	}
}
