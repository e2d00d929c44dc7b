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
	MaxCost       = 2_000_000 // units, for all conditions of one call

	maxRuleTools = 1000
	maxName      = 128 // bytes
	maxProblem   = 400 // bytes of the message of one problem
	maxProblems  = 200
	maxIssues    = 10 // issues of one condition
)

// Rule is one rule as it is written.
type Rule struct {
	Name    string
	Tools   []string // names and globs of tools (* and ?); nil means every tool, [] none
	When    string   // CEL; "" means always
	Then    gate.RuleThen
	Message string // for the model, or the person who is asked

	// Position is the position of the rule, FILE:LINE, or "" if unknown.
	Position string
}

// Options describes the tools that are known when rules are loaded. With the zero value the rules
// work the same, but problems with arguments are found only at calls.
type Options struct {
	// Tools has the names of all tools. If nil, they are not known.
	Tools []string
	// Schemas returns the JSON Schema of a tool's arguments, or nil if it is not known.
	Schemas func(tool string) json.RawMessage
	// Spelled returns the variable that has the only form of an argument with many spellings:
	// targets for a path, programs for a command line. It returns "" for an argument with one
	// spelling. If Spelled is nil, all arguments have one.
	Spelled func(tool, argument string) string
}

// Problem is a mistake in a rule, or a warning for its author.
type Problem struct {
	Index    int    // index of the rule, from 0
	Rule     string // name of the rule
	Field    string // name, tools[0], when, then, message
	Position string // position of the rule
	// Line and Column are the place of the problem in the condition, from 1. They are 0 if it has
	// none.
	Line, Column int
	Message      string
}

// place is a line and column, both from 1.
type place struct{ line, column int }

// Key returns the key path of the problem, such as rules[2].when.
func (p Problem) Key() string {
	return fmt.Sprintf("rules[%d].%s", p.Index, p.Field)
}

// Text returns the message and its place in the condition, without the key path.
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

// Problems lists the problems of a list of rules, in their order.
type Problems []Problem

// Error returns one line for each problem.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].Error()
	}
	return strings.Join(lines, "\n")
}

// explain rewrites an error message of the library in plain words.
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

// readable replaces the library's own notation in a message.
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

// quoted quotes a text of the configuration and cuts it.
func quoted(s string) string { return fmt.Sprintf("%q", guard.Clip(s, 60)) }
