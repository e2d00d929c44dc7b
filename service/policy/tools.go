package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/gate/celrule"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/tool/shell"
)

// Tool is a tool as contract §9 has it.
type Tool struct {
	gate.State
	Calls  int64 `json:"calls"`
	Errors int64 `json:"errors"`
}

// Tools returns all tools, and whether they are enabled. They are no secret of anybody who
// is known here; the calls are those of everybody to administrators, to others their own, and by an
// access token none, because of a call it is not known which token started its run.
func (p *Policy) Tools(ctx context.Context, who toolcrib.Principal) ([]Tool, error) {
	if err := env.RequireUser(who); err != nil {
		return nil, err
	}
	g, _, err := p.lookingGate("", nil)
	if err != nil {
		return nil, err
	}
	states, err := g.States(ctx)
	if err != nil {
		return nil, err
	}
	q := store.UsageQuery{By: store.UsageByTool, Limit: store.MaxUsageRows}
	if !env.Admin(who) {
		q.User = who.User
	}
	var rows []store.UsageRow
	if who.Token == "" {
		rows, err = p.env.Store.Usage(ctx, q)
	}
	if err != nil {
		return nil, err
	}
	uses := make(map[string]store.UsageRow, len(rows))
	for _, r := range rows {
		uses[r.Key] = r
	}
	p.mcp.TellAll(p.env.Notice)
	own := p.spawnFor(ctx, who)
	tools := make([]Tool, len(states))
	for i, t := range states {
		if t.Name == own.Name {
			t.Description, t.Parameters = own.Description, own.Parameters
		}
		tools[i] = Tool{State: t, Calls: uses[t.Name].Calls, Errors: uses[t.Name].Errors}
	}
	return tools, nil
}

// Tool returns the tool of a name.
func (p *Policy) Tool(ctx context.Context, who toolcrib.Principal, name string) (Tool, error) {
	tools, err := p.Tools(ctx, who)
	if err != nil {
		return Tool{}, err
	}
	if i := slices.IndexFunc(tools, func(t Tool) bool { return t.Name == name }); i >= 0 {
		return tools[i], nil
	}
	return Tool{}, noTool(name, tools)
}

func noTool(name string, tools []Tool) error {
	names := make([]string, len(tools))
	for i, t := range tools {
		names[i] = t.Name
	}
	return toolcrib.Errorf(toolcrib.CodeNotFound, "there is no tool %q%s", name, guard.DidYouMean(name, names))
}

// SwitchRequest asks to switch a tool or a group of tools.
type SwitchRequest struct {
	Tool, Group string // one of them
	Enabled     bool
	Reset       bool // the default holds again, instead
}

// Switched is what became of a switch.
type Switched struct {
	Changed bool `json:"changed" jsonschema:"false if nothing had to change"`
	// Tools is empty if what was reset no longer exists.
	Tools []Tool `json:"tools" jsonschema:"the affected tools in their new state"`
}

// SwitchTool sets or resets an override, for administrators. It holds at the next call, also in runs that go on.
func (p *Policy) SwitchTool(ctx context.Context, who toolcrib.Principal, q SwitchRequest) (out Switched, err error) {
	if _, err := env.Administrator(who); err != nil {
		return out, err
	}
	if err := p.env.OpenFor(ctx, who); err != nil {
		return out, err
	}
	o := store.Override{Kind: store.OverrideTool, Name: q.Tool, Enabled: q.Enabled, By: agent.NameOf(who)}
	if q.Group != "" {
		o.Kind, o.Name = store.OverrideGroup, q.Group
	}
	if err := p.switchable(ctx, who, q, o); err != nil {
		return out, err
	}
	if q.Reset {
		out.Changed, err = p.env.Store.ResetOverride(ctx, o.Kind, o.Name, o.By)
	} else {
		out.Changed, err = p.env.Store.SetOverride(ctx, o)
	}
	if err != nil {
		return out, err
	}
	tools, err := p.Tools(ctx, who)
	out.Tools = slices.DeleteFunc(tools, func(t Tool) bool { return !q.isAbout(t) })
	return out, err
}

func (q *SwitchRequest) isAbout(t Tool) bool {
	if q.Group != "" {
		return t.Group == q.Group
	}
	return t.Name == q.Tool
}

// switchable refuses names that mean nothing. What was switched can be reset always: the tool may have gone since.
func (p *Policy) switchable(ctx context.Context, who toolcrib.Principal, q SwitchRequest, o store.Override) error {
	if q.Reset {
		overrides, err := p.env.Store.Overrides(ctx, 0)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(overrides, func(old store.Override) bool { return old.Kind == o.Kind && old.Name == o.Name }) {
			return nil
		}
	}
	tools, err := p.Tools(ctx, who)
	if err != nil {
		return err
	}
	switch {
	case slices.ContainsFunc(tools, q.isAbout), q.Group == toolcrib.GroupClient: // whose tools come with runs
		return nil
	case q.Group != "":
		return toolcrib.Errorf(toolcrib.CodeNotFound, "there is no group %q", q.Group)
	}
	return noTool(q.Tool, tools)
}

// compiledRules are the rules as they were compiled last, and for what.
type compiledRules struct {
	mu     sync.Mutex
	config *config.Config
	tools  ruledTools
	set    *celrule.Set
}

