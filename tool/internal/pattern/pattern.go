// Package pattern matches arguments of calls with the patterns that skills put in
// parentheses behind the name of a tool: Read(docs/**), Task(reviewer).
package pattern

import (
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
)

// Glob matches * (any bytes, none too).
func Glob(pattern, s string) bool { return guard.Glob(pattern, s, false) }

// Wild matches * as [Glob] does, and ? (any byte).
func Wild(pattern, s string) bool { return guard.Glob(pattern, s, true) }

// Text reports whether any of the patterns matches a plain text: * is any text, and X:*
// is X alone or with more words.
func Text(patterns []string, text string) bool {
	return text != "" && slices.ContainsFunc(patterns, func(pattern string) bool {
		if prefix, ok := strings.CutSuffix(pattern, ":*"); ok {
			return text == prefix || strings.HasPrefix(text, prefix+" ") || strings.HasPrefix(text, prefix+":")
		}
		return Glob(pattern, text)
	})
}

// Path reports whether any of the patterns matches the path of a call, and every file
// that the call touches, so that a link leads nobody out of it. They are relative to the
// workspace: * and ? are within a name, ** is over folders, a / at the end is everything
// below, //path is absolute. Nothing else: *.md means files at the top, **/*.md all. A
// path with .. never matches. If tree is set the call reads all that is below a folder,
// so that a pattern must end with /**.
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

// BadPath says why a pattern can match no path; "" if it can.
func BadPath(pattern string, tree bool) string {
	p, problem := readPath(pattern)
	if problem == "" && tree && !p.whole() {
		return "this tool reads all that is below a folder, so the pattern must end with /**"
	}
	return problem
}

// maxPath bounds a path that is matched, in bytes.
const maxPath = 4096

// pathPattern is a pattern of a path, by its segments.
type pathPattern struct {
	segments []string
	absolute bool
}

// readPath reads a pattern; problem says why it can match nothing.
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

// whole reports whether the pattern matches everything below what it matches.
func (p pathPattern) whole() bool { return p.segments[len(p.segments)-1] == "**" }

// written turns a path into what the pattern is about: one relative to the
// workspace, or for an absolute pattern an absolute one, without the first /.
func (p pathPattern) written(name, workspace string) (string, bool) {
	// A backslash parts folders on some systems.
	if len(name) > maxPath || strings.ContainsAny(name, "\x00\\") {
		return "", false
	}
	for _, segment := range strings.Split(name, "/") {
		if segment == ".." {
			return "", false // where it leads depends on links
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

// match compares segment by segment, in time of at most the product of both
// lengths.
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
