package sqlite_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// A database on a network file system is refused before any file is created; a local one, and one on
// an unknown file system, is not.
func TestNetworkFileSystem(t *testing.T) {
	for _, kind := range []string{"nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "afs"} {
		folder := t.TempDir()
		path := filepath.Join(folder, "new", "data", "toolcrib.db")
		asked := ""
		o := sqlite.Options{FileSystem: func(path string) (string, error) { asked = path; return kind, nil }}
		wantOpenError(t, path, o, store.ErrNetwork)
		_, err := sqlite.Open(t.Context(), path, o)
		if !strings.Contains(err.Error(), "on "+kind) || !strings.Contains(err.Error(), "local disk") {
			t.Errorf("%s: %v", kind, err)
		}
		if real, err := filepath.EvalSymlinks(folder); err != nil || asked != real {
			t.Errorf("%s was asked about, want the nearest folder that exists, %s (error %v)", asked, real, err)
		}
		if _, err := os.Stat(filepath.Join(folder, "new")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("something was made there (error %v)", err)
		}
		o.ReadOnly = true
		wantOpenError(t, path, o, store.ErrNetwork)
	}
	for _, kind := range []string{"", "ext4", "fuse", "fuseblk", "fuse.gocryptfs", "9p"} {
		s := openAt(t, filepath.Join(t.TempDir(), "toolcrib.db"), sqlite.Options{FileSystem: func(string) (string, error) { return kind, nil }})
		login(t, s, "x")
	}
	unknown := sqlite.Options{FileSystem: func(string) (string, error) { return "nfs", errors.New("not known") }}
	login(t, openAt(t, filepath.Join(t.TempDir(), "toolcrib.db"), unknown), "x")
}
