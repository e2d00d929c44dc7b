package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/service"
)

func (a *app) toolsListCommand(cmd *cobra.Command) {
	var asJSON bool
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		kept, _, err := a.reading(cmd.Context())
		if err != nil {
			return err
		}
		views, err := kept.Tools(cmd.Context())
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
	}

	cmd.Flags().BoolVar(&asJSON, "json", false, "")
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

func (a *app) toolsShowCommand(cmd *cobra.Command) {
	var asJSON bool
	cmd.ValidArgsFunction = a.completeTools
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		kept, _, err := a.reading(cmd.Context())
		if err != nil {
			return err
		}
		v, err := kept.Tool(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		if asJSON {
			return printJSON(a.out, v, true)
		}
		a.showTool(v)
		return nil
	}

	cmd.Flags().BoolVar(&asJSON, "json", false, "")
}

func (a *app) showTool(v service.Tool) {
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

func (a *app) toolsSwitchCommand(cmd *cobra.Command) {
	var groupName string
	var asJSON bool
	cmd.Args = func(_ *cobra.Command, args []string) error {
		switch {
		case groupName != "" && len(args) > 0:
			return usagef("give a tool or --group, not both")
		case groupName == "" && len(args) != 1:
			return usagef("give the name of one tool, or --group")
		}
		return nil
	}
	cmd.ValidArgsFunction = a.completeTools
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q := service.SwitchRequest{Group: groupName, Enabled: cmd.Name() == "enable", Reset: cmd.Name() == "reset"}
		if groupName == "" {
			q.Tool = args[0]
		}
		return a.switchTool(cmd.Context(), cmd.Name(), q, asJSON)
	}

	cmd.Flags().BoolVar(&asJSON, "json", false, "")
	cmd.Flags().StringVar(&groupName, "group", "", "")
}

// switchTool sets or resets an override.
func (a *app) switchTool(ctx context.Context, verb string, q service.SwitchRequest, asJSON bool) error {
	who, err := a.administering(ctx)
	if err != nil {
		return err
	}
	kept, err := a.svc()
	if err != nil {
		return err
	}
	done, err := kept.SwitchTool(ctx, who, q)
	if err != nil {
		return err
	}
	switch {
	case asJSON && q.Group != "":
		err = printJSON(a.out, append([]service.Tool{}, done.Tools...), true)
	case asJSON && len(done.Tools) == 0:
		err = printJSON(a.out, nil, true)
	case asJSON:
		err = printJSON(a.out, done.Tools[0], true)
	default:
		what := guard.Visible(q.Tool)
		if q.Group != "" {
			what = "group " + guard.Visible(q.Group)
		}
		word := map[string]string{"enable": "enabled", "disable": "disabled", "reset": "reset to the default"}[verb]
		if !done.Changed {
			word += " already"
		}
		fmt.Fprintf(a.out, "%s: %s\n", what, word)
	}
	if verb == "disable" || q.Group != "" || len(done.Tools) == 0 {
		return err
	}
	switch t := done.Tools[0]; {
	case t.AllDisabled:
		a.notice("%s stays off, because tools.enabled is false", t.Name)
	case t.GroupDisabled:
		a.notice("%s stays off, because its group is: toolcrib tools enable --group %s", t.Name, t.Group)
	}
	return err
}

// completeTools completes the names of tools; a shell that cannot is told nothing.
func (a *app) completeTools(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c, err := a.configuration()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	n, err := a.namesNow(c)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return n.tools, cobra.ShellCompDirectiveNoFileComp
}
