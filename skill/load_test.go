package skill_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/skill"
	"github.com/toolcrib/toolcrib/tool/builtin"
)

// kit is a folder of folders that hold skills.
type kit struct {
	t   testing.TB
	top string
}

func newKit(t testing.TB) *kit {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &kit{t, top}
}

// put writes a file, such as ws/pdf/SKILL.md.
func (k *kit) put(name, text string) {
	k.t.Helper()
	path := filepath.Join(k.top, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		k.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		k.t.Fatal(err)
	}
}

// skill writes a skill, with more front matter.
func (k *kit) skill(at, more string) {
	k.t.Helper()
	k.put(at+"/SKILL.md", fmt.Sprintf("---\nname: %s\ndescription: Does %s.\n%s---\nBody of %s.\n", filepath.Base(at), filepath.Base(at), more, at))
}

func (k *kit) dirs(names ...string) []skill.Dir {
	var dirs []skill.Dir
	for _, name := range names {
		dirs = append(dirs, skill.Dir{Path: filepath.Join(k.top, name), Source: name})
	}
	return dirs
}

func (k *kit) load(names ...string) (library, []string) {
	return skill.Load(k.dirs(names...), builtin.Aliases())
}

// library are skills as they were loaded.
type library []*skill.Skill

func (l library) named(name string) *skill.Skill {
	if i := slices.IndexFunc(l, func(s *skill.Skill) bool { return s.Name == name }); i >= 0 {
		return l[i]
	}
	return nil
}

// usable are those that could be read, and have their names.
func (l library) usable() (names []string) {
	for _, s := range l {
		if s.Hash != "" {
			names = append(names, s.Source+"/"+s.Name)
		}
	}
	return names
}

func (l library) choose(names []string, reviewed func(*skill.Skill) bool) (skill.Set, []skill.Off) {
	return skill.Choose(names, l.named, reviewed)
}

// has reports whether a skill is off for such a reason, in such words.
func (l library) has(reason, name, words string) bool {
	return slices.ContainsFunc(l, func(s *skill.Skill) bool {
		return s.Reason == reason && s.Name == name && strings.Contains(s.Path+": "+s.Detail, words)
	})
}

func everything(*skill.Skill) bool { return true }

func TestN16_LoadPrecedence(t *testing.T) {
	k := newKit(t)
	k.skill("ws/a", "allowed-tools: Read\n")
	k.skill("user/a", "")
	k.skill("user/b", "")
	k.skill("conf/b", "")
	k.put("ws/c/SKILL.md", "broken")
	k.skill("user/c", "")
	k.skill("ws/d", "enabled: false\n")
	k.skill("user/d", "")
	k.put("ws/README.md", "x")
	k.put("ws/.git/config", "x")
	k.put("ws/plain/notes.txt", "x")
	l, problems := k.load("ws", "user", "conf", "gone")
	if got := l.usable(); !slices.Equal(got, []string{"ws/a", "ws/d", "user/b"}) {
		t.Errorf("skills %v", got)
	}
	for _, want := range []struct{ reason, name, words string }{
		{skill.ReasonShadowed, "a", "the skill of this name is " + filepath.Join(k.top, "ws", "a")},
		{skill.ReasonShadowed, "b", filepath.Join(k.top, "conf", "b")},
		{skill.ReasonBroken, "c", "ws/c: SKILL.md:1: the file must begin with front matter"},
		{skill.ReasonShadowed, "c", "user/c"},
		{skill.ReasonShadowed, "d", "user/d"},
		{skill.ReasonDisabled, "d", "ws/d"},
	} {
		if !l.has(want.reason, want.name, filepath.FromSlash(want.words)) {
			t.Errorf("no %v", want)
		}
	}
	if len(l) != 8 || len(problems) != 0 {
		t.Errorf("%d skills, %v", len(l), problems)
	}
}

// Every file counts for the hash, by name and content.
func TestN16_HashCoversTheFolder(t *testing.T) {
	seen := map[string]string{}
	for name, change := range map[string]func(k *kit){
		"as it is":   func(*kit) {},
		"text":       func(k *kit) { k.put("ws/a/SKILL.md", "---\nname: a\ndescription: Does a.\n---\nOther.\n") },
		"file":       func(k *kit) { k.put("ws/a/scripts/run.sh", "rm") },
		"more":       func(k *kit) { k.put("ws/a/new", "") },
		"other name": func(k *kit) { k.put("ws/a/new2", "") },
		"hidden":     func(k *kit) { k.put("ws/a/.hidden", "") },
	} {
		k := newKit(t)
		k.skill("ws/a", "")
		k.put("ws/a/scripts/run.sh", "echo")
		change(k)
		l, problems := k.load("ws")
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		hash := l.named("a").Hash
		if other, ok := seen[hash]; ok || !strings.HasPrefix(hash, "sha256:") {
			t.Errorf("%s has the hash of %s: %s", name, other, hash)
		}
		seen[hash] = name
	}
	k := newKit(t)
	k.skill("ws/a", "")
	k.put("ws/a/scripts/run.sh", "echo")
	k.put("ws/a/.git/config", "changes all the time")
	l, _ := k.load("ws")
	s := l.named("a")
	if seen[s.Hash] == "" || len(s.Files) != 2 || s.Files[0].Name != "SKILL.md" || s.Files[1].Name != "scripts/run.sh" ||
		s.Files[1].Size != 4 {
		t.Errorf("where the folder lies, or .git, changes the hash: %+v", s)
	}
}

