package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib/service"
)

func (a *app) gateRulesCommand(cmd *cobra.Command) {
	var from time.Time
	cmd.Flags().Func("since", "", since(&from))
	a.answering(cmd, a.reading, func(c call) (any, func(), error) {
		uses, err := c.RuleUses(c, c.who, from)
		return uses, func() { a.showRules(uses) }, err
	})
}

func (a *app) showRules(uses []*service.RuleUse) {
	if len(uses) == 0 {
		fmt.Fprintln(a.out, "there are no rules; see docs/rules.md")
		return
	}
	table(a, "RULE|THEN|TOOLS|CALLS|LAST|WHERE|WHEN", uses, func(of **service.RuleUse) []string {
		u := *of
		then, last, tools := u.Then, "never", toolsText(u.Tools)
		if u.LastUsed != nil {
			last = u.LastUsed.Local().Format("2006-01-02 15:04")
		}
		if then == "" {
			then, tools = "(gone)", ""
		}
		return []string{u.Name, then, tools, fmt.Sprint(u.Hits), last, u.Position, u.When}
	})
}
