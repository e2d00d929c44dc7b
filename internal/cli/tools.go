package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/store"
)

func (a *app) toolsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "tools",
		Short:   "List tools, switch them on and off, call one, explain why one is offered",
		Example: "toolcrib tools list\ntoolcrib tools disable write_file\ntoolcrib tools explain write_file",
		Args:    cobra.ArbitraryArgs,
		RunE:    group,
	}
	cmd.AddCommand(
		a.toolsListCommand(), a.toolsShowCommand(),
		a.toolsSwitchCommand("enable", "Switch a tool or a group of tools on"),
		a.toolsSwitchCommand("disable", "Switch a tool or a group of tools off"),
		a.toolsSwitchCommand("reset", "Forget what was switched: the default holds again"),
		a.toolsCallCommand(), a.toolsExplainCommand(),
	)
	return cmd
}

// toolView is a tool as contract §9 has it.
type toolView struct {
	gate.State
	Calls  int64 `json:"calls"`
	Errors int64 `json:"errors"`
}

// toolGate opens the store and the gate for commands about tools.
func (a *app) toolGate(ctx context.Context) (*gate.Gate, error) {
	g, _, err := a.toolGateAt(ctx, "", false)
	return g, err
}

// toolGateAt does so for calls in a workspace, which is that of the flag if it was
// given.
func (a *app) toolGateAt(ctx context.Context, flag string, given bool) (g *gate.Gate, workspace string, err error) {
	if _, err := a.configuration(); err != nil {
		return nil, "", err
	}
	if _, err := a.databaseToRead(ctx); err != nil {
		return nil, "", err
	}
	// The workspace decides nothing about which tools there are, so one that is
	// missing is told by run, not here.
	workspace, err = a.workspace(flag, given)
	if err != nil && given {
		return nil, "", err
	}
	if err != nil {
		workspace = "/"
	}
	g, err = a.service.Gate(workspace)
	return g, workspace, err
}

