package cli

import (
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

// help writes the help of a command. What is no command of a group has none.
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
	text := cmd.Long
	if text == "" {
		text = cmd.Short
	}
	if !strings.HasSuffix(text, ".") {
		text += "."
	}
	h.lines("", text)
	h.head("Usage")
	use := cmd.CommandPath()
	if cmd.HasSubCommands() {
		use += " COMMAND"
	} else if _, arguments, ok := strings.Cut(cmd.Use, " "); ok {
		use += " " + arguments
	}
	if !strings.Contains(use, " --") {
		use += " [FLAGS]"
	}
	h.lines("  ", use)
	if cmd.Example != "" {
		h.head("Examples")
		for line := range strings.SplitSeq(cmd.Example, "\n") {
			// An example is there to be copied, so it is never broken.
			fmt.Fprintf(h, "  %s\n", line)
		}
	}
	if cmd.HasSubCommands() {
		h.commands(cmd)
	}
	h.flags("Flags", cmd.LocalNonPersistentFlags())
	root := cmd.Root()
	h.flags("Flags of every command", root.PersistentFlags())
	if cmd == root {
		h.head("Exit status")
		h.lines("  ", exitWords)
	}
	if cmd.HasSubCommands() {
		fmt.Fprintln(h)
		h.lines("", fmt.Sprintf("%s COMMAND --help shows examples and flags of a command.", cmd.CommandPath()))
	}
}

// exitWords are the exit codes of contract §3 in words.
const exitWords = "0 done, 1 the run failed (other commands: not done), 2 wrong usage or configuration, " +
	"3 the run is parked and waits for you or for its provider, 4 stopped by a limit or budget without an answer, " +
	"5 tools call: refused, 130 interrupted, 143 and 129 ended by SIGTERM and SIGHUP: the run can be resumed."

func (h helpPage) head(text string) {
	fmt.Fprintf(h, "\n%s\n", h.app.outStyle.Bold(text))
}

// lines writes a text, broken between words.
func (h helpPage) lines(indent, text string) {
	for _, line := range wrap(text, h.width-len(indent)) {
		fmt.Fprintf(h, "%s%s\n", indent, line)
	}
}

func (h helpPage) commands(cmd *cobra.Command) {
	h.head("Commands")
	var rows [][2]string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			rows = append(rows, [2]string{c.Name(), c.Short})
		}
	}
	h.table(rows)
}

func (h helpPage) flags(head string, flags *pflag.FlagSet) {
	var rows [][2]string
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		name := "--" + f.Name
		if word := placeholder(f); word != "" {
			name += " " + word
		}
		rows = append(rows, [2]string{name, f.Usage})
	})
	if len(rows) > 0 {
		h.head(head)
		h.table(rows)
	}
}

// table writes names with what they mean beside them.
func (h helpPage) table(rows [][2]string) {
	most := 0
	for _, row := range rows {
		most = max(most, len(row[0]))
	}
	indent := strings.Repeat(" ", most+4)
	for _, row := range rows {
		for i, line := range wrap(row[1], h.width-len(indent)) {
			if i > 0 {
				fmt.Fprintf(h, "%s%s\n", indent, line)
				continue
			}
			fmt.Fprintf(h, "  %s%s  %s\n", h.app.outStyle.Cyan(row[0]), strings.Repeat(" ", most-len(row[0])), line)
		}
	}
}

// placeholder names what a flag takes; "" = nothing.
func placeholder(f *pflag.Flag) string {
	words := map[string]string{
		"agent": "NAME", "approve": "HOW", "model": "MODEL", "tools": "LIST", "tool-choice": "CHOICE", "workspace": "DIR",
		"config": "FILE", "data-dir": "DIR", "as": "USER", "status": "LIST", "user": "USER", "since": "WHEN", "call": "ID",
		"digest": "D", "edit": "JSON", "happened": "JSON", "args": "JSON", "group": "NAME", "older-than": "SPAN",
		"add-cost": "USD", "token-file": "FILE", "grant": "GRANT", "role": "ROLE", "trust": "LEVEL", "tool": "NAME", "capability": "NAME",
		"param": "NAME=JSON", "ttl": "SPAN", "not-before": "WHEN",
	}
	switch word, ok := words[f.Name]; {
	case f.Value.Type() == "bool":
		return ""
	case ok:
		return word
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

func (a *app) helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Show the help of a command",
		Example: "toolcrib help run",
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || cmd == nil || len(rest) > 0 {
				return usagef("unknown command %q; see: toolcrib --help", strings.Join(args, " "))
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
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
