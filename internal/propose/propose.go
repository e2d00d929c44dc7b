// Package propose makes narrow rules that a person may add to a configuration, so that
// calls like one that was asked about pass without a question (contract §2, rules).
package propose

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib/gate"
)

// Rule is a rule that stands in no configuration until a person puts it there.
type Rule struct {
	Name  string        `json:"name"`
	Tools []string      `json:"tools"`
	When  string        `json:"when"`
	Then  gate.RuleThen `json:"then"`
}

// Line is the rule as an entry of rules in a configuration.
func (r *Rule) Line() string {
	return fmt.Sprintf("- {name: %s, tools: [%s], when: '%s', then: %s}", r.Name, strings.Join(r.Tools, ", "), strings.ReplaceAll(r.When, "'", "''"), r.Then)
}

// What may stand in a pattern: nothing that a shell, a path or CEL reads as more than
// itself.
var (
	plainLine    = regexp.MustCompile(`^[A-Za-z0-9_./:=@%+,-]+( [A-Za-z0-9_./:=@%+,-]+)*$`)
	plainSegment = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*$`)
)

const maxProposed = 200 // bytes of what a pattern is made from

// For makes the rule for calls like this one; nil = there is none that is narrow enough.
// It holds for a command line of plain words alone, and for files of the same kind in
// the same folder: no rule holds for a line with another command in it, or for a path
// that leads elsewhere.
func For(tool string, arguments json.RawMessage) *Rule {
	var args map[string]json.RawMessage
	if json.Unmarshal(arguments, &args) != nil {
		return nil
	}
	text := func(name string) string {
		var s string
		if json.Unmarshal(args[name], &s) != nil || len(s) > maxProposed {
			return ""
		}
		return s
	}
	when := ""
	switch tool {
	case "exec_shell":
		if command := text("command"); plainLine.MatchString(command) && !climbs(command) {
			when = fmt.Sprintf(`args.command == "%s"`, command)
		}
	case "write_file", "edit_file":
		when = whenPath(text("path"))
	}
	if when == "" {
		return nil
	}
	sum := sha256.Sum256([]byte(tool + " " + when))
	return &Rule{Name: "allow_" + hex.EncodeToString(sum[:4]), Tools: []string{tool}, When: when, Then: gate.RuleAllow}
}

// whenPath is true for files of the same kind in the same folder, links followed; for
// one at the root of the workspace, or without one plain ending, for this file alone.
func whenPath(name string) string {
	if !plainPath(name) {
		return ""
	}
	dir, base := path.Split(name)
	end := path.Ext(base)
	if dir == "" || len(end) < 2 || strings.Contains(strings.TrimSuffix(base, end), ".") {
		return fmt.Sprintf(`args.path == "%s" && targets.all(t, t.name == workspace + "/%s")`, name, name)
	}
	pattern := fmt.Sprintf("^%s[A-Za-z0-9_][A-Za-z0-9_-]*[.]%s$", strings.ReplaceAll(dir, ".", "[.]"), end[1:])
	return fmt.Sprintf(`args.path.matches("%s") && targets.all(t, t.name == workspace + "/" + args.path)`, pattern)
}

// plainPath tells whether a path is relative, of plain segments, none of which is hidden
// or leads up.
func plainPath(name string) bool {
	return name != "" && !slices.ContainsFunc(strings.Split(name, "/"), func(segment string) bool { return !plainSegment.MatchString(segment) })
}

// climbs tells whether a word of a line leads out of its folder.
func climbs(line string) bool {
	return slices.ContainsFunc(strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '/' || r == '=' || r == ':' }), func(word string) bool { return word == ".." })
}
