//go:build linux || darwin

package secret_test

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/toolcrib/toolcrib/secret"
)

// fileLimitEnv bounds the files that the child may write, in bytes: to it the disk is
// full.
const fileLimitEnv = "TOOLCRIB_SECRET_TEST_FILE_LIMIT"

func limitFiles() {
	limit, err := strconv.ParseUint(os.Getenv(fileLimitEnv), 10, 64)
	if err != nil {
		return
	}
	signal.Ignore(syscall.SIGXFSZ)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
		os.Exit(4)
	}
}

func TestSecret_FullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), secret.FileName)
	s, err := secret.Open(path, []byte(strings.Repeat("\x07", 32)), secret.Options{})
	if err != nil {
		t.Fatal(err)
	}
	set(t, s, "a", "sk-1234567890")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), os.Args[0])
	c.Env = append(os.Environ(), childEnv+"="+path, fileLimitEnv+"="+strconv.Itoa(len(before)+20))
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), secret.ErrUnusable.Error()) {
		t.Errorf("%v: %s", err, out)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("the file was touched, %v", err)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".tmp-*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
	get(t, s, "a", "sk-1234567890")
}

func TestSecret_Pipe(t *testing.T) {
	s, path := newStore(t)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skip(err)
	}
	_, err := s.Secret("a") // would wait forever
	kind(t, err, secret.ErrUnusable, path)
	kind(t, setIn(s, "a", []byte("x")), secret.ErrUnusable, path)
}

func TestSecret_Locked(t *testing.T) {
	_, path := newStore(t)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	held, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Close() }()
	if err := syscall.Flock(int(held.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	s, err := secret.Open(path, key(t, "a"), secret.Options{Patience: 1})
	if err != nil {
		t.Fatal(err)
	}
	kind(t, setIn(s, "a", []byte("x")), secret.ErrLocked, path)
	if _, err := s.List(); err != nil {
		t.Errorf("reading needs no lock: %v", err)
	}
}