// ruledTools are tools as rules know them.
type ruledTools struct {
	names   []string
	schemas map[string]json.RawMessage
	spelled map[[2]string]string // what names an argument of a tool in conditions
}

func (r *ruledTools) add(tool toolcrib.Tool) {
	spec := tool.Spec()
	r.names, r.schemas[spec.Name] = append(r.names, spec.Name), spec.Parameters
	if spec.Name == shell.Name {
		r.spelled[[2]string{spec.Name, "command"}] = "programs"
	}
	if spec.Plans.Targets {
		r.spelled[[2]string{spec.Name, "path"}] = "targets"
	}
}

// compile compiles the rules for these tools, unless they were compiled for the same ones before. Rules
// name the built-in tools, too.
func (p *Policy) compile(tools, builtIn []toolcrib.Tool) (*celrule.Set, error) {
	c := p.env.Config
	if len(c.Rules) == 0 {
		return nil, nil
	}
	of := ruledToolsOf(tools)
	for _, tool := range builtIn {
		if _, known := of.schemas[tool.Spec().Name]; !known {
			of.add(tool)
		}
	}
	p.rules.mu.Lock()
	defer p.rules.mu.Unlock()
	if p.rules.config == c && reflect.DeepEqual(p.rules.tools, of) {
		return p.rules.set, nil
	}
	set, err := compileRules(c, of)
	if err == nil {
		p.rules.config, p.rules.tools, p.rules.set = c, of, set
	}
	return set, err
}

func ruledToolsOf(tools []toolcrib.Tool) ruledTools {
	of := ruledTools{schemas: map[string]json.RawMessage{}, spelled: map[[2]string]string{}}
	for _, tool := range tools {
		of.add(tool)
	}
	return of
}

// compileRules compiles the rules of a configuration for these tools; nil = there are
// none. What is wrong with them is wrong configuration, with file, line and column.
func compileRules(c *config.Config, tools ruledTools) (*celrule.Set, error) {
	if len(c.Rules) == 0 {
		return nil, nil
	}
	set, err := celrule.New(writtenRules(c), celrule.Options{
		Tools:   tools.names,
		Schemas: func(tool string) json.RawMessage { return tools.schemas[tool] },
		Spelled: func(tool, argument string) string { return tools.spelled[[2]string{tool, argument}] },
	})
	var problems celrule.Problems
	if !errors.As(err, &problems) {
		return set, err
	}
	return nil, inFile(c, problems)
}

// inFile returns problems with rules as errors of the file of the configuration.
func inFile(c *config.Config, problems celrule.Problems) config.Errors {
	all := make(config.Errors, len(problems))
	for i, p := range problems {
		at := fmt.Sprintf("rules[%d]", p.Index)
		if p.Field == "when" {
			at = p.Key()
		}
		e := c.ErrorAt(at, p.Text())
		if line, column := c.Place(at, p.Line, p.Column); p.Column > 0 && line > 0 && column > 0 {
			e.Line, e.Column, e.Message = line, column, fmt.Sprintf("column %d: %s", column, p.Message)
		}
		e.Key = p.Key()
		all[i] = e
	}
	return all
}

// CheckRules compiles the rules of a configuration that is only looked at: of the tools
// nothing is used but what they say about themselves.
func (p *Policy) CheckRules() (warnings config.Errors, err error) {
	if len(p.env.Config.Rules) == 0 {
		return nil, nil
	}
	tools, err := p.describedTools()
	if err != nil {
		return nil, err
	}
	set, err := compileRules(p.env.Config, ruledToolsOf(tools))
	return inFile(p.env.Config, set.Warnings()), err
}

// ToolSpecs is what the tools there are say about themselves.
func (p *Policy) ToolSpecs() ([]toolcrib.Spec, error) {
	tools, err := p.describedTools()
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
func (p *Policy) describedTools() ([]toolcrib.Tool, error) {
	command, err := p.execShell(gate.Protected{}, false)
	if err != nil {
		return nil, err
	}
	return p.builtIn(gate.Protected{}, gate.PathRules{}, command), nil
}

// writtenRules are the rules as the file has them.
func writtenRules(c *config.Config) []celrule.Rule {
	out := make([]celrule.Rule, len(c.Rules))
	for i, r := range c.Rules {
		out[i] = celrule.Rule{
			Name: r.Name, Tools: r.Tools, When: r.When, Then: gate.RuleThen(r.Then), Message: r.Message,
			Position: c.Position(fmt.Sprintf("rules[%d]", i)),
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

// RuleUses are the rules of the configuration in their order, then those that decided and are gone since, for
// administrators. If since is not zero, only whole days from then on count.
func (p *Policy) RuleUses(ctx context.Context, who toolcrib.Principal, since time.Time) ([]*RuleUse, error) {
	if _, err := env.Administrator(who); err != nil {
		return nil, err
	}
	if _, err := p.CheckRules(); err != nil {
		return nil, err
	}
	day := store.Day(math.MinInt64)
	if !since.IsZero() {
		day = store.DayOf(since)
	}
	counts, err := p.env.Store.RuleCounts(ctx, day)
	if err != nil {
		return nil, err
	}
	uses := configuredRules(p.env.Config)
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
