//go:build unix

package files_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/files"
)

// A named pipe and a device must not be opened, let alone waited for.
func TestC11_AssetOpensRegularFilesOnly(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644); err != nil {
		t.Skip(err)
	}
	if err := os.Symlink("pipe", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"pipe", "link", "pipe/x"} {
		_, err := assetTool(files.Options{}).Call(t.Context(), toolcrib.Call{Arguments: fmt.Appendf(nil, `{"path": %q}`, path), Workspace: dir})
		made := (*toolcrib.ToolError)(nil)
		if !errors.As(err, &made) || made.Kind != toolcrib.NotFound {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// Somebody turns a folder into a link to the outside and back while the tool runs:
// it tells about the file inside or about none.
func TestC11_AssetLinkRace(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	putAt(t, dir, "real/file", []byte("in"))
	putAt(t, outside, "file", []byte("a long text outside"))
	swap := func(target string) error {
		temporary := filepath.Join(dir, "next")
		if err := os.Symlink(target, temporary); err != nil {
			return err
		}
		return os.Rename(temporary, filepath.Join(dir, "flip"))
	}
	if err := swap("real"); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var attacker sync.WaitGroup
	attacker.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if err := swap([]string{outside, "real"}[i%2]); err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer attacker.Wait()
	defer close(stop)
	meta := assetTool(files.Options{})
	for range 2000 {
		out, err := meta.Call(t.Context(), toolcrib.Call{Arguments: []byte(`{"path": "flip/file"}`), Workspace: dir})
		made := (*toolcrib.ToolError)(nil)
		switch {
		case err != nil && !errors.As(err, &made):
			t.Fatal(err)
		case err == nil && string(out.JSON[:len(`{"path":"flip/file","type":"text/plain; charset=utf-8","size":2,`)]) != `{"path":"flip/file","type":"text/plain; charset=utf-8","size":2,`:
			t.Fatalf("told about the outside: %s", out.JSON)
		}
	}
}
