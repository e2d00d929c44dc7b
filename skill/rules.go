package skill

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
)

// Rules are entries of allowed-tools, ready to be asked about calls.
//
// A tool may be called if any entry allows the call. An entry without a pattern
// allows every call of its tool. One with a pattern allows the calls whose main
// argument matches, and never one that it would not allow without the pattern:
//
//   - command (exec_shell), as Claude Code reads it: words parted by space, * is
//     any text, over several words too; "git log" is that line alone, "git log *"
//     and "git log:*" are it with any words after. The line is read as bash reads
//     it; it may join simple commands by |, &&, || and ; and each of them must
//     match an entry of the tool. Whatever else a shell has (substitution,
//     variables, assignments, loops, functions, redirection to or from files) is
//     not matched.
//   - path (read_file, write_file, edit_file, list_directory): relative to the
//     workspace; * and ? within a name, ** over folders, a / at the end is
//     everything below, //path is absolute. Nothing else: *.md means files at the
//     top, **/*.md all. A path with .. never matches. For search_files, which
//     reads all that is below a folder, the pattern must end with /**.
//   - url (web_fetch): domain:HOST, domain:*.HOST for what is below a host, or
//     https://HOST/path with * for any text. Plain http and https at their usual
//     ports only.
//   - text (query of web_search, agent of spawn, name of read_skill): * is any
//     text, "X:*" is X alone or with more words.
//
// For any other tool the main argument is its command, path or url, if it is
// called with exactly one of them. A nil *Rules is no restriction; one of an empty
// list allows nothing.
type Rules struct{ entries []rule }

type rule struct {
	Entry
	words *commandPattern // read once, of a pattern that could be one of a command
}

// Compile makes the rules of a list: nil for nil. Entries that cannot be read
// allow nothing.
func Compile(entries []string) *Rules {
	if entries == nil {
		return nil
	}
	r := &Rules{entries: make([]rule, 0, len(entries))}
	for _, text := range entries {
		e, err := ParseEntry(text)
		if err != nil {
			continue
		}
		one := rule{Entry: e}
		if e.Pattern != "" {
			one.words = newCommandPattern(e.Pattern)
		}
		r.entries = append(r.entries, one)
	}
	return r
}

// Place is where a call would take effect; the zero value is not known.
type Place struct {
	// Workspace is absolute, with symbolic links resolved.
	Workspace string
	// Targets are the files that the call touches, as its tool says: a pattern of a
	// path must match these, too, so that a link leads nobody out of it.
	Targets []toolcrib.Target
}

// Names reports whether any entry is about the tool, whatever the arguments: the
// question of an offer.
func (r *Rules) Names(tool string) bool {
	if r == nil {
		return true
	}
	for i := range r.entries {
		if r.entries[i].means(tool) {
			return true
		}
	}
	return false
}

// Allowed reports whether a call of the tool with these arguments is allowed. An
// error says why arguments cannot be judged, in words for a model; the answer is
// then no.
func (r *Rules) Allowed(tool string, args json.RawMessage, at Place) (bool, error) {
	if r == nil {
		return true, nil
	}
	var narrowed []rule
	for _, e := range r.entries {
		switch {
		case !e.means(tool):
		case e.Pattern == "":
			return true, nil
		default:
			narrowed = append(narrowed, e)
		}
	}
	if len(narrowed) == 0 {
		return false, nil
	}
	main, err := mainArgument(tool, args)
	if err != nil {
		return false, err
	}
	switch main.kind {
	case argumentCommand:
		return matchCommand(narrowed, main.text)
	case argumentURL:
		return matchURL(narrowed, main.text)
	case argumentPath, argumentTree:
		for _, e := range narrowed {
			if matchPath(e.Pattern, main, at) {
				return true, nil
			}
		}
	case argumentText:
		for _, e := range narrowed {
			if matchText(e.Pattern, main.text) {
				return true, nil
			}
		}
	}
	return false, nil
}