// Files that were read before make the same skills.
func TestN16_LoadFromMemory(t *testing.T) {
	k := newKit(t)
	k.skill("ws/a", "allowed-tools: Read\n")
	k.put("ws/a/ref/x.md", "text")
	disk, _ := k.load("ws")
	whole, err := os.ReadFile(filepath.Join(k.top, "ws", "a", "SKILL.md"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{
		"a/SKILL.md": whole, "a/ref/x.md": []byte("text"), "a/.git/x": nil, ".hidden/SKILL.md": nil, "README": nil, "b/x": nil, "C/SKILL.md": nil,
		"d/skill.md": nil, "e/SKILL.md": bytes.Repeat([]byte("x"), 300<<10),
	}
	var l library
	l, problems := skill.Load([]skill.Dir{{Path: filepath.Join(k.top, "ws"), Source: "workspace", Files: files}}, builtin.Aliases())
	s := l.named("a")
	if s == nil || s.Hash != disk.named("a").Hash || len(l.usable()) != 1 {
		t.Fatalf("%+v", l.usable())
	}
	if data, err := s.ReadFile("ref/x.md"); err != nil || string(data) != "text" {
		t.Errorf("%q, %v", data, err)
	}
	if !l.has(skill.ReasonBroken, "d", "must be a file called") || !l.has(skill.ReasonBroken, "e", "more than the 262144") || len(l) != 3 ||
		len(problems) != 1 || !strings.Contains(problems[0], "folder is called") {
		t.Errorf("%v, %v", l, problems)
	}
	if l, problems := skill.Load([]skill.Dir{{Path: filepath.Join(k.top, "ws"), Files: map[string][]byte{}}}, builtin.Aliases()); len(l) != 0 || len(problems) != 0 {
		t.Errorf("no files, and %v, %v", l, problems)
	}
}

// What is too large is refused, and says so.
func TestN16_LoadBounds(t *testing.T) {
	for name, tt := range map[string]struct {
		fill  func(k *kit)
		words string
	}{
		"10 MB of text": {func(k *kit) { k.put("ws/a/SKILL.md", strings.Repeat("x", 10<<20)) }, `"SKILL.md" has 10485760 bytes, more than the 262144`},
		"10 MB file":    {func(k *kit) { k.put("ws/a/big", strings.Repeat("x", 10<<20)) }, `"big" has 10485760 bytes, more than the 8388608`},
		"many bytes": {func(k *kit) {
			for i := range 5 {
				k.put(fmt.Sprintf("ws/a/%d", i), strings.Repeat("x", 7<<20))
			}
		}, "more than 33554432 bytes"},
		"many files": {func(k *kit) {
			for i := range 1001 {
				k.put(fmt.Sprintf("ws/a/f/%d", i), "")
			}
		}, "more than 1000 files"},
		"deep folders": {func(k *kit) { k.put("ws/a/"+strings.Repeat("d/", 12)+"x", "") }, "more than 8 folders inside"},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			k.skill("ws/a", "")
			tt.fill(k)
			k.skill("ws/b", "")
			l, problems := k.load("ws")
			if len(l.usable()) != 1 || l.named("b").Reason != "" || len(problems) != 0 ||
				!l.has(skill.ReasonBroken, "a", tt.words) {
				t.Errorf("%v", problems)
			}
		})
	}
	many := map[string][]byte{}
	for i := range skill.MaxSkills + 8 {
		name := fmt.Sprintf("s%03d", i)
		many[name+"/SKILL.md"] = []byte("---\nname: " + name + "\ndescription: d\nallowed-tools: Read\n---\nb\n")
	}
	var l library
	l, problems := skill.Load([]skill.Dir{{Path: "ws", Files: many}}, nil)
	if len(l.usable()) != 500 || len(problems) != 0 || !l.has(skill.ReasonBroken, "s500", "more than 500 skills; those after it") {
		t.Errorf("%d skills, %v", len(l.usable()), problems)
	}
	// A skill that there was no room for does not free the tools.
	set, off := l.choose([]string{"s507"}, everything)
	if set.AllowedTools() == nil || len(off) != 1 {
		t.Errorf("%v, %v", set.AllowedTools(), off)
	}
	if _, problems = skill.Load(make([]skill.Dir, skill.MaxDirs+5), builtin.Aliases()); len(problems) != 1 || !strings.Contains(problems[0], "more than 100 folders") {
		t.Errorf("%v", problems)
	}
}

func TestN16_ReadFileGivesWhatWasLoaded(t *testing.T) {
	k := newKit(t)
	k.skill("ws/a", "")
	k.put("ws/a/x", "one")
	k.put("ws/a/y", "two")
	k.put("ws/a/empty", "")
	k.put("ws/secret", "s")
	l, _ := k.load("ws")
	s := l.named("a")
	if data, err := s.ReadFile("x"); err != nil || string(data) != "one" {
		t.Errorf("%q, %v", data, err)
	}
	k.put("ws/a/x", "two")
	k.put("ws/a/y", "two and more")
	k.put("ws/a/empty", "no more")
	k.put("ws/a/z", "new")
	if err := os.Remove(filepath.Join(k.top, "ws", "a", "SKILL.md")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]error{
		"x": skill.ErrChanged, "y": skill.ErrChanged, "empty": skill.ErrChanged, "SKILL.md": skill.ErrChanged, "z": fs.ErrNotExist, "../secret": fs.ErrNotExist, "": fs.ErrNotExist,
		"./x": fs.ErrNotExist, k.top + "/ws/secret": fs.ErrNotExist,
	} {
		if data, err := s.ReadFile(name); data != nil || !errors.Is(err, want) {
			t.Errorf("%s: %q, %v; want %v", name, data, err, want)
		}
	}
	if _, err := (&skill.Skill{Name: "a"}).ReadFile("x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a skill that was not loaded: %v", err)
	}
}
