package cli

import (
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
	a.answering(cmd, a.reading, func(c call) (any, func(), error) {
		list, err := c.at.Tools(c, c.who)
		return list, func() {
			// Below the first line of a description are details, as spawn's list of agents.
			about := func(v *service.Tool) string {
				first, _, _ := strings.Cut(v.Description, "\n")
				return first
			}
			if a.outTerminal && a.outStyle.Width < wideList {
				table(a, "NAME|STATE|DESCRIPTION", list, func(v *service.Tool) []string {
					return []string{v.Name, stateText(v.State), about(v)}
				})
				return
			}
			table(a, "NAME|STATE|FOR|EFFECT|SOURCE|DESCRIPTION", list, func(v *service.Tool) []string {
				who := "all"
				if v.RequiresAdmin {
					who = "admin"
				}
				return []string{v.Name, stateText(v.State), who, string(v.Effect), v.Source, about(v)}
			})
		}, err
	})
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
	cmd.ValidArgsFunction = a.completeTools
	a.answering(cmd, a.reading, func(c call) (any, func(), error) {
		v, err := c.at.Tool(c, c.who, c.arg())
		return v, func() { a.showTool(v) }, err
	})
}

func (a *app) showTool(v service.Tool) {
	s := a.outStyle
	fmt.Fprintf(a.out, "%s  %s\n%s\n\n", s.Bold(guard.Visible(v.Name)), stateText(v.State), guard.Visible(v.Description))
	who := "everybody"
	if v.RequiresAdmin {
		who = "administrators"
	}
	a.fields(
		11, [2]string{"effect", string(v.Effect)},
		[2]string{"group", v.Group},
		[2]string{"source", v.Source},
		[2]string{"for", who},
		[2]string{"by default", onOff(v.EnabledByDefault)},
		[2]string{"calls", fmt.Sprintf("%d, %d of them failed", v.Calls, v.Errors)},
		[2]string{"unusable", v.Unusable},
	)
	fmt.Fprintf(a.out, "\n%s\n%s\n", s.Dim("parameters"), render.Indented(json.RawMessage(v.Parameters)))
}

func onOff(on bool) string {
	if on {
		return "enabled"
	}
	return "disabled"
}

func (a *app) toolsSwitchCommand(cmd *cobra.Command) {
	var q service.SwitchRequest
	cmd.Flags().StringVar(&q.Group, "group", "", "")
	cmd.Args = func(_ *cobra.Command, args []string) error {
		switch {
		case q.Group != "" && len(args) > 0:
			return usagef("give a tool or --group, not both")
		case q.Group == "" && len(args) != 1:
			return usagef("give the name of one tool, or --group")
		}
		return nil
	}
	cmd.ValidArgsFunction = a.completeTools
	a.answering(cmd, nil, func(c call) (any, func(), error) {
		word := map[string]string{"enable": "enabled", "disable": "disabled", "reset": "reset to the default"}[cmd.Name()]
		q.Enabled, q.Reset, q.Tool = cmd.Name() == "enable", cmd.Name() == "reset", c.arg()
		who, err := a.administering(c)
		if err == nil {
			c.at, _, err = a.opened(c, a.knowing)
		}
		if err != nil {
			return nil, nil, err
		}
		done, err := c.at.SwitchTool(c, who, q)
		if err != nil {
			return nil, nil, err
		}
		if !done.Changed {
			word += " already"
		}
		if q.Group != "" {
			return append([]service.Tool{}, done.Tools...), func() { a.says("group "+q.Group, word) }, nil
		}
		said := func() { a.says(q.Tool, word) }
		if len(done.Tools) == 0 {
			return nil, said, nil
		}
		t := done.Tools[0]
		switch {
		case cmd.Name() == "disable":
		case t.AllDisabled:
			a.notice("%s stays off, because tools.enabled is false", t.Name)
		case t.GroupDisabled:
			a.notice("%s stays off, because its group is: toolcrib tools enable --group %s", t.Name, t.Group)
		}
		return t, said, nil
	})
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
