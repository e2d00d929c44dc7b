package celrule

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"

	"github.com/toolcrib/toolcrib/gate"
)

// Set is a list of rules, compiled. It is safe for use by many goroutines; its
// zero value has no rules.
type Set struct {
	rules    []*rule
	warnings Problems
	adapter  types.Adapter
}

var _ gate.Rules = (*Set)(nil)

// rule is one rule, compiled.
type rule struct {
	info  gate.RuleInfo
	every bool     // applies to every tool
	tools []string // names and globs
	// program is nil for a rule without a condition.
	program cel.Program
}

// New compiles rules. An error is of type [Problems] and lists the problems of all rules.
// [Set.Warnings] returns the warnings.
func New(rules []Rule, o Options) (*Set, error) {
	s := &Set{}
	if len(rules) > MaxRules {
		return nil, Problems{{
			Index: MaxRules, Rule: oneLine(rules[MaxRules].Name), Field: "name",
			Message: fmt.Sprintf("there are more than %d rules", MaxRules),
		}}
	}
	language, err := environment()
	if err != nil {
		return nil, err
	}
	c := &compiler{env: language, known: &knowledge{o, map[string]*knownTool{}}, names: map[string]int{}}
	for i := range rules {
		c.index, c.rule = i, &rules[i]
		if r := c.compile(); r != nil {
			s.rules = append(s.rules, r)
		}
	}
	if len(c.problems) > 0 {
		return nil, c.problems
	}
	s.warnings, s.adapter = c.warnings, language.CELTypeAdapter()
	return s, nil
}

// Warnings returns warnings for the authors of the rules, in the order of the rules, such as names
// of tools that do not exist, and arguments that are optional, so that calls without them would be
// refused because the rule cannot be evaluated.
func (s *Set) Warnings() Problems {
	if s == nil {
		return nil
	}
	return s.warnings
}

// About returns the rules for calls of a tool, in their order.
func (s *Set) About(tool string) []gate.RuleInfo {
	rules := s.about(tool)
	infos := make([]gate.RuleInfo, len(rules))
	for i, r := range rules {
		infos[i] = r.info
	}
	return infos
}

// about returns the rules for a tool.
func (s *Set) about(tool string) (rules []*rule) {
	if s == nil {
		return nil
	}
	for _, r := range s.rules {
		if r.about(tool) {
			rules = append(rules, r)
		}
	}
	return rules
}

func (r *rule) about(tool string) bool {
	return r.every || slices.ContainsFunc(r.tools, func(p string) bool { return gate.Match(p, tool) })
}

// wild reports whether an entry of a rule's tools is a glob.
func wild(pattern string) bool { return strings.ContainsAny(pattern, "*?") }

// compiler compiles rule after rule.
type compiler struct {
	env                *cel.Env
	known              *knowledge
	names              map[string]int
	problems, warnings Problems

	index int
	rule  *Rule
}

// compile returns nil if it found a problem.
func (c *compiler) compile() *rule {
	before := len(c.problems)
	in := c.rule
	r := &rule{every: in.Tools == nil, info: gate.RuleInfo{
		Name: in.Name, When: in.When, Then: in.Then, Message: in.Message, Position: in.Position,
	}}
	c.checkName()
	switch in.Then {
	case gate.RuleAllow, gate.RuleAsk, gate.RuleDeny:
	default:
		c.report("then", "must be one of allow, ask, deny, not %s", quoted(string(in.Then)))
	}
	if len(in.Message) > MaxMessage {
		c.report("message", "must be at most %d bytes long", MaxMessage)
	}
	c.compileTools(r)
	if strings.TrimSpace(in.When) != "" {
		c.compileWhen(r)
	}
	if len(c.problems) > before {
		return nil
	}
	return r
}

func (c *compiler) checkName() {
	name := c.rule.Name
	first, taken := c.names[name]
	switch {
	case name == "":
		c.report("name", "is required")
	case len(name) > maxName:
		c.report("name", "must be at most %d bytes long", maxName)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		c.report("name", "must have printable characters only")
	case taken:
		c.report("name", "%s is the name of rules[%d] already", quoted(name), first)
	default:
		c.names[name] = c.index
	}
}

func (c *compiler) compileTools(r *rule) {
	if len(c.rule.Tools) > maxRuleTools {
		c.report("tools", "must have at most %d entries", maxRuleTools)
		return
	}
	for i, text := range c.rule.Tools {
		if ok, _ := gate.ReadPattern(text); !ok {
			c.report(fmt.Sprintf("tools[%d]", i), "%s is neither a tool's name nor a glob over names; * and ? are the wildcards",
				quoted(text))
			continue
		}
		r.tools = append(r.tools, text)
		if hint, missing := c.known.missing(text); missing {
			c.warn(fmt.Sprintf("tools[%d]", i), place{}, "there is no tool %s now%s", text, hint)
		}
	}
}

// compileWhen compiles the condition of a rule.
func (c *compiler) compileWhen(r *rule) {
	source := c.rule.When
	if !utf8.ValidString(source) {
		c.report("when", "is not valid UTF-8")
		return
	}
	// Compile is not used, because it formats every error with its line, in time quadratic in the
	// length of the condition.
	ast, issues := c.env.Parse(source)
	if list := issues.Errors(); len(list) > 0 {
		c.reportIssues(list[:1]) // the others follow from the first
		return
	}
	ast, issues = c.env.Check(ast)
	if list := issues.Errors(); len(list) > 0 {
		c.reportIssues(list[:min(len(list), maxIssues)])
		return
	}
	if out := ast.OutputType(); !out.IsExactType(cel.BoolType) && !out.IsExactType(cel.DynType) {
		c.reportAt(place{1, 1}, "must be true or false, and is a value of type %s", cel.FormatCELType(out))
		return
	}
	if !c.checkExpression(r, ast.NativeRep()) {
		return
	}
	options, err := c.bounded()
	if err == nil {
		r.program, err = c.env.Program(ast, options...)
	}
	if err != nil {
		c.reportAt(place{1, 1}, "%s", readable(err.Error()))
	}
}

func (c *compiler) reportIssues(list []*cel.Error) {
	for _, e := range list {
		c.reportAt(c.placeOf(e), "%s", explain(e.Message))
	}
}

// placeOf returns the place of an error. If it is past the end of the condition, placeOf returns
// the place of the last character that is not a space.
func (c *compiler) placeOf(e *cel.Error) place {
	at := place{max(e.Location.Line(), 1), max(e.Location.Column(), 0) + 1}
	text := strings.TrimRightFunc(c.rule.When, unicode.IsSpace)
	last := place{1 + strings.Count(text, "\n"), utf8.RuneCountInString(text[strings.LastIndex(text, "\n")+1:])}
	if at.line > last.line || at.line == last.line && at.column > last.column {
		return last
	}
	return at
}

func (c *compiler) report(field, format string, args ...any) {
	c.problems = c.add(c.problems, field, place{}, format, args...)
}

// reportAt reports a problem at a place in the condition.
func (c *compiler) reportAt(at place, format string, args ...any) {
	c.problems = c.add(c.problems, "when", at, format, args...)
}

func (c *compiler) warn(field string, at place, format string, args ...any) {
	c.warnings = c.add(c.warnings, field, at, format, args...)
}

func (c *compiler) add(list Problems, field string, at place, format string, args ...any) Problems {
	if len(list) >= maxProblems {
		return list
	}
	return append(list, Problem{
		Index: c.index, Rule: oneLine(c.rule.Name), Field: field, Position: c.rule.Position,
		Line: at.line, Column: at.column, Message: oneLine(fmt.Sprintf(format, args...)),
	})
}
