// Package pattern matches arguments of calls against the patterns that skills have in parentheses
// after the name of a tool: Read(docs/**), Task(reviewer).
package pattern

import (
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
)

// Glob reports whether pattern matches s. In pattern, * matches any bytes, or none.
func Glob(pattern, s string) bool { return guard.Glob(pattern, s, false) }

// Wild is [Glob] with ?, which matches any byte.
func Wild(pattern, s string) bool { return guard.Glob(pattern, s, true) }

// Text reports whether one of the patterns matches a text: * matches any text, and X:* matches X
// alone or followed by more words.
func Text(patterns []string, text string) bool {
	return text != "" && slices.ContainsFunc(patterns, func(pattern string) bool {
		if prefix, ok := strings.CutSuffix(pattern, ":*"); ok {
			return text == prefix || strings.HasPrefix(text, prefix+" ") || strings.HasPrefix(text, prefix+":")
		}
		return Glob(pattern, text)
	})
}

// Path reports whether one of the patterns matches the path of a call and every file that the call
// touches, so that a link cannot lead out of it. Patterns are relative to the workspace: * and ?
// match within a name, ** matches any folders, a final / matches everything below, and //path is
// absolute. So *.md matches files at the top only, **/*.md all. A path with .. never matches. If tree
// is true, the call reads everything below a folder, so the pattern must end with /**.
func Path(patterns []string, name, workspace string, targets []toolcrib.Target, tree bool) bool {
	return name != "" && slices.ContainsFunc(patterns, func(pattern string) bool {
		p, problem := readPath(pattern)
		if problem != "" || tree && !p.whole() {
			return false
		}
		names := []string{name}
		for _, t := range targets {
			if t.Kind == toolcrib.TargetFile {
				names = append(names, filepath.ToSlash(t.Name))
			}
		}
		return !slices.ContainsFunc(names, func(name string) bool {
			below, ok := p.written(name, workspace)
			return !ok || !p.match(below)
		})
	})
}

// BadPath returns why a pattern cannot match any path, or "".
func BadPath(pattern string, tree bool) string {
	p, problem := readPath(pattern)
	if problem == "" && tree && !p.whole() {
		return "this tool reads all that is below a folder, so the pattern must end with /**"
	}
	return problem
}

// maxPath is the maximum length in bytes of a path that matches.
const maxPath = 4096

// pathPattern is a parsed pattern for paths.
type pathPattern struct {
	segments []string
	absolute bool
}

// readPath parses a pattern. problem says why it cannot match any path, or is "".
func readPath(pattern string) (p pathPattern, problem string) {
	rest := strings.TrimPrefix(pattern, "./")
	switch {
	case strings.HasPrefix(rest, "~"):
		return p, "~ is not in the workspace; only files of the workspace can be allowed"
	case strings.HasPrefix(rest, "//"):
		p.absolute, rest = true, rest[2:]
	default:
		rest = strings.TrimPrefix(rest, "/")
	}
	if strings.HasSuffix(rest, "/") {
		rest += "**"
	}
	for _, segment := range strings.Split(rest, "/") {
		if segment == "" || segment == "." {
			continue
		}
		if segment == ".." {
			return p, "a pattern of a path has no .."
		}
		if segment != "**" {
			if strings.Contains(segment, "**") {
				return p, "** stands for whole folders: it must be alone between two /"
			}
			if _, err := path.Match(segment, ""); err != nil {
				return p, "its brackets do not match"
			}
		}
		p.segments = append(p.segments, segment)
	}
	if len(p.segments) == 0 {
		p.segments = []string{"."}
	}
	return p, ""
}

// whole reports whether the pattern matches everything below each path that it matches.
func (p pathPattern) whole() bool { return p.segments[len(p.segments)-1] == "**" }

// written converts a path to the form that the pattern matches: relative to the workspace or, for an
// absolute pattern, absolute without the first /. It returns false if the path cannot match.
func (p pathPattern) written(name, workspace string) (string, bool) {
	// A backslash separates folders on some systems.
	if len(name) > maxPath || strings.ContainsAny(name, "\x00\\") {
		return "", false
	}
	for _, segment := range strings.Split(name, "/") {
		if segment == ".." {
			return "", false // its target depends on links
		}
	}
	root, cleaned := strings.TrimSuffix(filepath.ToSlash(workspace), "/"), path.Clean(name)
	switch absolute := path.IsAbs(cleaned); {
	case absolute && p.absolute:
		return cleaned[1:], true
	case !absolute && !p.absolute:
		return cleaned, true
	case workspace == "":
		return "", false
	case p.absolute:
		return strings.TrimPrefix(path.Join(root, cleaned), "/"), true
	case cleaned == root:
		return ".", true
	}
	return strings.CutPrefix(cleaned, root+"/")
}

// match reports whether the pattern matches name, in time proportional to the product of their
// numbers of segments.
func (p pathPattern) match(name string) bool {
	var segments []string
	if name != "." && name != "" {
		segments = strings.Split(name, "/")
	} else if len(p.segments) == 1 && p.segments[0] == "." {
		return true
	}
	// reach[i] reports whether the pattern so far matches the first i segments.
	reach := make([]bool, len(segments)+1)
	reach[0] = true
	for _, s := range p.segments {
		next := make([]bool, len(segments)+1)
		if s == "**" {
			from := false
			for i := range next {
				from = from || reach[i]
				next[i] = from
			}
		} else {
			for i, segment := range segments {
				if reach[i] {
					ok, err := path.Match(s, segment)
					next[i+1] = err == nil && ok
				}
			}
		}
		reach = next
	}
	return reach[len(segments)]
}
