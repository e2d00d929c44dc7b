// Package propose makes narrow rules that a person may add to a configuration, so that
// calls like one that was asked about pass without a question (contract §2, rules).
package propose

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
	"github.com/toolcrib/toolcrib/journal"
)

// Rule is a rule that is in no configuration until a person puts it there.
type Rule struct {
	Name  string        `json:"name"`
	Tools []string      `json:"tools"`
	When  string        `json:"when"`
	Then  gate.RuleThen `json:"then"`
}

// Line is the rule as an entry of rules in a configuration.
func (r *Rule) Line() string {
	return fmt.Sprintf("- {name: %s, tools: [%s], when: '%s', then: %s}", r.Name, strings.Join(r.Tools, ", "),
		strings.ReplaceAll(r.When, "'", "''"), r.Then)
}

// What a command line and a path may be made of: nothing that a shell, a path or CEL
// reads as more than itself.
var (
	plainLine    = lazyregexp.New(`^[A-Za-z0-9_./:=@%+,-]+( [A-Za-z0-9_./:=@%+,-]+)*$`)
	plainSegment = lazyregexp.New(`^[A-Za-z0-9_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*$`)
)

const (
	maxProposed  = 200 // bytes of a command line, or of a path in its workspace
	maxWorkspace = 500 // bytes of its path
)

// For makes the rule for calls like this one; nil if none is narrow enough.
// It holds in the workspace of the call, for a command line of plain words alone, and
// for files of the same kind in the same folder, symbolic links resolved: no rule holds
// for a line with another command in it, or for a path that leads elsewhere.
func For(c *journal.ApprovalItem) *Rule {
	b := c.Binding
	if b == nil || b.LeadsTo == "" || len(b.LeadsTo) > maxWorkspace || guard.Visible(b.LeadsTo) != b.LeadsTo {
		return nil
	}
	when := ""
	switch {
	case len(b.Files) == 1:
		when = whenFile(b.LeadsTo, b.Files[0].Path)
	case b.CommandLine:
		when = whenLine(c.Arguments)
	}
	if when == "" {
		return nil
	}
	when = "workspace == " + quoted(b.LeadsTo) + " && " + when
	sum := sha256.Sum256([]byte(c.Name + " " + when))
	return &Rule{Name: "allow_" + hex.EncodeToString(sum[:4]), Tools: []string{c.Name}, When: when, Then: gate.RuleAllow}
}

// whenLine is true for this very command line.
func whenLine(arguments json.RawMessage) string {
	var args struct {
		Command string `json:"command"`
	}
	if json.Unmarshal(arguments, &args) != nil || len(args.Command) > maxProposed ||
		!plainLine.MatchString(args.Command) || climbs(args.Command) {
		return ""
	}
	return "args.command == " + quoted(args.Command)
}

// whenFile is true for files of the same kind in the same folder; for one at the root of
// the workspace, or without one plain ending, for this file alone.
func whenFile(workspace, file string) string {
	rel, err := filepath.Rel(workspace, file)
	if err != nil || filepath.Separator != '/' || len(rel) > maxProposed || !plainPath(rel) {
		return ""
	}
	const one = "targets.size() == 1 && targets[0].name"
	end := path.Ext(rel)
	if path.Dir(rel) == "." || len(end) < 2 || strings.Contains(strings.TrimSuffix(path.Base(rel), end), ".") {
		return one + " == " + quoted(file)
	}
	pattern := "^" + regexp.QuoteMeta(path.Dir(file)) + "/[A-Za-z0-9_][A-Za-z0-9_-]*" + regexp.QuoteMeta(end) + "$"
	return one + ".matches(" + quoted(pattern) + ")"
}

// quoted is a text as CEL and JSON both write it.
func quoted(text string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(text) != nil {
		return `""` // a text has a JSON form always
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// plainPath reports whether a path is relative, of plain segments, none of which is hidden
// or leads up.
func plainPath(name string) bool {
	return !slices.ContainsFunc(strings.Split(name, "/"),
		func(segment string) bool { return !plainSegment.MatchString(segment) })
}

// climbs reports whether a word of a line leads out of its folder.
func climbs(line string) bool {
	apart := func(r rune) bool { return strings.ContainsRune(" /=:", r) }
	return slices.Contains(strings.FieldsFunc(line, apart), "..")
}
