package cli

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestCommandsDescribed holds commands.md and the commands against each other: each command
// is described with examples, each flag has a text, and no text is about something that does
// not exist.
func TestCommandsDescribed(t *testing.T) {
	a := newApp(os.Stdin, os.Stdout, os.Stderr)
	commands := map[string]*cobra.Command{}
	var collect func(cmd *cobra.Command)
	collect = func(cmd *cobra.Command) {
		commands[cmd.CommandPath()] = cmd
		for _, child := range cmd.Commands() {
			collect(child)
		}
	}
	collect(a.root())
	all := descriptions()
	if len(all) < 80 || len(commands) != len(all)-1 {
		t.Fatalf("%d commands, %d descriptions", len(commands), len(all)-1)
	}
	used := map[string]bool{}
	for _, d := range all[1:] {
		cmd := commands[d.path]
		if cmd == nil || cmd.Short == "" || cmd.Example == "" {
			t.Errorf("%s: is no command, or lacks a line about it or an example", d.path)
			continue
		}
		if first, _, _ := strings.Cut(cmd.Short, " "); cmd.Long != "" && (!strings.HasPrefix(cmd.Long, first) || !strings.HasSuffix(cmd.Long, ".")) {
			t.Errorf("%s: what it says does not begin with what it does (%s), or ends without a full stop", d.path, first)
		}
		if cmd.HasSubCommands() == (a.commands()[d.path[min(len("toolcrib "), len(d.path)):]] != nil) {
			t.Errorf("%s: either holds commands or does something", d.path)
		}
		flags := map[string]bool{}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			flags[f.Name] = true
			if _, own := d.flags[f.Name]; !own {
				used[f.Name] = true
			}
			if value := f.Annotations[valueName][0]; value == "TEXT" && !slices.Contains([]string{"reason", "message", "description"}, f.Name) {
				t.Errorf("%s: --%s %s does not say what its value is", d.path, f.Name, value)
			}
			if f.Usage == "" {
				t.Errorf("%s: --%s has no text", d.path, f.Name)
			}
		})
		for name := range d.flags {
			if !flags[name] {
				t.Errorf("%s: there is no flag --%s", d.path, name)
			}
		}
	}
	for name := range all[0].flags {
		if !used[name] {
			t.Errorf("no command takes --%s from the flags of several commands", name)
		}
	}
	for path := range a.commands() {
		if !slices.ContainsFunc(all, func(d described) bool { return d.path == "toolcrib "+path }) {
			t.Errorf("toolcrib %s: is not described", path)
		}
	}
}