// Allowed is [Rules.Allowed] of a list, without knowledge of the place.
func Allowed(entries []string, tool string, args json.RawMessage) (bool, error) {
	return Compile(entries).Allowed(tool, args, Place{})
}

type argumentKind string

const (
	argumentCommand argumentKind = "command"
	argumentPath    argumentKind = "path"
	argumentTree    argumentKind = "tree" // a path, and all that is below it
	argumentURL     argumentKind = "url"
	argumentText    argumentKind = "text"
)

// argument is the main argument of a call.
type argument struct {
	kind argumentKind
	text string
}

// mainOf names the main argument of toolcrib's own tools.
func mainOf(tool string) (kind argumentKind, key, absent string) {
	switch tool {
	case "exec_shell":
		return argumentCommand, "command", ""
	case "read_file", "write_file", "edit_file":
		return argumentPath, "path", ""
	case "list_directory":
		return argumentPath, "path", "."
	case "search_files", "get_tree":
		return argumentTree, "path", "."
	case "web_fetch", "fetch":
		return argumentURL, "url", ""
	case "web_search":
		return argumentText, "query", ""
	case "spawn":
		return argumentText, "agent", ""
	case "read_skill":
		return argumentText, "name", ""
	}
	return "", "", ""
}

func mainArgument(tool string, args json.RawMessage) (argument, error) {
	// Read strictly: a key given twice must not mean one thing here and another to
	// the tool.
	canonical, err := guard.Arguments(args)
	if err != nil {
		return argument{}, fmt.Errorf("the arguments cannot be read: %w", err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(canonical, &fields); err != nil {
		return argument{}, fmt.Errorf("the arguments cannot be read: %w", err)
	}
	kind, key, absent := mainOf(tool)
	if kind == "" {
		if kind, key, err = onlyMain(fields); err != nil {
			return argument{}, err
		}
	}
	text := absent
	if raw, ok := fields[key]; ok {
		// null would leave the default standing, and a tool may read it otherwise.
		if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &text) != nil {
			return argument{}, fmt.Errorf("%s must be a text: the skills allow this tool by its %s only", key, key)
		}
	}
	if text == "" || strings.ContainsRune(text, 0) {
		return argument{}, fmt.Errorf("%s is empty or holds NUL: the skills allow this tool by its %s only", key, key)
	}
	return argument{kind: kind, text: text}, nil
}

// onlyMain finds the main argument of a tool that is not toolcrib's own.
func onlyMain(fields map[string]json.RawMessage) (argumentKind, string, error) {
	var kind argumentKind
	var key string
	for _, k := range []argumentKind{argumentCommand, argumentPath, argumentURL} {
		if _, ok := fields[string(k)]; !ok {
			continue
		}
		if kind != "" {
			return "", "", fmt.Errorf("it has both %s and %s: the skills allow this tool by one of them only", key, k)
		}
		kind, key = k, string(k)
	}
	if kind == "" {
		return "", "", fmt.Errorf("it has none of command, path and url: the skills allow this tool by one of them only")
	}
	return kind, key, nil
}

// matchText matches a plain text.
func matchText(pattern, text string) bool {
	if prefix, ok := strings.CutSuffix(pattern, ":*"); ok {
		return text == prefix || strings.HasPrefix(text, prefix+" ") || strings.HasPrefix(text, prefix+":")
	}
	return glob(pattern, text, false)
}

// problem says why the entry's pattern can match no call of its tool; "" = it can.
func (e Entry) problem() string {
	if e.Pattern == "" {
		return ""
	}
	switch kind, _, _ := mainOf(e.Tool); kind {
	case argumentCommand:
		if newCommandPattern(e.Pattern) == nil {
			return "a pattern of a command line has words and * only"
		}
	case argumentPath:
		return pathProblem(e.Pattern, false)
	case argumentTree:
		return pathProblem(e.Pattern, true)
	case argumentURL:
		return urlProblem(e.Pattern)
	}
	return ""
}
