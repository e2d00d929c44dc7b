package config_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/internal/config"
)

// A project's commands are named at its review, and what restricts an entry of the user's stays.
func TestN5_CommandsOfAProject(t *testing.T) {
	files := newTwo(t)
	c, err := files.load(
		"tools: {shell: {network: false}, commands: {a: {command: [ls], effect: idempotent_write, untrusted: true}, c: {command: [id]}}}",
		"tools:\n  commands:\n    a: {command: [./a.sh, {args.x}, 'b c'], effect: read_only, parameters: {properties: {x: {}}}}\n"+
			"    b: {command: [sub/b], network: true}")
	if err != nil {
		t.Fatal(err)
	}
	a, b := c.Tools.Commands["a"], c.Tools.Commands["b"]
	if a.Effect != "idempotent_write" || !a.IsUntrusted() || b.Network || b.IsUntrusted() || c.Tools.Commands["c"].Words()[0] != "id" {
		t.Errorf("%+v %+v", a, b)
	}
	for _, want := range []string{
		`widens tools.commands.a: runs "./a.sh" {args.x} "b c" (line 3)`, "widens tools.commands.b: runs sub/b (line 4)",
		"keeps your tools.commands.b.network: false (line 1); true (line 4) is weaker",
	} {
		if !slices.Contains(c.Changes(), want) {
			t.Errorf("%q is missing in %q", want, c.Changes())
		}
	}
	for name, want := range map[string]string{
		"a": filepath.Join(filepath.Dir(files.project), "a.sh"), "b": filepath.Join(filepath.Dir(files.project), "sub/b"), "c": "id",
	} {
		if got, err := c.Program(name); got != want || err != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if _, err := config.Parse("t.yaml", []byte("tools: {commands: {a: {command: [ls, '${env:HOME}']}}}")); err == nil ||
		!strings.Contains(err.Error(), "cannot hold a reference") {
		t.Error(err)
	}
	if _, err := config.Parse("t.yaml", []byte("tools: {bound: {a: {capability: x@1.0}}, commands: {A: {command: [ls]}}}")); err == nil ||
		!strings.Contains(err.Error(), "tools.bound has the tool a already") {
		t.Error(err)
	}
	c, err = config.Parse("t.yaml", []byte("tools: {commands: {a: {command: [ls], network: true}}}"))
	if err != nil || !c.Tools.Commands["a"].IsUntrusted() {
		t.Error(err)
	}
	if again, err := config.Parse("t.yaml", config.Show(c)); err != nil || !again.Tools.Commands["a"].Network {
		t.Error(err)
	}
}
