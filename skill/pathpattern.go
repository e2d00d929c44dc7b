package skill

import (
	"path"
	"path/filepath"
	"strings"

	"github.com/toolcrib/toolcrib"
)

// maxPath bounds a path that is matched, in bytes.
const maxPath = 4096

// pathPattern is a pattern of a path, by its segments.
type pathPattern struct {
	segments []string
	absolute bool
}

// readPathPattern reads a pattern; "" = it can match.
func readPathPattern(pattern string) (p pathPattern, problem string) {
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

func pathProblem(pattern string, tree bool) string {
	p, problem := readPathPattern(pattern)
	if problem == "" && tree && !p.whole() {
		return "this tool reads all that is below a folder, so the pattern must end with /**"
	}
	return problem
}

// whole reports whether the pattern matches everything below what it matches.
func (p pathPattern) whole() bool { return p.segments[len(p.segments)-1] == "**" }

// matchPath reports whether the path of a call, and every file that it touches,
// matches the pattern.
func matchPath(pattern string, main argument, at Place) bool {
	p, problem := readPathPattern(pattern)
	if problem != "" || main.kind == argumentTree && !p.whole() {
		return false
	}
	name, ok := p.written(main.text, at.Workspace)
	if !ok || !p.match(name) {
		return false
	}
	for _, t := range at.Targets {
		if t.Kind != toolcrib.TargetFile {
			continue
		}
		if name, ok = p.written(filepath.ToSlash(t.Name), at.Workspace); !ok || !p.match(name) {
			return false
		}
	}
	return true
}

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
