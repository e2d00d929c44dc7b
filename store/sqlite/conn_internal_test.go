package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/toolcrib/toolcrib/store"
)

// TestReadWhileMoved reads a database whose file was moved away, then one that lost its tables for a
// while: neither leaves a file or a connection behind that would hide what is there afterwards.
func TestReadWhileMoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "toolcrib.db")
	s, err := Open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.db.readers.db.SetMaxIdleConns(-1) // each reading opens a connection
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Head(t.Context()); !errors.Is(err, store.ErrUnavailable) {
		t.Error(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a file was made in its place")
	}

	s.db.readers.db.SetMaxIdleConns(1)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Head(t.Context()); err == nil {
		t.Error("an empty file was read")
	}
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Head(t.Context()); err != nil {
		t.Error(err)
	}
}
