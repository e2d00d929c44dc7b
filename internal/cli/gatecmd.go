package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib/service"
)

func (a *app) gateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "gate",
		Short:   "Look at the policy: how often its rules decided, what another one would have decided",
		Example: "toolcrib gate rules\ntoolcrib gate backtest --config new.yaml",
		Args:    cobra.ArbitraryArgs,
		RunE:    group,
	}
	cmd.AddCommand(a.gateRulesCommand(), a.gateBacktestCommand())
	return cmd
}

func (a *app) gateRulesCommand() *cobra.Command {
	var asJSON bool
	var since string
	cmd := &cobra.Command{
		Use:   "rules",
		Short: "List the rules, and how many calls each has decided about",
		Long: "List the rules of the configuration in their order, and how many calls each has refused, asked about, or freed " +
			"of the question of tools.confirm, in all runs. A call counts once, for the rule that decided when it was first judged. " +
			"With --since only whole days (UTC) from then on count. For administrators.",
		Example: "toolcrib gate rules\ntoolcrib gate rules --since 30d\ntoolcrib gate rules --json",
		Args:    positional,
		RunE: func(cmd *cobra.Command, _ []string) error {
			from, err := timeFlag("since", since, time.Now())
			if err != nil {
				return err
			}
			kept, who, err := a.reading(cmd.Context())
			if err != nil {
				return err
			}
			uses, err := kept.RuleUses(cmd.Context(), who, from)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(a.out, uses, true)
			}
			a.showRules(uses)
			return nil
		},
	}
	cmd.Flags().StringVar(&since, "since", "", "what was decided from that day on: a span such as 24h or 7d, a date, or a time (RFC 3339)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON value")
	return cmd
}

func (a *app) showRules(uses []*service.RuleUse) {
	if len(uses) == 0 {
		fmt.Fprintln(a.out, "there are no rules; see docs/rules.md")
		return
	}
	rows := [][]string{{"RULE", "THEN", "TOOLS", "CALLS", "LAST", "WHERE", "WHEN"}}
	for _, u := range uses {
		then, last, tools := u.Then, "never", toolsText(u.Tools)
		if u.LastUsed != nil {
			last = u.LastUsed.Local().Format("2006-01-02 15:04")
		}
		if then == "" {
			then, tools = "(gone)", ""
		}
		rows = append(rows, []string{u.Name, then, tools, fmt.Sprint(u.Hits), last, u.Position, u.When})
	}
	a.outStyle.Table(a.out, rows)
}
