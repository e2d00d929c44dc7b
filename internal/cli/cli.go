package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/store"
)

// gcPercent is how much the heap may grow before garbage is collected, as GOGC says it.
const gcPercent = 400

// Main runs the command line and returns its exit code.
func Main(args []string) int {
	// Most commands end before collecting garbage pays: it is half of what starting costs.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	// A reader that goes away ends no run: what cannot be written is dropped.
	signal.Ignore(syscall.SIGPIPE)
	return newApp(os.Stdin, os.Stdout, os.Stderr).main(args)
}

func (a *app) main(args []string) int {
	code := a.execute(context.Background(), args)
	if code == exitOK { // else a write that nobody reads may be under way still
		if err := a.out.failure(); err != nil {
			fmt.Fprintf(a.err, "toolcrib: standard output: %v\n", err)
			code = exitFailed
		}
	}
	if a.hook != nil {
		a.hook()
		if code != exitOK {
			code = exitUsage
		}
	}
	return code
}

// execute runs one command line.
func (a *app) execute(ctx context.Context, args []string) int {
	a.args = args
	root := a.root()
	root.SetArgs(args)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return flagError(cmd, args, err) })
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = a.helpErr
	}
	if closing := a.close(); err == nil {
		err = closing
	}
	if err == nil {
		return exitOK
	}
	if message := errorText(err); message != "" {
		var broken *store.ChainError
		if errors.As(err, &broken) {
			message += "\n`toolcrib runs verify` lists everything that was changed; restore a copy of the data folder"
		}
		a.complain(message)
	}
	return a.code(err)
}

// complain writes an error. Each line of it may come from anywhere.
func (a *app) complain(message string) {
	message = guard.Visible(shortIDs(a.mask().Mask(strings.TrimRight(message, "\n"))))
	fmt.Fprintf(a.err, "%s %s\n", a.style.Red("toolcrib:"), message)
}

// code is the exit code of an error of a command. What cobra itself refuses is
// wrong usage.
func (a *app) code(err error) int {
	if !a.began {
		return exitUsage
	}
	return codeOf(err)
}

func (a *app) root() *cobra.Command {
	root := a.tree()
	root.SilenceUsage, root.SilenceErrors = true, true
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if version, _ := cmd.Flags().GetBool("version"); version && len(args) == 0 {
			a.printVersion()
			return nil
		}
		return group(cmd, args)
	}
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		a.began = true
		if cmd.CommandPath() == hookPath {
			a.answersHook(cmd)
		}
		return a.actor(cmd)
	}
	root.CompletionOptions.DisableDefaultCmd = true
	help, _, _ := root.Find([]string{"help"})
	root.SetHelpCommand(help)
	root.SetHelpFunc(a.help)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	return root
}

// group is what a command does that only holds others: without a name it shows
// its help, any other name is wrong usage.
func group(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		text += fmt.Sprintf("; did you mean %q?", near[0])
	} else if near := nearest(args[0], commandNames(cmd)); near != "" {
		text += fmt.Sprintf("; did you mean %q?", near)
	}
	return usagef("%s\nSee: %s --help", text, cmd.CommandPath())
}

func commandNames(cmd *cobra.Command) []string {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return names
}
