//go:build unix

package trust_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/toolcrib/toolcrib/internal/trust"
)

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func newStore(t *testing.T) trust.Store {
	t.Helper()
	return trust.NewStore(filepath.Join(t.TempDir(), "state", "trust.json"))
}

// worst is the worst state of files.
func worst(files []trust.File) trust.State {
	for _, state := range []trust.State{trust.Untrusted, trust.Changed, trust.Trusted} {
		if slices.ContainsFunc(files, func(f trust.File) bool { return f.State == state }) {
			return state
		}
	}
	return trust.Absent
}

func check(t *testing.T, s trust.Store, dir string, want trust.State) []trust.File {
	t.Helper()
	files, err := s.Check(dir)
	if err != nil {
		t.Fatal(err)
	}
	if state := worst(files); state != want {
		t.Errorf("state = %q, want %q: %+v", state, want, files)
	}
	return files
}

func TestTrust_OneAfterAnother(t *testing.T) {
	s, dir := newStore(t), t.TempDir()
	check(t, s, dir, trust.Absent)
	write(t, filepath.Join(dir, "toolcrib.yaml"), "a")
	check(t, s, dir, trust.Untrusted)
	if _, err := s.Trust(dir); err != nil {
		t.Fatal(err)
	}
	check(t, s, dir, trust.Trusted)
	write(t, filepath.Join(dir, "toolcrib.yaml"), "b")
	check(t, s, dir, trust.Changed)
	write(t, filepath.Join(dir, "toolcrib.yaml"), "a")
	check(t, s, dir, trust.Trusted)
	write(t, filepath.Join(dir, ".mcp.json"), "{}") // came later: never looked at
	check(t, s, dir, trust.Untrusted)
	if _, err := s.Trust(dir); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "skills", "x", "SKILL.md"), "do")
	check(t, s, dir, trust.Untrusted)
	if _, err := s.Trust(dir); err != nil {
		t.Fatal(err)
	}
	check(t, s, dir, trust.Trusted)
	write(t, filepath.Join(dir, "skills", "x", "scripts", "run.sh"), "rm")
	check(t, s, dir, trust.Changed)
	if err := s.Revoke(dir); err != nil {
		t.Fatal(err)
	}
	check(t, s, dir, trust.Untrusted)
	if err := s.Revoke(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("second revoke: %v", err)
	}
}

func TestTrust_BoundToTheRealFolder(t *testing.T) {
	s, base := newStore(t), t.TempDir()
	dir, other, link := filepath.Join(base, "a"), filepath.Join(base, "b"), filepath.Join(base, "link")
	write(t, filepath.Join(dir, "toolcrib.yaml"), "same")
	write(t, filepath.Join(other, "toolcrib.yaml"), "same")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Trust(link); err != nil {
		t.Fatal(err)
	}
	check(t, s, dir, trust.Trusted)
	check(t, s, other, trust.Untrusted)
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, link); err != nil {
		t.Fatal(err)
	}
	check(t, s, link, trust.Untrusted)
}

