package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/gate/celrule"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/store"
)

// rules compiles the rules of a configuration for these tools; nil = there are
// none. What is wrong with them is wrong configuration, with file, line and column.
func rules(c *config.Config, tools []toolcrib.Tool) (*celrule.Set, error) {
	if len(c.Rules) == 0 {
		return nil, nil
	}
	names := make([]string, len(tools))
	schemas := make(map[string]json.RawMessage, len(tools))
	spelled := map[[2]string]string{}
	for i, tool := range tools {
		spec := tool.Spec()
		names[i], schemas[spec.Name] = spec.Name, spec.Parameters
		if _, ok := tool.(toolcrib.Commander); ok {
			spelled[[2]string{spec.Name, "command"}] = "programs"
		}
		if _, ok := tool.(toolcrib.Targeter); ok {
			spelled[[2]string{spec.Name, "path"}] = "targets"
		}
	}
	set, err := celrule.New(writtenRules(c), celrule.Options{
		Tools:   names,
		Schemas: func(tool string) json.RawMessage { return schemas[tool] },
		Spelled: func(tool, argument string) string { return spelled[[2]string{tool, argument}] },
	})
	var problems celrule.Problems
	if !errors.As(err, &problems) {
		return set, err
	}
	all := make(config.Errors, len(problems))
	for i, p := range problems {
		all[i] = config.Error{File: c.File(), Line: p.Line, Key: p.Key(), Message: p.Text()}
		key := fmt.Sprintf("rules[%d]", p.Index)
		if rule := c.ErrorAt(key, ""); p.InFile() {
			all[i].Column = p.Column
		} else if rule.Line == p.Line { // else the column counts within the condition, or is not known
			all[i].Column = rule.Column
		}
	}
	return nil, all
}

// CheckRules compiles the rules of a configuration that is only looked at: of the tools
// nothing is used but what they say about themselves.
func (s *Service) CheckRules() (celrule.Problems, error) {
	if len(s.Config.Rules) == 0 {
		return nil, nil
	}
	tools, err := s.describedTools()
	if err != nil {
		return nil, err
	}
	set, err := rules(s.Config, tools)
	return set.Warnings(), err
}

// ToolSpecs is what the tools there are say about themselves.
func (s *Service) ToolSpecs() ([]toolcrib.Spec, error) {
	tools, err := s.describedTools()
	if err != nil {
		return nil, err
	}
	specs := make([]toolcrib.Spec, len(tools))
	for i, tool := range tools {
		specs[i] = tool.Spec()
	}
	return specs, nil
}

// describedTools are the tools there are, for what they say about themselves.
func (s *Service) describedTools() ([]toolcrib.Tool, error) {
	command, err := s.execShell(gate.Protected{}, false)
	if err != nil {
		return nil, err
	}
	return s.builtIn(gate.Protected{}, gate.PathRules{}, command), nil
}

// writtenRules are the rules as the file has them.
func writtenRules(c *config.Config) []celrule.Rule {
	out := make([]celrule.Rule, len(c.Rules))
	for i, r := range c.Rules {
		key := fmt.Sprintf("rules[%d]", i)
		out[i] = celrule.Rule{
			Name: r.Name, Tools: r.Tools, When: r.When, Then: gate.RuleThen(r.Then), Message: r.Message,
			Position: c.Position(key), WhenLine: c.ErrorAt(key+".when", "").Line,
			WhenPlace: func(line, column int) (int, int) { return c.Place(key+".when", line, column) },
		}
	}
	return out
}

// RuleUse is a rule with how often it decided about a call.
type RuleUse struct {
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

// RuleUses are the rules of the configuration in their order, then those that decided and
// are gone since, for administrators. If since is not zero, only whole days from then on
// count.
func (s *Service) RuleUses(ctx context.Context, who toolcrib.Principal, since time.Time) ([]*RuleUse, error) {
	if _, err := Administrator(who); err != nil {
		return nil, err
	}
	if _, err := s.CheckRules(); err != nil {
		return nil, err
	}
	day := store.Day(math.MinInt64)
	if !since.IsZero() {
		day = store.DayOf(since)
	}
	counts, err := s.store.RuleCounts(ctx, day)
	if err != nil {
		return nil, err
	}
	uses := configuredRules(s.Config)
	byName := make(map[string]*RuleUse, len(uses))
	for _, u := range uses {
		byName[u.Name] = u
	}
	for _, count := range counts { // by name
		u := byName[count.Rule]
		if u == nil {
			u = &RuleUse{Name: count.Rule}
			byName[u.Name], uses = u, append(uses, u)
		}
		u.add(count)
	}
	return uses, nil
}

func (u *RuleUse) add(count store.RuleCount) {
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

func configuredRules(c *config.Config) []*RuleUse {
	uses := make([]*RuleUse, len(c.Rules))
	for i, r := range c.Rules {
		uses[i] = &RuleUse{
			Name: r.Name, Then: r.Then, Tools: r.Tools, When: r.When, Message: r.Message,
			Position: c.Position(fmt.Sprintf("rules[%d]", i)),
		}
	}
	return uses
}
