//go:build unix

package files_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/toolcrib/toolcrib/tool/files"
	"github.com/toolcrib/toolcrib/toolcribtest/tooltest"
)

func TestC11_NoFIFOsDevicesSockets(t *testing.T) {
	k := newKit(t, files.Options{})
	if err := syscall.Mkfifo(k.path("pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Chdir(k.dir) // the path of a socket is short
	socket, err := net.Listen("unix", "socket")
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close() //nolint:errcheck // a test's
	special := map[string]string{"pipe": "a named pipe", "socket": "a socket"}
	if err := syscall.Mknod(k.path("null"), syscall.S_IFCHR|0o666, 1<<8|3); err == nil {
		special["null"] = "a device"
	} else {
		t.Logf("SKIP devices: cannot make one: %v", err)
	}
	for name, what := range special {
		want := "invalid path: " + name + " is " + what + ", not a regular file"
		k.fails("read_file", args{"path": name}, want)
		k.fails("read_file", args{"path": name, "offset": 1, "limit": 1}, want)
		k.fails("write_file", args{"path": name, "content": "x"}, want)
		k.fails("edit_file", args{"path": name, "old_text": "x", "new_text": "y"}, want)
		k.fails("search_files", args{"path": name, "pattern": "x"}, want)
	}
	k.want("search_files", args{"pattern": "."}, `{"matches":[],"files_searched":0,"truncated":false}`)
	k.fails("list_directory", args{"path": "pipe"}, "invalid path: pipe is not a folder")
	k.fails("write_file", args{"path": "pipe/x", "content": ""}, "invalid path: a part of the path is not a folder")
}

func TestC11_HardLinksAreNotWrittenThrough(t *testing.T) {
	k := newKit(t, files.Options{})
	outside := filepath.Join(filepath.Dir(k.dir), "outside")
	if err := os.WriteFile(outside, []byte("precious\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"w", "e"} {
		if err := os.Link(outside, k.path(name)); err != nil {
			t.Fatal(err)
		}
	}
	k.want("write_file", args{"path": "w", "content": "x"}, `{"message":"Successfully wrote 1 bytes to w"}`)
	k.want("edit_file", args{"path": "e", "old_text": "precious", "new_text": "gone"}, `{"message":"Successfully edited e"}`)
	if data, err := os.ReadFile(outside); err != nil || string(data) != "precious\n" {
		t.Fatalf("the other name of the file holds %q (%v)", data, err)
	}
	if k.get("w") != "x" || k.get("e") != "gone\n" {
		t.Fatal("not written")
	}
}

func TestC15_ReadOnlyFile(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("SKIP: root may write every file; run as another user")
	}
	k := newKit(t, files.Options{})
	k.put("fixed", "x")
	k.put("closed/f", "x")
	for name, mode := range map[string]os.FileMode{"fixed": 0o444, "closed": 0o555} {
		if err := os.Chmod(k.path(name), mode); err != nil {
			t.Fatal(err)
		}
	}
	k.fails("write_file", args{"path": "fixed", "content": "y"}, "permission denied: the file is read-only: fixed")
	k.fails("write_file", args{"path": "closed/g", "content": "y"}, "permission denied: closed/g")
	if err := os.Chmod(k.path("closed"), 0o755); err != nil {
		t.Fatal(err)
	}
	k.clean()
}

func TestC9_WriteKeepsOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIP: only root can give files away")
	}
	k := newKit(t, files.Options{})
	k.put("theirs", "x")
	if err := os.Chown(k.path("theirs"), 1234, 1235); err != nil {
		t.Fatal(err)
	}
	k.want("write_file", args{"path": "theirs", "content": "y"}, `{"message":"Successfully wrote 1 bytes to theirs"}`)
	info, err := os.Stat(k.path("theirs"))
	if err != nil {
		t.Fatal(err)
	}
	if stat := info.Sys().(*syscall.Stat_t); stat.Uid != 1234 || stat.Gid != 1235 {
		t.Errorf("owner %d:%d", stat.Uid, stat.Gid)
	}
}

