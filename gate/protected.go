package gate

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/toolcrib/toolcrib"
)

// Protected names what no tool may touch, whatever else allows it (contract §11).
// Paths are absolute; a symbolic link among them protects what it leads to as
// well. Everything is compared without regard to letter case, and to characters
// that some file systems pass over, except for Except, which must be exact.
type Protected struct {
	Write []string // never written, nor anything below; may be read
	Names []string // names of files and folders (.git) that are never written, wherever they are, nor anything below
	Touch []string // neither read nor written, nor anything below (data_dir)
	// Except are paths below those of Touch that are free again
	// (data_dir/workspaces). The longest path counts. Write and Names hold there.
	Except []string
}

// maxTargets bounds what one call may touch.
const maxTargets = 1024

// PathRules is a [Protected] made ready for comparing. The zero value protects
// nothing. It may be used by many goroutines.
type PathRules struct {
	write, touch [][]string // components, folded
	names        map[string]bool
	except       [][]string // components as they are
}

// Rules makes p ready for comparing. Symbolic links are looked at once, here.
func (p Protected) Rules() (PathRules, error) {
	out := PathRules{names: make(map[string]bool, len(p.Names))}
	for _, name := range p.Names {
		if name == "" || strings.ContainsAny(name, `/\`) {
			return out, badOption("protected name %q must be the name of a file or folder", name)
		}
		out.names[fold(name)] = true
	}
	for _, list := range []struct {
		paths []string
		into  *[][]string
		fold  bool
	}{{p.Write, &out.write, true}, {p.Touch, &out.touch, true}, {p.Except, &out.except, false}} {
		for _, path := range list.paths {
			if !filepath.IsAbs(path) {
				return out, badOption("protected path %q must be absolute", path)
			}
			for _, form := range forms(path) {
				*list.into = append(*list.into, components(form, list.fold))
			}
		}
	}
	return out, nil
}

// forms returns the path as given, and with its links resolved.
func forms(path string) []string {
	clean := filepath.Clean(path)
	if real := Resolved(clean); real != clean {
		return []string{clean, real}
	}
	return []string{clean}
}

// Resolved returns a path with its symbolic links resolved, as far as it exists.
func Resolved(path string) string {
	rest := ""
	for at := filepath.Clean(path); ; at = filepath.Dir(at) {
		if _, err := os.Lstat(at); err == nil { // one look where there is nothing
			if real, err := filepath.EvalSymlinks(at); err == nil {
				return filepath.Join(real, rest)
			}
		}
		if filepath.Dir(at) == at {
			return filepath.Clean(path)
		}
		rest = filepath.Join(filepath.Base(at), rest)
	}
}

// components splits a clean absolute path.
func components(path string, folded bool) []string {
	parts := strings.FieldsFunc(filepath.ToSlash(path), func(r rune) bool { return r == '/' })
	if folded {
		for i, p := range parts {
			parts[i] = fold(p)
		}
	}
	return parts
}

// fold maps names to the same text that some file system takes for the same file:
// letter case, characters without width, dots and spaces at the end.
func fold(name string) string {
	name = strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Cf, r) {
			return -1
		}
		least := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			least = min(least, f)
		}
		return least
	}, name)
	if trimmed := strings.TrimRight(name, ". "); trimmed != "" {
		name = trimmed
	}
	return name
}

// protection is why a target may not be touched.
type protection int

const (
	free protection = iota
	notWritten
	notTouched
	notJudged // the target is not told so that it could be judged
)

// NeverWritten reports whether the path, absolute and with its symbolic links
// resolved, must not be written. A path that cannot be judged must not.
func (p *PathRules) NeverWritten(path string) bool {
	return p.judge(toolcrib.Target{Kind: toolcrib.TargetFile, Name: path, Write: true}) != free
}

// NeverTouched is NeverWritten for reading and writing.
func (p *PathRules) NeverTouched(path string) bool {
	return p.judge(toolcrib.Target{Kind: toolcrib.TargetFile, Name: path}) != free
}

// judge reports whether a target may be touched.
func (p *PathRules) judge(t toolcrib.Target) protection {
	if t.Kind != toolcrib.TargetFile {
		return free
	}
	if !filepath.IsAbs(t.Name) || strings.ContainsRune(t.Name, 0) {
		return notJudged
	}
	clean := filepath.Clean(t.Name)
	exact, folded := components(clean, false), components(clean, true)
	if touched := longest(p.touch, folded); touched >= 0 && longest(p.except, exact) <= touched {
		return notTouched
	}
	if !t.Write {
		return free
	}
	if longest(p.write, folded) >= 0 {
		return notWritten
	}
	if slices.ContainsFunc(folded, func(name string) bool { return p.names[name] }) {
		return notWritten
	}
	return free
}

// longest returns the number of components of the longest path that holds the
// other one; -1 = none does.
func longest(paths [][]string, in []string) int {
	most := -1
	for _, p := range paths {
		if len(p) > most && len(p) <= len(in) && slices.Equal(p, in[:len(p)]) {
			most = len(p)
		}
	}
	return most
}

// targetsStep asks the tool what the call touches, and refuses one that touches
// what is protected.
func (j *judgement) targetsStep() *refusal {
	if j.entry.targeter != nil {
		j.targets = slices.Clone(j.entry.targeter.Targets(j.judged()))
	}
	j.targetAgent()
	if len(j.targets) > maxTargets {
		return refuse("%s would touch %d things at once, at most %d can be judged. Do less in one call.",
			j.name(), len(j.targets), maxTargets)
	}
	for _, t := range j.targets {
		var what string
		switch j.gate.protected.judge(t) {
		case free:
			continue
		case notWritten:
			what = "is protected: it may be read, but never be written"
		case notTouched:
			what = "is protected: it may neither be read nor be written"
		case notJudged:
			what = "cannot be judged, so it is protected"
		}
		return refuse("%s %s. Leave it as it is%s.", inWorkspace(t.Name, j.scope.Workspace), what,
			otherwise(t)).because("", t.Name)
	}
	return nil
}

// otherwise says what to do where a call of git is the usual way to write a target.
func otherwise(t toolcrib.Target) string {
	path := filepath.ToSlash(t.Name)
	if t.Write && (strings.HasSuffix(path, "/.git") || strings.HasSuffix(path, "/.git/config")) {
		return ", or ask the person to run this command in a terminal of their own"
	}
	return ""
}

// inWorkspace names a path to a model: nothing outside the workspace is named.
func inWorkspace(path, workspace string) string {
	if workspace == "" || !filepath.IsAbs(path) {
		return "This path"
	}
	rel, err := filepath.Rel(workspace, path)
	if err != nil || !filepath.IsLocal(rel) {
		return "This path"
	}
	return shown(rel)
}
