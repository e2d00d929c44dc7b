package service

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/worker"
	"github.com/toolcrib/toolcrib/store"
)

func TestLockFiles(t *testing.T) {
	dir := t.TempDir()
	rec := store.RunRecord{ID: "run_A", Driver: "cli", Status: toolcrib.StatusRunning}
	ours, others := worker.NewLockFiles(dir), worker.NewLockFiles(dir)
	theirs := New(env.Options{DataDir: dir, Driver: "cli"})
	theirs.Drivers = others
	if !theirs.interrupted(rec) {
		t.Error("a run that nobody holds is interrupted")
	}
	if _, err := ours.Take(rec.ID); err != nil {
		t.Error(err)
	}
	if _, err := others.Take(rec.ID); !errors.Is(err, worker.ErrDriven) {
		t.Errorf("a second driver: %v", err)
	}
	if theirs.interrupted(rec) {
		t.Error("a run that is held is not interrupted")
	}
	if got := others.Process(rec.ID); got != fmt.Sprintf("process %d", os.Getpid()) {
		t.Errorf("it is driven by %s", got)
	}
	if err := ours.Close(); err != nil {
		t.Error(err)
	}
	if !theirs.interrupted(rec) {
		t.Error("a run that was let go is interrupted")
	}
	for _, status := range []toolcrib.Status{toolcrib.StatusCompleted, toolcrib.StatusWaitingForApproval} {
		rec.Status = status
		if theirs.interrupted(rec) {
			t.Errorf("%s is not interrupted", status)
		}
	}
	rec.Status, rec.Driver = toolcrib.StatusRunning, "server"
	if theirs.interrupted(rec) {
		t.Error("a server's run is not ours to judge")
	}
	if _, err := ours.Take("../evil"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "evil.lock")); err == nil {
		t.Error("an ID led out of the folder")
	}
}
