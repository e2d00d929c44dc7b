package cli

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/store"
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

// ruleUse is a rule with how often it decided about a call.
type ruleUse struct {
	Name     string     `json:"name"`
	Then     string     `json:"then"`  // "" = the configuration has no such rule any more
	Tools    []string   `json:"tools"` // null = every tool
	When     string     `json:"when"`
	Message  string     `json:"message"`
	Position string     `json:"position"`
	Hits     int64      `json:"hits"` // calls that it decided about
	Refused  int64      `json:"refused"`
	Asked    int64      `json:"asked"`
	Allowed  int64      `json:"allowed"`
	LastUsed *time.Time `json:"last_used"`
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
			uses, err := a.ruleUses(cmd.Context(), from)
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

// ruleUses are the rules of the configuration in their order, then those that
// decided and are gone since.
func (a *app) ruleUses(ctx context.Context, since time.Time) ([]*ruleUse, error) {
	if _, err := a.administrator(ctx); err != nil {
		return nil, err
	}
	c, err := a.configuration()
	if err != nil {
		return nil, err
	}
	if _, err := a.about(c).CheckRules(); err != nil {
		return nil, err
	}
	s, err := a.databaseToRead(ctx)
	if err != nil {
		return nil, err
	}
	day := store.Day(math.MinInt64)
	if !since.IsZero() {
		day = store.DayOf(since)
	}
	counts, err := s.RuleCounts(ctx, day)
	if err != nil {
		return nil, err
	}
	uses := configuredRules(c)
	byName := make(map[string]*ruleUse, len(uses))
	for _, u := range uses {
		byName[u.Name] = u
	}
	for _, count := range counts { // by name
		u := byName[count.Rule]
		if u == nil {
			u = &ruleUse{Name: count.Rule}
			byName[u.Name], uses = u, append(uses, u)
		}
		u.add(count)
	}
	return uses, nil
}

func (u *ruleUse) add(count store.RuleCount) {
	u.Hits += count.Calls
	switch count.Decision {
	case toolcrib.Allow:
		u.Allowed += count.Calls
	case toolcrib.Ask:
		u.Asked += count.Calls
	default:
		u.Refused += count.Calls
	}
	if at := count.LastUsed; u.LastUsed == nil || at.After(*u.LastUsed) {
		u.LastUsed = &at
	}
}

func configuredRules(c *config.Config) []*ruleUse {
	uses := make([]*ruleUse, len(c.Rules))
	for i, r := range c.Rules {
		uses[i] = &ruleUse{
			Name: r.Name, Then: r.Then, Tools: r.Tools, When: r.When, Message: r.Message,
			Position: c.Position(fmt.Sprintf("rules[%d]", i)),
		}
	}
	return uses
}

func (a *app) showRules(uses []*ruleUse) {
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
