package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib/internal/version"
)

func (a *app) versionCommand(cmd *cobra.Command) {
	a.answering(cmd, nil, func(call) (any, func(), error) {
		return map[string]string{
			"version": version.Version(), "commit": version.Commit(), "go": version.Go(), "platform": version.Platform(),
		}, a.printVersion, nil
	})
}

func (a *app) printVersion() {
	text := "toolcrib " + version.Version()
	if commit := version.Commit(); commit != "" {
		text += " (" + commit + ")"
	}
	fmt.Fprintf(a.out, "%s %s %s\n", text, version.Go(), version.Platform())
}

func (a *app) completionCommand(cmd *cobra.Command) {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	cmd.ValidArgs = shells
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		root := cmd.Root()
		switch args[0] {
		case "bash":
			return root.GenBashCompletionV2(a.out, true)
		case "zsh":
			return root.GenZshCompletion(a.out)
		case "fish":
			return root.GenFishCompletion(a.out, true)
		case "powershell":
			return root.GenPowerShellCompletionWithDesc(a.out)
		}
		return usagef("unknown shell %q: one of bash, zsh, fish, powershell", args[0])
	}
}
