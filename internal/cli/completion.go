package cli

import (
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/store"
)

// What a shell completes: the arguments and the values of flags that commands.md names. A
// shell that asks is told nothing of errors, and nothing of other users.

// completed is how many names a shell is offered, and how long they are looked for.
const (
	completed         = 100
	completionTimeout = time.Second
)

// completions are those by the word that stands for a value in commands.md; flags of
// the same name mean the same everywhere.
func (a *app) completions() map[string]cobra.CompletionFunc {
	return map[string]cobra.CompletionFunc{
		"RUN": a.completing(ownRuns), "SESSION": a.completing(ownSessions), "ID": a.completing(ownApprovals),
		"REMEMBERED": a.completing(ownRemembered), "AGENT": a.completingKnown(agentNames),
		"MODEL": a.completingKnown(modelNames),
	}
}

// complete gives a command the completions that it has not got itself: of its arguments
// and of its flags.
func (a *app) complete(cmd *cobra.Command, path, args string) {
	all := a.completions()
	word := strings.TrimSuffix(strings.Trim(strings.Fields(args + " -")[0], "[]"), "...")
	switch path {
	case "toolcrib agents show":
		word = "AGENT"
	case "toolcrib approvals remembered revoke":
		word = "REMEMBERED"
	case "toolcrib tokens revoke":
		word = ""
	}
	if names := all[word]; names != nil && cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = names
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		value := f.Annotations[valueName]
		if len(value) == 0 {
			return
		}
		word := value[0]
		switch f.Name {
		case "agent":
			word = "AGENT"
		case "parent":
			word = "RUN"
		case "call":
			word = ""
		}
		if _, taken := cmd.GetFlagCompletionFunc(f.Name); all[word] != nil && !taken {
			completeFlag(cmd, f.Name, all[word])
		}
	})
}

// completing completes the first argument of a command from what is kept. It makes no data
// folder.
func (a *app) completing(names func(c call) ([]string, error)) cobra.CompletionFunc {
	return a.completingKnown(func(c call) ([]string, error) {
		if _, err := os.Stat(c.Database()); err != nil {
			return nil, nil
		}
		if err := c.OpenToRead(c); err != nil {
			return nil, err
		}
		return names(c)
	})
}

// completingKnown completes it from what is known without the data folder.
func (a *app) completingKnown(names func(c call) ([]string, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		c, err, found := call{}, error(nil), []string(nil)
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		if c.Context = ctx; len(args) == 0 {
			if c.Service, c.who, err = a.knowing(ctx); err == nil {
				found, err = names(c)
			}
		}
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		for i, name := range found {
			name, about, _ := strings.Cut(name, "\t")
			found[i] = guard.Visible(name) + strings.TrimRight("\t"+guard.Visible(about), "\t")
		}
		return found, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// offered is a name with what is known of it, as shells show them.
func offered(name string, about ...string) string {
	text := strings.Join(strings.Fields(strings.Join(about, " ")), " ")
	if r := []rune(text); len(r) > 60 {
		text = string(r[:60]) + "…"
	}
	return name + "\t" + text
}

func ownRuns(c call) ([]string, error) {
	runs, _, err := c.Runs(c, c.who, service.RunsQuery{
		Filter: store.Filter{User: c.who.User, TopLevel: true, Limit: completed}, Prompts: true,
	})
	names, err := listed(runs, func(r service.Run) string { return offered(short(r.ID), statusText(r), r.Prompt) }, err)
	return append(names, "last"), err
}

func ownSessions(c call) ([]string, error) {
	page, err := c.Sessions(c, c.who, store.SessionFilter{User: c.who.User, Limit: completed})
	names, err := listed(page.Sessions, func(s store.SessionInfo) string {
		if s.Name != "" {
			return offered(s.Name, s.Title)
		}
		return offered(short(s.ID), s.Title)
	}, err)
	return append(names, "last"), err
}

func ownApprovals(c call) ([]string, error) {
	all, err := c.Approvals(c, c.who)
	all = slices.DeleteFunc(all, func(v *service.Approval) bool { return v.User != c.who.User })
	names, err := listed(all, func(v *service.Approval) string {
		return offered(short(v.ID), callsText(v))
	}, err)
	return append(names[:min(len(names), completed)], "last"), err
}

func ownRemembered(c call) ([]string, error) {
	all, err := c.Remembered(c, c.who, false, completed)
	all = slices.DeleteFunc(all, func(m store.Remembered) bool { return m.User != c.who.User })
	return listed(all, func(m store.Remembered) string { return offered(short(m.ID), m.Tool) }, err)
}

func agentNames(c call) ([]string, error) { return c.Config.AgentNames(), nil }

func modelNames(c call) ([]string, error) { return c.ModelNames(), nil }
