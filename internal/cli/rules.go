package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/gate/celrule"
	"github.com/toolcrib/toolcrib/internal/config"
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

// checkRules compiles the rules of a configuration that is only looked at: of the
// tools nothing is used but what they say about themselves.
func (a *app) checkRules(ctx context.Context, c *config.Config) (celrule.Problems, error) {
	if len(c.Rules) == 0 {
		return nil, nil
	}
	command, err := a.execShell(c, gate.Protected{})
	if err != nil {
		return nil, err
	}
	set, err := rules(c, a.builtIn(ctx, c, nil, gate.Protected{}, gate.PathRules{}, command))
	return set.Warnings(), err
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