func (a *app) toolViews(ctx context.Context) ([]toolView, error) {
	g, err := a.toolGate(ctx)
	if err != nil {
		return nil, err
	}
	states, err := g.States(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := a.store.Usage(ctx, store.UsageQuery{By: store.UsageByTool, Limit: store.MaxUsageRows})
	if err != nil {
		return nil, err
	}
	uses := make(map[string]store.UsageRow, len(rows))
	for _, r := range rows {
		uses[r.Key] = r
	}
	views := make([]toolView, len(states))
	for i, s := range states {
		views[i] = toolView{State: s, Calls: uses[s.Name].Calls, Errors: uses[s.Name].Errors}
	}
	return views, nil
}

func (a *app) toolsListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the tools and whether they are enabled",
		Example: "toolcrib tools list\ntoolcrib tools list --json",
		Args:    positional,
		RunE: func(cmd *cobra.Command, _ []string) error {
			views, err := a.toolViews(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(a.out, views, true)
			}
			rows := [][]string{{"NAME", "STATE", "FOR", "EFFECT", "SOURCE", "DESCRIPTION"}}
			for _, v := range views {
				who := "all"
				if v.RequiresAdmin {
					who = "admin"
				}
				about, _, _ := strings.Cut(v.Description, "\n") // what stands below are details, as spawn's list of agents
				rows = append(rows, []string{v.Name, stateText(v.State), who, string(v.Effect), v.Source, about})
			}
			a.outStyle.Table(a.out, rows)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON value")
	return cmd
}

// stateText says whether a tool is enabled, and by what.
func stateText(s gate.State) string {
	text := "disabled"
	if s.Enabled {
		text = "enabled"
	}
	switch {
	case s.AllDisabled:
		return text + " (tools.enabled)"
	case s.Unusable != "":
		return text + " (unusable)"
	case s.GroupDisabled:
		return text + " (group)"
	case s.Overridden:
		return text + " (override)"
	}
	return text
}

func (a *app) toolsShowCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:               "show NAME",
		Short:             "Show a tool with its parameters",
		Example:           "toolcrib tools show read_file",
		Args:              positional,
		ValidArgsFunction: a.completeTools,
		RunE: func(cmd *cobra.Command, args []string) error {
			views, err := a.toolViews(cmd.Context())
			if err != nil {
				return err
			}
			for _, v := range views {
				if v.Name != args[0] {
					continue
				}
				if asJSON {
					return printJSON(a.out, v, true)
				}
				a.showTool(v)
				return nil
			}
			return noTool(args[0], namesOf(views))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON value")
	return cmd
}

func namesOf(views []toolView) []string {
	names := make([]string, len(views))
	for i, v := range views {
		names[i] = v.Name
	}
	return names
}

func noTool(name string, names []string) error {
	text := fmt.Sprintf("not found: there is no tool %q", name)
	if near := nearest(name, names); near != "" {
		text += fmt.Sprintf("; did you mean %q?", near)
	}
	return fmt.Errorf("%s", text)
}

func (a *app) showTool(v toolView) {
	s := a.outStyle
	fmt.Fprintf(a.out, "%s  %s\n%s\n\n", s.Bold(guard.Visible(v.Name)), stateText(v.State), guard.Visible(v.Description))
	who := "everybody"
	if v.RequiresAdmin {
		who = "administrators"
	}
	for _, row := range [][2]string{
		{"effect", string(v.Effect)},
		{"group", v.Group},
		{"source", v.Source},
		{"for", who},
		{"by default", onOff(v.EnabledByDefault)},
		{"calls", fmt.Sprintf("%d, %d of them failed", v.Calls, v.Errors)},
		{"unusable", v.Unusable},
	} {
		if row[1] != "" {
			fmt.Fprintf(a.out, "%s %s\n", s.Dim(fmt.Sprintf("%-11s", row[0])), guard.Visible(row[1]))
		}
	}
	fmt.Fprintf(a.out, "\n%s\n%s\n", s.Dim("parameters"), render.Indented(json.RawMessage(v.Parameters)))
}

func onOff(on bool) string {
	if on {
		return "enabled"
	}
	return "disabled"
}

func (a *app) toolsSwitchCommand(verb, short string) *cobra.Command {
	var groupName string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   verb + " [NAME]",
		Short: short,
		Long: short + ". For administrators. It holds at the next call, also in runs that go on. " +
			"--json gives the tool as `tools show` does, with --group a list of the group's tools; null is a tool that is not there any more.",
		Example: fmt.Sprintf("toolcrib tools %s write_file\ntoolcrib tools %s --group files\ntoolcrib tools %s write_file --json",
			verb, verb, verb),
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case groupName != "" && len(args) > 0:
				return usagef("give a tool or --group, not both")
			case groupName == "" && len(args) != 1:
				return usagef("give the name of one tool, or --group")
			}
			return nil
		},
		ValidArgsFunction: a.completeTools,
		RunE: func(cmd *cobra.Command, args []string) error {
			o := store.Override{Kind: store.OverrideGroup, Name: groupName, Enabled: verb == "enable"}
			if groupName == "" {
				o.Kind, o.Name = store.OverrideTool, args[0]
			}
			return a.switchTool(cmd.Context(), verb, o, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON value")
	cmd.Flags().StringVar(&groupName, "group", "", "all tools of this group, now and later")
	return cmd
}

// switchTool sets or resets an override.
func (a *app) switchTool(ctx context.Context, verb string, o store.Override, asJSON bool) error {
	by, err := a.administrator(ctx)
	if err != nil {
		return err
	}
	s, err := a.database(ctx)
	if err != nil {
		return err
	}
	if err := a.known(ctx, verb, o); err != nil {
		return err
	}
	o.By = by
	var changed bool
	if verb == "reset" {
		changed, err = s.ResetOverride(ctx, o.Kind, o.Name, by)
	} else {
		changed, err = s.SetOverride(ctx, o)
	}
	if err != nil {
		return err
	}
	if asJSON {
		if err := a.printSwitched(ctx, o); err != nil {
			return err
		}
		return a.stillOff(ctx, verb, o)
	}
	what := guard.Visible(o.Name)
	if o.Kind == store.OverrideGroup {
		what = "group " + what
	}
	word := map[string]string{"enable": "enabled", "disable": "disabled", "reset": "reset to the default"}[verb]
	if !changed {
		word += " already"
	}
	fmt.Fprintf(a.out, "%s: %s\n", what, word)
	return a.stillOff(ctx, verb, o)
}

// printSwitched writes the tools that a switch was about as they are now.
func (a *app) printSwitched(ctx context.Context, o store.Override) error {
	views, err := a.toolViews(ctx)
	if err != nil {
		return err
	}
	if o.Kind == store.OverrideGroup {
		views = slices.DeleteFunc(views, func(v toolView) bool { return v.Group != o.Name })
		return printJSON(a.out, views, true)
	}
	i := slices.IndexFunc(views, func(v toolView) bool { return v.Name == o.Name })
	if i < 0 {
		return printJSON(a.out, nil, true)
	}
	return printJSON(a.out, views[i], true)
}

// stillOff tells that a tool that was switched on stays off by its group.
func (a *app) stillOff(ctx context.Context, verb string, o store.Override) error {
	if verb == "disable" || o.Kind == store.OverrideGroup {
		return nil
	}
	g, err := a.toolGate(ctx)
	if err != nil {
		return err
	}
	states, err := g.States(ctx)
	if err != nil {
		return err
	}
	for _, s := range states {
		if s.Name == o.Name && s.AllDisabled {
			a.notice("%s stays off, because tools.enabled is false", s.Name)
		} else if s.Name == o.Name && s.GroupDisabled {
			a.notice("%s stays off, because its group is: toolcrib tools enable --group %s", s.Name, s.Group)
		}
	}
	return nil
}

// known refuses names that mean nothing. What was switched can be reset always:
// the tool may have gone since.
func (a *app) known(ctx context.Context, verb string, o store.Override) error {
	if verb == "reset" {
		overrides, err := a.store.Overrides(ctx)
		if err != nil {
			return err
		}
		for _, old := range overrides {
			if old.Kind == o.Kind && old.Name == o.Name {
				return nil
			}
		}
	}
	g, err := a.toolGate(ctx)
	if err != nil {
		return err
	}
	states, err := g.States(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, s := range states {
		name := s.Name
		if o.Kind == store.OverrideGroup {
			name = s.Group
		}
		if name == o.Name {
			return nil
		}
		names = append(names, name)
	}
	if o.Kind == store.OverrideGroup {
		return toolcrib.Errorf(toolcrib.CodeNotFound, "there is no group %q", o.Name)
	}
	return noTool(o.Name, names)
}

// completeTools completes the names of tools; a shell that cannot is told nothing.
func (a *app) completeTools(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	g, err := a.toolGate(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return g.Names(), cobra.ShellCompDirectiveNoFileComp
}
