package policy

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/service/env"
)

// A protected file that a command has changed is reported, and ends the folder's trust.
func TestProtectedChangeEndsTrust(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	dir := t.TempDir()
	file := filepath.Join(dir, "toolcrib.yaml")
	if err := os.WriteFile(file, []byte("listen: 127.0.0.1:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	a := open(env.Options{
		DataDir: t.TempDir(), Notice: func(text string) { t.Error(text) },
		Alert: func(text string) { fmt.Fprintln(&said, text) },
	})
	defer a.env.Close() //nolint:errcheck // the folder is temporary
	store := env.TrustStore()
	files, err := store.Check(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.TrustFiles(dir, files); err != nil {
		t.Fatal(err)
	}
	a.protectedChanged(toolcrib.Principal{User: "ann"}, []string{filepath.Join(dir, ".git", "hooks", "post\x1bcommit")},
		[]string{filepath.Join(dir, "AGENTS.md.set-aside-x")})
	folders, err := store.Folders()
	if err != nil || len(folders) > 0 {
		t.Errorf("trusted %q, %v", folders, err)
	}
	for _, want := range []string{
		"a command changed files", ".git/hooks", "AGENTS.md.set-aside-x", "no longer trusted",
		"toolcrib trust ",
	} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("%q is not said: %s", want, said.String())
		}
	}
	if strings.Contains(said.String(), "post\x1b") {
		t.Error("a control character reached the terminal")
	}
}
