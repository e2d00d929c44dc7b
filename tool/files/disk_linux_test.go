package files_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/toolcrib/toolcrib/tool/files"
)

// mount puts a small file system of its own over the workspace.
func (k *kit) mount(options string, flags uintptr) {
	k.t.Helper()
	if err := syscall.Mount("tmpfs", k.dir, "tmpfs", flags, options); err != nil {
		k.t.Skipf("SKIP: cannot mount a tmpfs here: %v", err)
	}
	k.t.Cleanup(func() {
		if err := syscall.Unmount(k.dir, syscall.MNT_DETACH); err != nil {
			k.t.Errorf("unmount: %v", err)
		}
	})
}

func TestC15_DiskFull(t *testing.T) {
	k := newKit(t, files.Options{})
	k.mount("size=64k", 0)
	k.put("a", "old")
	k.fails("write_file", args{"path": "a", "content": strings.Repeat("x", 100_000)}, "execution failed: no space left on the disk: a was not changed")
	k.fails("write_file", args{"path": "new/b", "content": strings.Repeat("x", 100_000)}, "execution failed: no space left on the disk: new/b was not changed")
	if k.get("a") != "old" {
		t.Error("the old file is gone")
	}
	k.clean()
	k.want("write_file", args{"path": "a", "content": "small"}, `{"message":"Successfully wrote 5 bytes to a"}`)
}

func TestC15_ReadOnlyFileSystem(t *testing.T) {
	k := newKit(t, files.Options{})
	k.mount("size=64k", 0)
	k.put("a", "old")
	if err := syscall.Mount("", k.dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Skipf("SKIP: cannot remount: %v", err)
	}
	k.fails("write_file", args{"path": "a", "content": "new"}, "permission denied: read-only file system: a")
	k.fails("write_file", args{"path": "b/c", "content": "new"}, "permission denied: read-only file system: b/c")
	k.fails("edit_file", args{"path": "a", "old_text": "old", "new_text": "new"}, "permission denied: read-only file system: a")
	k.want("read_file", args{"path": "a"}, `{"content":"old"}`)
}
