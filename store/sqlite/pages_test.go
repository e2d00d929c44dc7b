package sqlite_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/toolcrib/toolcrib/store/sqlite"
)

// Garbage in any page of the file is found by opening, verifying or checking it.
func TestEveryDamagedPageIsFound(t *testing.T) {
	const page = 4096
	path := closedAt(t)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := os.ReadFile(filepath.Join(filepath.Dir(path), "keys"))
	if err != nil {
		t.Fatal(err)
	}
	find := func(content []byte) error {
		dir := t.TempDir()
		spoiled := filepath.Join(dir, "toolcrib.db")
		if err := errors.Join(os.WriteFile(spoiled, content, 0o600), os.WriteFile(filepath.Join(dir, "keys"), keys, 0o600)); err != nil {
			t.Fatal(err)
		}
		s, err := sqlite.Open(t.Context(), spoiled, sqlite.Options{})
		if err != nil {
			return err
		}
		defer func() { _ = s.Close() }() // of a damaged file
		if _, err := s.VerifyAll(t.Context()); err != nil {
			return err
		}
		return s.Check(t.Context())
	}
	if err := find(whole); err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(whole); at += page {
		spoiled := bytes.Clone(whole)
		copy(spoiled[at:], bytes.Repeat([]byte{0xa5}, page))
		if find(spoiled) == nil {
			t.Errorf("page %d of %d: nothing was found", at/page+1, len(whole)/page)
		}
	}
}
