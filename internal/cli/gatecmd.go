package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib/service"
)

func (a *app) gateRulesCommand(cmd *cobra.Command) {
	var asJSON bool
	var since string
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
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
	}

	cmd.Flags().StringVar(&since, "since", "", "")
	cmd.Flags().BoolVar(&asJSON, "json", false, "")
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
