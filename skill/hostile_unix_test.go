//go:build unix

package skill_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/toolcrib/toolcrib/skill"
)

func (k *kit) link(to, name string) {
	k.t.Helper()
	if err := os.Symlink(to, filepath.Join(k.top, filepath.FromSlash(name))); err != nil {
		k.t.Fatal(err)
	}
}

// Links and things that are no files make a folder no skill, and never make a load
// wait.
func TestN26_LoadTakesNoTricks(t *testing.T) {
	pipe := func(name string) func(*kit) {
		return func(k *kit) {
			if err := syscall.Mkfifo(filepath.Join(k.top, filepath.FromSlash(name)), 0o600); err != nil {
				k.t.Fatal(err)
			}
		}
	}
	for name, fill := range map[string]func(k *kit){
		"a link out":              func(k *kit) { k.link("/etc/passwd", "ws/a/x") },
		"a link to a folder out":  func(k *kit) { k.link("/etc", "ws/a/x") },
		"a link within":           func(k *kit) { k.link("SKILL.md", "ws/a/x") },
		"a link above":            func(k *kit) { k.link("../..", "ws/a/x") },
		"a link to itself":        func(k *kit) { k.link("x", "ws/a/x") },
		"a pipe":                  pipe("ws/a/x"),
		"the text is a link":      func(k *kit) { k.put("other", "x"); k.remove("ws/a/SKILL.md"); k.link("../../other", "ws/a/SKILL.md") },
		"the text is a pipe":      func(k *kit) { k.remove("ws/a/SKILL.md"); pipe("ws/a/SKILL.md")(k) },
		"the text is a folder":    func(k *kit) { k.remove("ws/a/SKILL.md"); k.put("ws/a/SKILL.md/x", "") },
		"the text is called else": func(k *kit) { k.remove("ws/a/SKILL.md"); k.put("ws/a/skill.md", "") },
		"the folder is a link":    func(k *kit) { k.remove("ws/a"); k.skill("other/a", ""); k.link("../other/a", "ws/a") },
		"the folder is a loop":    func(k *kit) { k.remove("ws/a"); k.link("a", "ws/a") },
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			k.skill("ws/a", "allowed-tools: Read\n")
			k.skill("ws/b", "")
			k.skill("user/a", "")
			fill(k)
			l, problems := k.load("ws", "user")
			if !slices.Equal(l.usable(), []string{"ws/b"}) || len(problems) != 0 || !l.has(skill.ReasonBroken, "a", "no skill: ") || !l.has(skill.ReasonShadowed, "a", "") {
				t.Errorf("%+v, %v", l, problems)
			}
			if set, _ := l.choose([]string{"a"}, everything); set.AllowedTools() == nil || len(set.Names()) != 0 {
				t.Error("a broken skill frees the tools")
			}
		})
	}
}

func (k *kit) remove(name string) {
	k.t.Helper()
	if err := os.RemoveAll(filepath.Join(k.top, filepath.FromSlash(name))); err != nil {
		k.t.Fatal(err)
	}
}

// The folder that holds skills may itself be a link: a person named it.
func TestN16_LoadThroughALinkOfTheFolder(t *testing.T) {
	k := newKit(t)
	k.skill("real/a", "")
	k.link("real", "ws")
	if l, problems := k.load("ws"); len(l.usable()) != 1 || len(problems) != 0 {
		t.Errorf("%v", problems)
	}
	k.put("file", "")
	if _, problems := k.load("file"); len(problems) != 1 || !strings.Contains(problems[0], "cannot be read") {
		t.Errorf("%v", problems)
	}
}

// A file that became a link or a pipe after the load is not followed.
func TestN26_ReadFileTakesNoTricks(t *testing.T) {
	for name, replace := range map[string]func(k *kit){
		"link out":       func(k *kit) { k.link("../../secret", "ws/a/x") },
		"link in":        func(k *kit) { k.link("y", "ws/a/x") },
		"folder":         func(k *kit) { k.put("ws/a/x/z", "") },
		"pipe":           func(k *kit) { _ = syscall.Mkfifo(filepath.Join(k.top, "ws", "a", "x"), 0o600) },
		"nothing":        func(*kit) {},
		"a linked skill": func(k *kit) { k.put("other/x", "same bytes?"); k.remove("ws/a"); k.link("../other", "ws/a") },
	} {
		k := newKit(t)
		k.skill("ws/a", "")
		k.put("ws/a/x", "data")
		k.put("ws/a/y", "secret")
		k.put("secret", "secret")
		l, _ := k.load("ws")
		k.remove("ws/a/x")
		replace(k)
		if data, err := l.named("a").ReadFile("x"); data != nil || !errors.Is(err, skill.ErrChanged) {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
}

// Where links are followed, a skill may be one; what it leads to is read as any other.
func TestLinkedSkills(t *testing.T) {
	k := newKit(t)
	k.skill("else/where", "")
	k.put("else/where/x", "data")
	k.skill("user/own", "")
	k.put("file", "x")
	for name, to := range map[string]string{
		"where": "../else/where", "again": "where", "other-name": "own", "root": "/", "up": "..", "self": ".", "loop": "loop",
		"gone": "../nothing", "file": "../file", "system": "/proc/self/fd/0",
	} {
		k.link(to, "user/"+name)
	}
	dirs := k.dirs("user")
	dirs[0].Links = true
	var l library
	l, problems := skill.Load(dirs, nil)
	for _, name := range []string{"where", "again", "other-name", "own"} {
		s := l.named(name)
		if s == nil || s.Reason != "" || s.Path != filepath.Join(k.top, "user", name) || s.Name != name {
			t.Fatalf("%s: %+v, %v", name, s, problems)
		}
	}
	if l.named("where").Hash != l.named("again").Hash {
		t.Error("the hash is not that of the content")
	}
	if data, err := l.named("again").ReadFile("x"); string(data) != "data" || err != nil {
		t.Errorf("%q, %v", data, err)
	}
	for name, words := range map[string]string{
		"root": "to a folder that it lies in", "up": "to a folder that it lies in", "self": "to a folder that it lies in",
		"loop": "to nothing, or to itself", "gone": "to nothing, or to itself", "file": "not to a folder", "system": "no skill: it is a link",
	} {
		if !l.has(skill.ReasonBroken, name, words) {
			t.Errorf("%s: %+v", name, l.named(name))
		}
	}
	k.put("else/where/x", "changed")
	if _, err := l.named("where").ReadFile("x"); !errors.Is(err, skill.ErrChanged) {
		t.Errorf("%v", err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(filepath.Join(k.top, "else/where"), 12345, -1); err != nil {
			t.Fatal(err)
		}
		if l, _ = skill.Load(dirs, nil); !l.has(skill.ReasonBroken, "where", "of another user") {
			t.Errorf("%+v", l.named("where"))
		}
	}
}