func TestTrust_SymbolicLinksCountByWhatIsRead(t *testing.T) {
	s, dir, outside := newStore(t), t.TempDir(), t.TempDir()
	write(t, filepath.Join(outside, "c.yaml"), "one")
	write(t, filepath.Join(outside, "lib", "f"), "one")
	if err := os.Symlink(filepath.Join(outside, "c.yaml"), filepath.Join(dir, "toolcrib.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "skills"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(outside, "lib"), filepath.Join(dir, "skills", "lib")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join("..", "note"), filepath.Join(dir, "skills", "inside")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "note"), "one")
	files, err := s.Check(dir)
	if err != nil {
		t.Fatal(err)
	}
	told, real := map[string]string{}, func(path string) string {
		path, err := filepath.EvalSymlinks(path)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, f := range files {
		maps.Copy(told, f.Outside)
	}
	want := map[string]string{
		"toolcrib.yaml": real(filepath.Join(outside, "c.yaml")), "skills/lib": real(filepath.Join(outside, "lib")),
	}
	if !maps.Equal(told, want) {
		t.Errorf("links that lead outside: %q, want %q", told, want)
	}
	if _, err := s.Trust(dir); err != nil {
		t.Fatal(err)
	}
	check(t, s, dir, trust.Trusted)
	write(t, filepath.Join(outside, "lib", "f"), "two")
	check(t, s, dir, trust.Changed)
	write(t, filepath.Join(outside, "lib", "f"), "one")
	write(t, filepath.Join(outside, "c.yaml"), "two")
	check(t, s, dir, trust.Changed)
}

func TestTrust_WhatCannotBeReadIsNotTrusted(t *testing.T) {
	for name, make := range map[string]func(t *testing.T, dir string){
		"a pipe": func(t *testing.T, dir string) {
			if err := syscall.Mkfifo(filepath.Join(dir, "toolcrib.yaml"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"a pipe among the skills": func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "skills", "a"), "a")
			if err := syscall.Mkfifo(filepath.Join(dir, "skills", "pipe"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"a device": func(t *testing.T, dir string) {
			if err := os.Symlink("/dev/zero", filepath.Join(dir, ".mcp.json")); err != nil {
				t.Fatal(err)
			}
		},
		"a link to nothing": func(t *testing.T, dir string) {
			if err := os.Symlink("nothing", filepath.Join(dir, "toolcrib.yaml")); err != nil {
				t.Fatal(err)
			}
		},
		"a circle": func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "skills", "a"), "a")
			if err := os.Symlink(".", filepath.Join(dir, "skills", "again")); err != nil {
				t.Fatal(err)
			}
		},
		"too large": func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "toolcrib.yaml"), strings.Repeat("#", trust.MaxFileBytes+1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := newStore(t), t.TempDir()
			make(t, dir)
			check(t, s, dir, trust.Untrusted)
			if _, err := s.Trust(dir); err == nil {
				t.Error("it was trusted")
			}
			check(t, s, dir, trust.Untrusted)
		})
	}
}

func TestTrust_TheBytesReadAreTheBytesJudged(t *testing.T) {
	s, dir := newStore(t), t.TempDir()
	file := filepath.Join(dir, "toolcrib.yaml")
	write(t, file, "good")
	shown, err := s.Check(dir)
	if err != nil {
		t.Fatal(err)
	}
	write(t, file, "evil") // between the question and the answer
	if err := s.TrustFiles(dir, shown); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if state, err := s.State(file, trust.Hash(content)); state != trust.Changed || err != nil {
		t.Errorf("what was not shown is %q, %v", state, err)
	}
	if state, err := s.State(file, trust.Hash([]byte("good"))); state != trust.Trusted || err != nil {
		t.Errorf("what was shown is %q, %v", state, err)
	}
	if err := s.Require(file, []byte("good")); err != nil {
		t.Error(err)
	}
	var refused *trust.UntrustedError
	if err := s.Require(file, content); !errors.As(err, &refused) || refused.State != trust.Changed ||
		!strings.HasSuffix(err.Error(), "has changed since you trusted it, so it is not used; review it, then run: toolcrib trust "+dir) {
		t.Errorf("err = %v", err)
	}
}

func TestTrust_FolderIsReadOnce(t *testing.T) {
	s, dir := newStore(t), t.TempDir()
	skills := filepath.Join(dir, "skills")
	write(t, filepath.Join(skills, "x", "SKILL.md"), "good")
	if _, err := s.Trust(dir); err != nil {
		t.Fatal(err)
	}
	folder, err := trust.ReadFolder(skills)
	if err != nil || string(folder.Files["x/SKILL.md"]) != "good" {
		t.Fatalf("%+v, %v", folder, err)
	}
	if state, err := s.State(skills, folder.Hash); state != trust.Trusted || err != nil {
		t.Errorf("state = %q, %v", state, err)
	}
}

func TestTrust_FoldersDoNotLookAlike(t *testing.T) {
	hashes := map[string]string{}
	for name, files := range map[string]map[string]string{
		"one": {"a": "bc"}, "two": {"ab": "c"}, "three": {"a": "b", "c": ""}, "four": {"a/b": "bc"}, "five": {"a": "", "bc": ""},
	} {
		dir := t.TempDir()
		for file, text := range files {
			write(t, filepath.Join(dir, file), text)
		}
		folder, err := trust.ReadFolder(dir)
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := hashes[folder.Hash]; ok {
			t.Errorf("%s and %s have the same hash", name, other)
		}
		hashes[folder.Hash] = name
	}
}

func TestTrust_BrokenRecordTrustsNothing(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "toolcrib.yaml"), "a")
	good := newStore(t)
	if _, err := good.Trust(dir); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(good.Path())
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"empty": "", "half": string(whole[:len(whole)/2]), "other": "[]", "newer": strings.Replace(string(whole), `"version": 1`, `"version": 2`, 1),
		"two": string(whole) + string(whole),
	} {
		s := newStore(t)
		write(t, s.Path(), content)
		if err := os.Chmod(s.Path(), 0o600); err != nil {
			t.Fatal(err)
		}
		files, err := s.Check(dir)
		if err == nil || !strings.HasPrefix(err.Error(), "nothing is trusted: the record "+s.Path()) {
			t.Errorf("%s: err = %v", name, err)
		}
		if files[0].State != trust.Untrusted {
			t.Errorf("%s: %+v", name, files)
		}
		if _, err := s.Trust(dir); err == nil {
			t.Errorf("%s: the record was overwritten", name)
		}
		if err := s.Require(filepath.Join(dir, "toolcrib.yaml"), []byte("a")); err == nil {
			t.Errorf("%s: it is trusted", name)
		}
	}
}

