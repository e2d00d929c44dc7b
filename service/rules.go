package service

import (
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
	command, err := s.execShell(gate.Protected{})
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
