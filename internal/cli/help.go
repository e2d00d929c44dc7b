package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolcrib/toolcrib/guard"
)

// helpWidth is the width of a help that is not on a terminal, and the most that is
// good to read on one.
const (
	helpWidth    = 80
	helpWidthMax = 100
)

// help writes the help of a command. An unknown command of a group is an error.
func (a *app) help(cmd *cobra.Command, _ []string) {
	if rest := cmd.Flags().Args(); cmd.HasSubCommands() && len(rest) > 0 {
		a.began = true
		a.helpErr = group(cmd, rest)
		return
	}
	h := helpPage{Writer: a.out, app: a, width: helpWidth}
	if a.outTerminal && a.outStyle.Width >= 40 {
		h.width = min(a.outStyle.Width, helpWidthMax)
	}
	h.write(cmd)
}

// helpPage is one help on its way out.
type helpPage struct {
	io.Writer
	app   *app
	width int
}

func (h helpPage) write(cmd *cobra.Command) {
	text := strings.TrimSuffix(cmp.Or(cmd.Long, cmd.Short), ".") + "."
	use := cmd.CommandPath()
	if _, arguments, ok := strings.Cut(cmd.Use, " "); ok {
		use += " " + arguments
	} else if cmd.HasSubCommands() {
		use += " COMMAND"
	}
	if !strings.Contains(use, " --") {
		use += " [FLAGS]"
	}
	fmt.Fprintln(h, strings.Join(wrap(text, h.width), "\n"))
	h.section("Usage", [][2]string{{"", use}})
	if cmd.Example != "" {
		// An example is there to be copied, so it is never broken.
		h.section("Examples", nil)
		fmt.Fprintf(h, "  %s\n", strings.ReplaceAll(cmd.Example, "\n", "\n  "))
	}
	var commands [][2]string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			commands = append(commands, [2]string{c.Name(), c.Short})
		}
	}
	root := cmd.Root()
	for _, part := range []struct {
		head string
		rows [][2]string
	}{
		{"Commands", commands},
		{"Flags", rowsOf(cmd.LocalNonPersistentFlags())},
		{"Flags of every command", rowsOf(root.PersistentFlags())},
	} {
		if len(part.rows) > 0 {
			h.section(part.head, part.rows)
		}
	}
	if cmd == root {
		h.section("Exit status", [][2]string{{"", exitWords}})
	}
	if cmd.HasSubCommands() {
		fmt.Fprintf(h, "\n%s COMMAND --help shows examples and flags of a command.\n", cmd.CommandPath())
	}
}

// exitWords are the exit codes of contract §3 in words.
const exitWords = "0 done, 1 the run failed (other commands: not done), 2 wrong usage or configuration, " +
	"3 the run is parked and waits for you or for its provider, 4 stopped by a limit or budget without an answer, " +
	"5 tools call: refused, 130 interrupted, 143 and 129 ended by SIGTERM and SIGHUP: the run can be resumed."

// section writes names with what they mean beside them, broken between words.
func (h helpPage) section(head string, rows [][2]string) {
	fmt.Fprintf(h, "\n%s\n", h.app.outStyle.Bold(head))
	most := -2
	for _, row := range rows {
		if row[0] != "" {
			most = max(most, len(row[0]))
		}
	}
	for _, row := range rows {
		name := h.app.outStyle.Cyan(row[0]) + strings.Repeat(" ", most+2-len(row[0]))
		for _, line := range wrap(row[1], h.width-most-4) {
			fmt.Fprintf(h, "  %s%s\n", name, line)
			name = strings.Repeat(" ", most+2)
		}
	}
}

// rowsOf are the flags of a set that are shown.
func rowsOf(flags *pflag.FlagSet) (rows [][2]string) {
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && f.Name != "help" {
			name := "--" + f.Name
			if f.Shorthand != "" {
				name = "-" + f.Shorthand + ", " + name
			}
			rows = append(rows, [2]string{strings.TrimSuffix(name+" "+placeholder(f), " "), f.Usage})
		}
	})
	return rows
}

// placeholder names the value of a flag; "" = it takes none.
func placeholder(f *pflag.Flag) string {
	switch value := f.Annotations[valueName]; {
	case f.Value.Type() == "bool":
		return ""
	case len(value) > 0 && value[0] != "":
		return value[0]
	case f.Value.Type() == "string", f.Value.Type() == "stringArray":
		return "TEXT"
	}
	return "N"
}

// wrap breaks a text between words into lines of at most width columns.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case ansi.StringWidth(line)+1+ansi.StringWidth(word) > width:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}

func (a *app) helpCommand(cmd *cobra.Command) {
	cmd.Args = nil
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		of, rest, err := cmd.Root().Find(args)
		if err != nil || of == nil || len(rest) > 0 {
			return usagef("unknown command %q; see: toolcrib --help", strings.Join(args, " "))
		}
		of.InitDefaultHelpFlag()
		return of.Help()
	}
}

// positional holds the arguments of a command to what its Use line says: NAME is
// required, [NAME] is not, NAME... may be many.
func positional(cmd *cobra.Command, args []string) error {
	required, most := []string{}, 0
	for _, word := range strings.Fields(cmd.Use)[1:] {
		if strings.HasPrefix(word, "--") || word == "|" {
			break
		}
		if most++; strings.Contains(word, "...") {
			most = len(args)
		}
		if !strings.HasPrefix(word, "[") {
			required = append(required, strings.TrimSuffix(word, "..."))
		}
	}
	switch {
	case len(args) < len(required):
		return usagef("%s is missing\nSee: %s --help", required[len(args)], cmd.CommandPath())
	case len(args) > max(most, len(required)):
		return usagef("unexpected argument %q\nSee: %s --help", guard.Visible(args[most]), cmd.CommandPath())
	}
	return nil
}
