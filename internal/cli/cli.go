package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/store"
)

// Main runs the command line and returns its exit code.
func Main(args []string) int {
	// A reader that goes away ends no run: what cannot be written is dropped.
	signal.Ignore(syscall.SIGPIPE)
	a := newApp(os.Stdin, os.Stdout, os.Stderr)
	code := a.execute(context.Background(), args)
	if err := a.out.failure(); err != nil && code == exitOK {
		fmt.Fprintf(a.err, "toolcrib: standard output: %v\n", err)
		return exitFailed
	}
	return code
}

// execute runs one command line.
func (a *app) execute(ctx context.Context, args []string) int {
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
	message = guard.Visible(a.mask().Mask(strings.TrimRight(message, "\n")))
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
	version := false
	root := &cobra.Command{
		Use:   "toolcrib",
		Short: "Run language models with tools: one loop, one gate, one journal",
		Long: "toolcrib is the runtime between language models and tools. A run asks a model, " +
			"judges each tool call that it wants, runs what is allowed, and keeps everything in a journal.",
		Example: `toolcrib run "What is in this folder?"
toolcrib run --approve all "Write 'hello' to notes.txt"
toolcrib runs show last
toolcrib tools list`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if version && len(args) == 0 {
				a.printVersion()
				return nil
			}
			return group(cmd, args)
		},
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range []string{"config", "data-dir", "as", "token-file"} {
				if f := cmd.Flags().Lookup(name); f != nil && f.Changed && f.Value.String() == "" {
					return usagef("--%s: must not be empty", name)
				}
			}
			a.began = true
			return a.actor(cmd)
		},
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.Flags().BoolVar(&version, "version", false, "show the version, as the command version does")
	flags := root.PersistentFlags()
	flags.StringVar(&a.configFlag, "config", "", "configuration file (default: $TOOLCRIB_CONFIG, ./toolcrib.yaml, the user's own)")
	flags.StringVar(&a.dataFlag, "data-dir", "", "folder of the database and everything that is kept")
	flags.StringVar(&a.asFlag, "as", "", "act for this user (administrators only)")
	flags.StringVar(&a.tokenFlag, "token-file", "", "act by the access token in this file, within its scope; - reads standard input")
	root.AddCommand(
		a.runCommand(), a.chatCommand(), a.toolsCommand(), a.runsCommand(), a.sessionsCommand(), a.approvalsCommand(), a.gateCommand(), a.auditCommand(), a.usageCommand(), a.agentsCommand(), a.modelsCommand(), a.skillsCommand(),
		a.configCommand(), a.trustCommand(), a.secretCommand(), a.usersCommand(), a.tokensCommand(), a.backupCommand(), a.restoreCommand(), a.doctorCommand(), a.versionCommand(), a.completionCommand(),
	)
	root.SetHelpCommand(a.helpCommand(root))
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
