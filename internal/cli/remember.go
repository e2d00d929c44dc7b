package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolcrib/toolcrib/journal"
)

// rememberFlags are those that make an approval hold for later calls (contract §6).
func (a *app) rememberFlags(cmd *cobra.Command, f *decideFlags) {
	flags := cmd.Flags()
	flags.StringVar(&f.remember, "remember", "", "let later calls like these pass too, without a question: in this run, session, or for this user")
	flags.StringVar(&f.rememberCalls, "remember-calls", "", "what counts as like these: path or folder of the file, the same arguments, any call of the tool (default: path for file writes, arguments for command lines, tool for other calls that may be repeated safely, else arguments)")
	for name, words := range map[string][]string{"remember": rememberScopes(), "remember-calls": journal.RememberCalls()} {
		// The flag was just made, so this cannot fail.
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	}
}

func rememberScopes() []string {
	return []string{journal.RememberRun, journal.RememberSession, journal.RememberUser}
}

// checkRemember refuses words that mean nothing, before anything is looked up.
func (f *decideFlags) checkRemember(flags *pflag.FlagSet) error {
	for _, one := range []struct {
		name, value string
		words       []string
	}{{"remember", f.remember, rememberScopes()}, {"remember-calls", f.rememberCalls, journal.RememberCalls()}} {
		if flags.Changed(one.name) && !slices.Contains(one.words, one.value) {
			return usagef("--%s: must be one of %s, not %q", one.name, strings.Join(one.words, ", "), one.value)
		}
	}
	if f.rememberCalls != "" && f.remember == "" {
		return usagef("--remember-calls: goes with --remember")
	}
	return nil
}

// remembered is what is to be remembered; nil = nothing.
func (f *decideFlags) remembered() *journal.Remember {
	if f.remember == "" {
		return nil
	}
	return &journal.Remember{Scope: f.remember, Calls: f.rememberCalls}
}