func TestC11_ProtectedPaths(t *testing.T) {
	k := newKit(t, files.Options{
		Protected: func(abs string) bool {
			return strings.Contains(abs+"/", "/.git/") || filepath.Base(abs) == "toolcrib.yaml"
		},
		Hidden: func(abs string) bool { return strings.Contains(abs+"/", "/keys/") },
	})
	k.put(".git/config", "git")
	k.put("toolcrib.yaml", "steer")
	k.put("keys/k", "key")
	k.link(".git", "innocent")
	k.link("toolcrib.yaml", "notes.txt")
	k.link("keys/k", "readme")
	for _, path := range []string{".git/config", ".git/hooks/new", "innocent/config", "innocent/new", "toolcrib.yaml", "notes.txt", "keys/k", "keys/new", "readme"} {
		k.fails("write_file", args{"path": path, "content": "x"}, "permission denied: protected path: "+path)
	}
	for _, path := range []string{"innocent/config", "readme"} {
		k.fails("edit_file", args{"path": path, "old_text": "g", "new_text": "x"}, "permission denied: protected path: "+path)
	}
	k.want("read_file", args{"path": "innocent/config"}, `{"content":"git"}`)
	k.fails("read_file", args{"path": "readme"}, "permission denied: protected path: readme")
	k.fails("search_files", args{"path": "keys", "pattern": "."}, "permission denied: protected path: keys")
	k.want("search_files", args{"pattern": "key|git|steer"}, `{"matches":[{"path":"toolcrib.yaml","line":1,"text":"steer"}],"files_searched":1,"truncated":false}`)
	if k.get(".git/config") != "git" || k.get("toolcrib.yaml") != "steer" || k.get("keys/k") != "key" {
		t.Error("something protected was changed")
	}
	if _, err := os.Lstat(k.path(".git/hooks")); !errors.Is(err, os.ErrNotExist) {
		t.Error("a folder was made in a protected one")
	}
	k.clean()
}

func TestC9_CancelLeavesNothing(t *testing.T) {
	k := newKit(t, files.Options{})
	k.put("huge", strings.Repeat("x", 9000)) // text as far as the first look goes, then a hole
	if err := os.Truncate(k.path("huge"), 1<<40); err != nil {
		t.Fatal(err)
	}
	k.put("large", "x")
	if err := os.Truncate(k.path("large"), 200<<20); err != nil {
		t.Fatal(err)
	}
	for tool, arguments := range map[string]args{
		"read_file":    {"path": "huge", "offset": 3},
		"write_file":   {"path": "large", "content": "y"},
		"search_files": {"pattern": "never"},
	} {
		ctx := &countdown{Context: t.Context(), looks: 20}
		_, err := k.tools[tool].Call(ctx, k.made(tool, arguments))
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", tool, err)
		}
	}
	k.clean()
}

func TestC9_HugeFileIsNotReadToBeWrittenOver(t *testing.T) {
	k := newKit(t, files.Options{})
	k.put("huge", "x")
	if err := os.Truncate(k.path("huge"), 1<<40); err != nil {
		t.Fatal(err)
	}
	made := k.made("write_file", args{"path": "huge", "content": "y"})
	want := "execution failed: huge has 1099511627776 bytes, and files of more than 268435456 are not overwritten; nothing was written, use another name"
	k.fails("write_file", args{"path": "huge", "content": "y"}, want)
	if _, err := tooltest.Facts(k.tools["write_file"], made).Prepare(t.Context(), made.WithoutArguments()); err == nil || err.Error() != want {
		t.Errorf("Prepare: %v", err)
	}
	if _, err := tooltest.Preview(t.Context(), k.tools["write_file"], made); err == nil || err.Error() != want {
		t.Errorf("Preview: %v", err)
	}
}

func TestC11_OwnFilesByAnotherName(t *testing.T) {
	data := t.TempDir()
	k := newKit(t, files.Options{Own: []string{data}, OwnExcept: []string{filepath.Join(data, "workspaces")}})
	for _, name := range []string{"keys", "workspaces/a"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(data, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(data, name), []byte("the key"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Link(filepath.Join(data, name), k.path(filepath.Base(name))); err != nil {
			t.Fatal(err)
		}
	}
	k.fails("read_file", args{"path": "keys"}, "permission denied: protected path: keys")
	k.fails("write_file", args{"path": "keys", "content": "x"}, "permission denied: protected path: keys")
	k.fails("edit_file", args{"path": "keys", "old_text": "the key", "new_text": "x"}, "permission denied: protected path: keys")
	k.fails("search_files", args{"path": "keys", "pattern": "key"}, "permission denied: protected path: keys")
	k.want("search_files", args{"pattern": "key"}, `{"matches":[{"path":"a","line":1,"text":"the key"}],"files_searched":1,"truncated":false}`)
	k.want("read_file", args{"path": "a"}, `{"content":"the key"}`)
}

// countdown is a context that ends after it was looked at so often: the moment of
// the cancel needs no clock.
type countdown struct {
	context.Context
	mu    sync.Mutex
	looks int
}

func (c *countdown) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.looks--; c.looks < 0 {
		return context.Canceled
	}
	return nil
}
