package files_test

import (
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/files"
)

// flip swaps the folder "at" with a link to target, in one step and back, as fast
// as it can, until the function that it returns is called.
func (k *kit) flip(target string) (stop func()) {
	k.link(target, "link")
	done := make(chan struct{})
	var attacker sync.WaitGroup
	attacker.Go(func() {
		at, link := k.path("at"), k.path("link")
		for {
			select {
			case <-done:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, at, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
			}
		}
	})
	return func() { close(done); attacker.Wait() }
}

// An attacker swaps a folder with a link while tools read and write in it: nothing
// outside is read or written, nothing protected is written, nothing hidden is read.
func TestC11_LinkFlipper(t *testing.T) {
	for name, target := range map[string]string{
		"outside": "../outside", "protected": ".git", "hidden": "keys", "protected, absolute": "/.git", "hidden below": "inner/keys",
	} {
		t.Run(name, func(t *testing.T) { underAttack(t, target) })
	}
}

func underAttack(t *testing.T, target string) {
	base := newKit(t, files.Options{})
	base.put("outside/f", "SECRET")
	base.put("outside/secret-name", "SECRET")
	k := newKit(t, files.Options{
		Protected: func(abs string) bool { return strings.Contains(abs, "/.git") },
		Hidden:    func(abs string) bool { return strings.Contains(abs, "/keys") },
	})
	k.dir = base.path("workspace")
	for _, dir := range []string{"keys", "inner/keys"} {
		k.put(dir+"/f", "SECRET")
		k.put(dir+"/secret-name", "SECRET")
	}
	k.put("at/f", "public")
	k.put(".git/f", "GIT")
	if strings.HasPrefix(target, "/") {
		target = k.path(target)
	}
	stop := k.flip(target)
	tries, done := 600, 0
	if testing.Short() {
		tries = 100
	}
	for i, limit := 0, time.Now().Add(time.Minute); i < tries || done == 0 && time.Now().Before(limit); i++ {
		done += k.attempts(i%20 == 0, base.dir)
	}
	stop()
	if done == 0 {
		t.Error("no call ever succeeded: the attack was not tried")
	}
	for _, gone := range []string{base.path("outside/w"), k.path(".git/w"), k.path("keys/w"), k.path("inner/keys/w")} {
		if _, err := os.Lstat(gone); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("written to %s", gone)
		}
	}
	if base.get("outside/f") != "SECRET" || k.get(".git/f") != "GIT" || k.get("keys/f") != "SECRET" || k.get("inner/keys/f") != "SECRET" {
		t.Error("something that is not the tools' was changed")
	}
	base.clean()
}

// attempts makes each call once and counts those that succeed; none may leak.
func (k *kit) attempts(write bool, private string) int {
	k.t.Helper()
	type attempt struct {
		tool      string
		arguments args
	}
	all := []attempt{
		{"read_file", args{"path": "at/f"}},
		{"read_file", args{"path": "at/f", "limit": 1}},
		{"list_directory", args{"path": "at"}},
		{"search_files", args{"path": "at", "pattern": "."}},
	}
	if write { // each syncs the disk
		all = append(all, attempt{"write_file", args{"path": "at/w", "content": "written"}},
			attempt{"edit_file", args{"path": "at/f", "old_text": "public", "new_text": "public "}})
	}
	done := 0
	for _, try := range all {
		got, err := k.call(try.tool, try.arguments)
		if err == nil {
			done++
		} else if made := (*toolcrib.ToolError)(nil); !errors.As(err, &made) || strings.Contains(err.Error(), private) {
			k.t.Fatalf("%s: %v", try.tool, err)
		}
		if strings.Contains(got, "SECRET") || strings.Contains(got, "secret-name") {
			k.t.Fatalf("%s %v leaked: %s", try.tool, try.arguments, got)
		}
	}
	return done
}
