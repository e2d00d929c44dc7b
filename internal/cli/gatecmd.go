package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

func (a *app) gateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "gate",
		Short:   "Look at the policy: the rules, and how often they decided",
		Example: "toolcrib gate rules\ntoolcrib gate rules --since 7d --json",
		Args:    cobra.ArbitraryArgs,
		RunE:    group,
	}
	cmd.AddCommand(a.gateRulesCommand())
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
	Hits     int64      `json:"hits"` // calls
	LastUsed *time.Time `json:"last_used"`
}

// rulesSince is how far back gate rules looks where nothing else is said.
const rulesSince = "30d"

func (a *app) gateRulesCommand() *cobra.Command {
	var since string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "rules",
		Short: "List the rules, and how many calls each has decided about",
		Long: "List the rules of the configuration in their order, and how many calls each has refused, asked about, or freed " +
			"of the question of tools.confirm. It is counted from the journals of the runs that began in the time of --since.",
		Example: "toolcrib gate rules\ntoolcrib gate rules --since 24h\ntoolcrib gate rules --json",
		Args:    positional,
		RunE: func(cmd *cobra.Command, _ []string) error {
			from, err := parseSince(since, time.Now())
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
	cmd.Flags().StringVar(&since, "since", rulesSince, "count in runs since then: a span such as 24h or 7d, a date, or a time (RFC 3339)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON value")
	return cmd
}

// ruleUses are the rules of the configuration in their order, then those that
// decided and are gone since.
func (a *app) ruleUses(ctx context.Context, from time.Time) ([]*ruleUse, error) {
	c, err := a.configuration()
	if err != nil {
		return nil, err
	}
	if _, err := a.checkRules(ctx, c); err != nil {
		return nil, err
	}
	s, err := a.databaseToRead(ctx)
	if err != nil {
		return nil, err
	}
	uses := configuredRules(c)
	byName := make(map[string]*ruleUse, len(uses))
	for _, u := range uses {
		byName[u.Name] = u
	}
	err = a.eachRun(ctx, s, store.Filter{Since: from}, func(rec store.RunRecord) error {
		return countRules(ctx, s, rec.ID, byName)
	})
	var gone []*ruleUse
	for _, u := range byName {
		if u.Then == "" {
			gone = append(gone, u)
		}
	}
	slices.SortFunc(gone, func(a, b *ruleUse) int { return strings.Compare(a.Name, b.Name) })
	return append(uses, gone...), err
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

// countRules counts the calls of one run that a rule has decided about, each once
// for a rule, however often it was judged.
func countRules(ctx context.Context, s *sqlite.Store, run toolcrib.RunID, byName map[string]*ruleUse) error {
	type use struct{ rule, call string }
	seen := map[use]bool{}
	for e, err := range s.Read(ctx, run, 0) {
		if errors.Is(err, store.ErrPruned) || errors.Is(err, toolcrib.ErrNotFound) {
			return nil // what is gone is not counted
		}
		if err != nil {
			return err
		}
		b, ok := e.Body.(*journal.Verdicts)
		if !ok {
			continue
		}
		for _, v := range b.Verdicts {
			if v.Rule == "" || seen[use{v.Rule, v.CallID}] {
				continue
			}
			seen[use{v.Rule, v.CallID}] = true
			u := byName[v.Rule]
			if u == nil {
				u = &ruleUse{Name: v.Rule}
				byName[v.Rule] = u
			}
			u.Hits++
			if at := e.Time; u.LastUsed == nil || at.After(*u.LastUsed) {
				u.LastUsed = &at
			}
		}
	}
	return nil
}

func (a *app) showRules(uses []*ruleUse) {
	if len(uses) == 0 {
		fmt.Fprintln(a.out, "there are no rules; docs/rules.md tells how to write one")
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