func TestTrust_RecordIsTheUsersOwn(t *testing.T) {
	s, dir := newStore(t), t.TempDir()
	write(t, filepath.Join(dir, "toolcrib.yaml"), "a")
	if _, err := s.Trust(dir); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]fs.FileMode{s.Path(): 0o600, filepath.Dir(s.Path()): 0o700} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	if err := os.Chmod(s.Path(), 0o666); err != nil {
		t.Fatal(err)
	}
	if files, err := s.Check(dir); worst(files) != trust.Untrusted || err == nil {
		t.Errorf("a record that others can write counts: %+v, %v", files, err)
	}
}

func TestTrust_ZeroValueTrustsNothing(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "toolcrib.yaml"), "a")
	var s trust.Store
	if files, err := s.Check(dir); worst(files) != trust.Untrusted || err == nil {
		t.Errorf("%+v, %v", files, err)
	}
	if _, err := s.Trust(dir); err == nil {
		t.Error("the zero value keeps something")
	}
	if path := trust.DefaultPath(func(string) string { return "" }); path != "" {
		t.Errorf("a place without a home: %s", path)
	}
}

func TestTrust_DefaultPath(t *testing.T) {
	for _, c := range []struct{ state, home, want string }{
		{"/s", "/h", "/s/toolcrib/trust.json"}, {"", "/h", "/h/.local/state/toolcrib/trust.json"}, {"relative", "/h", "/h/.local/state/toolcrib/trust.json"},
	} {
		got := trust.DefaultPath(func(name string) string {
			return map[string]string{"XDG_STATE_HOME": c.state, "HOME": c.home}[name]
		})
		if got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// childEnv makes the test binary trust folders instead of running tests.
const childEnv = "TOOLCRIB_TRUST_TEST_CHILD"

func TestMain(m *testing.M) {
	if spec := os.Getenv(childEnv); spec != "" {
		record, base, _ := strings.Cut(spec, "|")
		for i := range 10 {
			if _, err := trust.NewStore(record).Trust(filepath.Join(base, fmt.Sprint(i))); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestTrust_SeveralProcesses(t *testing.T) {
	s, base := newStore(t), t.TempDir()
	var wg sync.WaitGroup
	for p := range 4 {
		dir := filepath.Join(base, fmt.Sprint(p))
		for i := range 10 {
			write(t, filepath.Join(dir, fmt.Sprint(i), "toolcrib.yaml"), "a")
		}
		wg.Go(func() {
			child := exec.Command(os.Args[0])
			child.Env = append(os.Environ(), childEnv+"="+s.Path()+"|"+dir)
			if out, err := child.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	wg.Wait()
	folders, err := s.Folders()
	if err != nil || len(folders) != 40 {
		t.Errorf("%d folders are trusted, %v", len(folders), err)
	}
}

func TestTrust_MessagesHoldNoControlCharacters(t *testing.T) {
	e := &trust.UntrustedError{Path: "toolcrib.yaml", Dir: "/a b\x1b[2J"}
	if want := `toolcrib.yaml is not trusted yet, so it is not used; review it, then run: toolcrib trust '/a b[U+001B][2J'`; e.Error() != want {
		t.Errorf("got  %s\nwant %s", e, want)
	}
}

// A protected file that changed ends the trust in each folder that holds it, and in
// no other.
func TestTrust_RevokeContaining(t *testing.T) {
	s, top := newStore(t), t.TempDir()
	for _, name := range []string{".", "in", "in/deep", "inner", "other"} {
		write(t, filepath.Join(top, name, "toolcrib.yaml"), name)
		if _, err := s.Trust(filepath.Join(top, name)); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := s.RevokeContaining(filepath.Join(t.TempDir(), "x")); err != nil || len(got) != 0 {
		t.Errorf("elsewhere: %v, %v", got, err)
	}
	real, err := filepath.EvalSymlinks(top)
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(filepath.Join(top, "in"), link); err != nil {
		t.Fatal(err)
	}
	got, err := s.RevokeContaining(filepath.Join(link, "hook"), filepath.Join(top, "in", "gone", "hook"))
	if want := []string{real, filepath.Join(real, "in")}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	check(t, s, filepath.Join(top, "in"), trust.Untrusted)
	check(t, s, filepath.Join(top, "inner"), trust.Trusted)
	check(t, s, filepath.Join(top, "in/deep"), trust.Trusted)
	if got, err := s.RevokeContaining(filepath.Join(top, "in", "hook")); err != nil || len(got) != 0 {
		t.Errorf("a second time: %v, %v", got, err)
	}
}

// What was trusted last is there to show what has changed since, and only that: a copy
// of something else is none.
func TestLastTrusted(t *testing.T) {
	dir := t.TempDir()
	s := trust.NewStore(filepath.Join(t.TempDir(), "trust.json"))
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("skills/a/SKILL.md", "old")
	if _, ok := s.LastTrusted(dir, "skills"); ok {
		t.Fatal("there is something though nothing was trusted")
	}
	shown, err := s.Check(dir)
	if err != nil {
		t.Fatal(err)
	}
	digest := trust.Digest(shown)
	write("skills/a/SKILL.md", "new") // after it was shown
	if err := s.TrustFiles(dir, shown); err != nil {
		t.Fatal(err)
	}
	now, err := s.Check(dir)
	state := worst(now)
	if err != nil || state != trust.Changed || trust.Digest(now) == digest {
		t.Fatalf("%q %v: what was not shown is trusted", state, err)
	}
	if c, ok := s.LastTrusted(dir, "skills"); !ok || string(c.Files["a/SKILL.md"]) != "old" {
		t.Fatalf("%+v %v", c, ok)
	}
	s.Keep(dir, "skills", trust.Copy{Hash: "sha256:other", Files: map[string][]byte{"a/SKILL.md": []byte("new")}})
	if _, ok := s.LastTrusted(dir, "skills"); ok {
		t.Fatal("a copy of what was never trusted counts")
	}
	if err := s.Revoke(dir); err != nil {
		t.Fatal(err)
	}
	if copies, err := filepath.Glob(filepath.Join(s.Path()+".d", "*.json")); err != nil || len(copies) > 0 {
		t.Fatal("a copy outlives the trust", copies, err)
	}
}
