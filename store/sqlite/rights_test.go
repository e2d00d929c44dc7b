//go:build unix

package sqlite_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// nobody is the ID of a user without access to the files of these tests.
const nobody = 65534

// Files and folders that this user may not write are store.ErrReadOnly, and what
// cannot even be read store.ErrUnavailable. Root may write anything, so as root
// another user tries.
func TestNotWritable(t *testing.T) {
	for name, c := range map[string]struct {
		file, folder os.FileMode
		want         string
	}{
		"file":            {0o444, 0o777, "read-only"},
		"folder":          {0o666, 0o555, "read-only"},
		"file and folder": {0o444, 0o555, "read-only"},
		"not readable":    {0o000, 0o777, "unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := publicFolder(t)
			program := copyOf(t, os.Args[0], folder)
			data := filepath.Join(folder, "data")
			if err := os.Mkdir(data, 0o700); err != nil {
				t.Fatal(err)
			}
			original := closedAt(t)
			path := copyOf(t, original, data)
			copyOf(t, filepath.Join(filepath.Dir(original), "keys"), data)
			if err := os.Chmod(path, c.file); err != nil {
				t.Fatal(err)
			}
			tryAsNobody(t, c.want, program, data, c.folder, path)
		})
	}
	t.Run("no database", func(t *testing.T) {
		folder := publicFolder(t)
		program := copyOf(t, os.Args[0], folder)
		tryAsNobody(t, "read-only", program, folder, 0o555, filepath.Join(folder, "none", "toolcrib.db"))
	})
}

func tryAsNobody(t *testing.T, want, program, folder string, mode os.FileMode, path string) {
	t.Helper()
	if err := os.Chmod(folder, mode); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Chmod(folder, 0o700) }() // so that it can be removed
	c := newChild(t, "write", want, path, func(cmd *exec.Cmd) {
		cmd.Path = program
		cmd.Dir = "/"
		if os.Getuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		}
	})
	c.begin()
	c.stored()
	c.end()
}

// publicFolder makes a folder that every user can reach.
func publicFolder(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "toolcrib-store-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(folder); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	return folder
}

func copyOf(t *testing.T, file, folder string) string {
	t.Helper()
	in, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }() // read only
	name := filepath.Join(folder, filepath.Base(file))
	out, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return name
}
