// Package propose makes narrow rules that a person may add to a configuration, so that calls like one
// that needed approval are allowed.
package propose

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
	"github.com/toolcrib/toolcrib/journal"
)

// Patterns of command lines and path segments without any special characters of shells, paths or CEL.
var (
	plainLine    = lazyregexp.New(`^[A-Za-z0-9_./:=@%+,-]+( [A-Za-z0-9_./:=@%+,-]+)*$`)
	plainSegment = lazyregexp.New(`^[A-Za-z0-9_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*$`)
)

const (
	maxProposed  = 200 // bytes of a command line, or of a path in its workspace
	maxWorkspace = 500 // bytes of the path of a workspace
)

// For returns a rule for calls like this one, or nil if none is narrow enough. The rule
// applies only in the workspace of the call, and to the same command line of plain words, or to files
// with the same extension in the same folder, symbolic links resolved. So it never applies to a line
// with another command, or to a path that leads elsewhere.
func For(c *journal.ApprovalItem) *api.Rule {
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
	return &api.Rule{
		Name: "allow_" + hex.EncodeToString(sum[:4]), Tools: []string{c.Name}, When: when, Then: string(gate.RuleAllow),
	}
}

// whenLine returns a condition for exactly this command line, or "".
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

// whenFile returns a condition for files with the same extension in the same folder or, if the file is
// at the root of the workspace or does not have exactly one extension, for this file. It returns "" if
// the path is not plain.
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

// quoted returns a text as a string literal of JSON, which is also one of CEL.
func quoted(text string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(text) != nil {
		return `""` // a string can always be marshaled
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// plainPath reports whether a path is relative and has only plain segments, none hidden or "..".
func plainPath(name string) bool {
	return !slices.ContainsFunc(strings.Split(name, "/"),
		func(segment string) bool { return !plainSegment.MatchString(segment) })
}

// climbs reports whether a word of a line has the path segment "..".
func climbs(line string) bool {
	apart := func(r rune) bool { return strings.ContainsRune(" /=:", r) }
	return slices.Contains(strings.FieldsFunc(line, apart), "..")
}
