package celrule

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
)

// Bounds of rules.
const (
	MaxRules      = 1000
	MaxExpression = 8192      // characters of a condition
	MaxMessage    = 4096      // bytes of a message
	MaxCost       = 2_000_000 // units, of all conditions for one call

	maxRuleTools = 1000
	maxName      = 128 // bytes
	maxProblem   = 400 // bytes of what is said about one problem
	maxProblems  = 200
	maxIssues    = 10 // of one condition
)

// Rule is one rule as it is written.
type Rule struct {
	Name    string
	Tools   []string // names and globs of tools (* and ?); nil = every tool, [] = none
	When    string   // CEL; "" = always
	Then    gate.RuleThen
	Message string // for the model, or the person who is asked

	// Position is where the rule stands, FILE:LINE; "" = unknown.
	Position string
}

// Options are what is known of the tools when rules are loaded. With none of it
// the rules work the same; problems with arguments are then found at calls only.
type Options struct {
	// Tools are the names of the tools that there are; nil = not known.
	Tools []string
	// Schemas returns the JSON Schema of a tool's arguments, nil if it is not known.
	Schemas func(tool string) json.RawMessage
	// Spelled returns the variable that holds in one form what an argument of a tool can
	// spell in many: targets for a path, programs for a command line. "" = the argument
	// is what it says; nil = all are.
	Spelled func(tool, argument string) string
}

// Problem is one thing that is wrong with a rule, or that its author should know.
type Problem struct {
	Index    int    // of the rule, from 0
	Rule     string // its name
	Field    string // name, tools[0], when, then, message
	Position string // of the rule
	// Line and Column are where in the condition the problem is, from 1; 0 = in no place of it.
	Line, Column int
	Message      string
}

// place is a line and column, both from 1.
type place struct{ line, column int }

// Key is the key path of what is wrong, such as rules[2].when.
func (p Problem) Key() string {
	return fmt.Sprintf("rules[%d].%s", p.Index, p.Field)
}

// Text is what is wrong, with its place in the condition: what follows the key path.
func (p Problem) Text() string {
	within := ""
	if p.Position != "" {
		within = " of the condition"
	}
	switch {
	case p.Line > 1:
		return fmt.Sprintf("line %d, column %d%s: %s", p.Line, p.Column, within, p.Message)
	case p.Column > 0:
		return fmt.Sprintf("column %d%s: %s", p.Column, within, p.Message)
	}
	return p.Message
}

// Error returns "toolcrib.yaml:31: rules[2].when: column 15 of the condition: …".
func (p Problem) Error() string {
	text := p.Key() + ": " + p.Text()
	if p.Position != "" {
		text = p.Position + ": " + text
	}
	return text
}

// Problems is everything that is wrong with a list of rules, in their order.
type Problems []Problem

// Error returns one line a problem.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].Error()
	}
	return strings.Join(lines, "\n")
}

// explain says in plain words what the library says about an error.
func explain(message string) string {
	message = strings.TrimPrefix(readable(message), "Syntax error: ")
	what, expecting, found := strings.Cut(message, " expecting ")
	switch {
	case found && strings.Contains(what, "'<EOF>'"), strings.HasSuffix(message, " at '<EOF>'"):
		return "syntax error: the condition ends too early"
	case found && strings.HasPrefix(expecting, "<EOF>"):
		return "syntax error: " + what + " after the end of the condition"
	case found:
		return "syntax error: " + what
	case strings.HasPrefix(message, "token recognition error at: '= "):
		return "syntax error: compare with ==, not ="
	case strings.HasPrefix(message, "token recognition error at: '"),
		strings.HasPrefix(message, "no viable alternative at input "):
		_, at, _ := strings.Cut(message, "'")
		return "syntax error at '" + at
	case message == "invalid duration argument":
		return "this is not a duration such as 90m or 1.5h"
	case message == "invalid timestamp argument":
		return "this is not a time such as 2026-01-31T15:04:05Z"
	case message == "invalid argument to has() macro":
		return "has() takes a field of something, such as has(args.path)"
	}
	if rest, ok := strings.CutPrefix(message, "undeclared reference to '"); ok && !strings.Contains(rest, "did you mean") {
		name, _, _ := strings.Cut(rest, "'")
		message += guard.DidYouMean(name, slices.Sorted(maps.Keys(variables())))
	}
	return message
}

// readable takes the library's own notation out of a message.
func readable(message string) string {
	message = strings.ReplaceAll(message, " (in container '')", "")
	for _, operator := range []string{"==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "&&", "||", "[_]"} {
		message = strings.ReplaceAll(message, "'_"+operator+"_'", "'"+operator+"'")
	}
	return strings.NewReplacer("'@in'", "'in'", "'!_'", "'!'", "'_[_]'", "'[]'", "'_?_:_'", "'? :'").Replace(message)
}

// oneLine makes a message one short line without control characters.
func oneLine(message string) string {
	return guard.Clip(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == unicode.ReplacementChar || unicode.Is(unicode.Cf, r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(message, " ")), maxProblem)
}

// quoted shows a short text of the configuration.
func quoted(s string) string { return fmt.Sprintf("%q", guard.Clip(s, 60)) }
