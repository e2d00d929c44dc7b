package service_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/env"
)

// If the keys cannot be restored, neither is the database: its content could not be trusted, and the secrets could not
// be read.
func TestRestore_NoFolderForKeys(t *testing.T) {
	dir := t.TempDir()
	backup, path := filepath.Join(dir, "backup.tar"), filepath.Join(dir, "toolcrib.yaml")
	if _, err := open(t).Backup(t.Context(), root, backup); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("keys: nowhere/keys\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(config.Source{Path: path, Origin: config.OriginFlag}, nil)
	if err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "data")
	_, err = service.New(env.Options{Config: c, DataDir: data}).Restore(t.Context(), backup)
	if left, _ := os.ReadDir(data); !errors.Is(err, fs.ErrNotExist) || len(left) > 0 {
		t.Errorf("%v, with %v in the data folder", err, left)
	}
}
