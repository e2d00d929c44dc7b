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

// Tool is a tool with its state and its use.
type Tool struct {
	gate.State
	Calls  int64 `json:"calls"`
	Errors int64 `json:"errors"`
}

// Tools returns all tools and whether they are enabled. Predefined tools of the bus are there while a node offers their
// capabilities; those of tools.bound always. Any user may read them. An administrator gets the calls of all
// users, a user their own, and an access token none, because it is unknown which token started the run of a call.
func (p *Policy) Tools(ctx context.Context, who toolcrib.Principal) ([]Tool, error) {
	all, err := p.known(ctx, who)
	gone := map[string]bool{}
	for _, a := range p.absent() {
		name := a.Tool.Spec().Name
		_, own := p.env.Config.Tools.Bound[name]
		gone[name] = !own
	}
	return slices.DeleteFunc(all, func(t Tool) bool { return gone[t.Name] && t.Unusable != "" }), err
}

// known returns the tools that there are, and those of the bus that no node offers.
func (p *Policy) known(ctx context.Context, who toolcrib.Principal) ([]Tool, error) {
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

// Tool returns the tool with a name.
func (p *Policy) Tool(ctx context.Context, who toolcrib.Principal, name string) (Tool, error) {
	tools, err := p.known(ctx, who)
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

// SwitchRequest enables or disables a tool or a group of tools.
type SwitchRequest struct {
	Tool, Group string // one of the two
	Enabled     bool
	Reset       bool // removes the override, so that the default applies
}

// Switched is the result of a [SwitchRequest].
type Switched struct {
	Changed bool `json:"changed" jsonschema:"false if nothing had to change"`
	// Tools is empty if the tools of a removed override no longer exist.
	Tools []Tool `json:"tools" jsonschema:"the affected tools in their new state"`
}

// SwitchTool sets or removes an override, for administrators. It applies from the next call on, in runs in progress as
// well.
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
	tools, err := p.known(ctx, who)
	out.Tools = slices.DeleteFunc(tools, func(t Tool) bool { return !q.isAbout(t) })
	return out, err
}

// Switches returns who switched which tools and groups on or off, for administrators.
func (p *Policy) Switches(ctx context.Context, who toolcrib.Principal) ([]store.Override, error) {
	if _, err := env.Administrator(who); err != nil {
		return nil, err
	}
	return p.env.Store.Overrides(ctx, 0)
}

func (q *SwitchRequest) isAbout(t Tool) bool {
	if q.Group != "" {
		return t.Group == q.Group
	}
	return t.Name == q.Tool
}

// switchable returns an error for unknown names. An override can always be removed, since its tool may no longer exist.
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
	tools, err := p.known(ctx, who)
	if err != nil {
		return err
	}
	switch {
	case slices.ContainsFunc(tools, q.isAbout), q.Group == toolcrib.GroupClient: // tools of clients come with runs
		return nil
	case q.Group != "":
		return toolcrib.Errorf(toolcrib.CodeNotFound, "there is no group %q", q.Group)
	}
	return noTool(q.Tool, tools)
}

// compiledRules are the rules that were last compiled, and the tools for which they were.
type compiledRules struct {
	mu     sync.Mutex
	config *config.Config
	tools  ruledTools
	set    *celrule.Set
}

// ruledTools describe the tools for rules.
type ruledTools struct {
	names   []string
	schemas map[string]json.RawMessage
	spelled map[[2]string]string // name of a tool's argument in conditions
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

// compile compiles the rules for these tools, or returns the last ones if the tools are the same. Rules may also name
// built-in tools.
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

// compileRules compiles the configured rules for these tools. Without rules it returns nil. Its errors are those of
// the configuration, with file, line and column.
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

// inFile returns problems of rules as errors with positions in the configuration.
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

// CheckRules compiles the rules of a configuration. It uses only the specs of tools.
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

// ToolSpecs returns the specs of all tools.
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

// describedTools returns all tools for their specs. They must not be called.
func (p *Policy) describedTools() ([]toolcrib.Tool, error) {
	command, err := p.execShell(gate.Protected{}, false)
	if err != nil {
		return nil, err
	}
	commands, err := p.commands(gate.Protected{})
	if err != nil {
		return nil, err
	}
	all := slices.Concat(p.builtIn(gate.Protected{}, gate.PathRules{}, command), commands, p.env.Tools)
	for _, a := range p.absent() {
		all = append(all, a.Tool)
	}
	return all, nil
}

func (p *Policy) absent() []gate.Absent {
	if p.Absent == nil {
		return nil
	}
	return p.Absent()
}

// writtenRules returns the rules as they are in the file.
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

// RuleUse is a rule and how often it decided about a call.
type RuleUse struct {
	Name     string     `json:"name"`
	Then     string     `json:"then"`  // "" if the rule is no longer configured
	Tools    []string   `json:"tools"` // null means every tool
	When     string     `json:"when"`
	Message  string     `json:"message"`
	Position string     `json:"position"`
	Hits     int64      `json:"hits"` // calls about which it decided
	Refused  int64      `json:"refused"`
	Asked    int64      `json:"asked"`
	Allowed  int64      `json:"allowed"`
	LastUsed *time.Time `json:"last_used"`
}

// RuleUses returns the configured rules in their order, then those that decided about calls and are no longer
// configured, for administrators. If since is not zero, only whole days from then on are counted.
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
	for _, count := range counts { // sorted by name
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
