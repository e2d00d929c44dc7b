package gate

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/toolcrib/toolcrib"
)

// Protected lists the paths that no tool may touch, whatever else allows it. Paths are absolute; a
// symbolic link among them also protects the file that it leads to. Comparisons ignore letter case
// and characters that some file systems ignore, but Except must match exactly.
type Protected struct {
	Write []string // never written, nor anything below them; may be read
	Names []string // names of files and folders (.git) that are never written, nor anything below, in any folder
	Touch []string // never read or written, nor anything below them (data_dir)
	// Except has paths below those of Touch that are free again (data_dir/workspaces). The longest
	// path decides. Write and Names apply there as well.
	Except []string
}

// maxTargets bounds the targets of one call.
const maxTargets = 1024

// PathRules is a [Protected] made ready for comparing. The zero value protects nothing. It is safe
// for use by many goroutines.
type PathRules struct {
	write, touch [][]string // components, folded
	names        map[string]bool
	except       [][]string // components as they are
}

// Rules makes p ready for comparing. It resolves symbolic links once.
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
		if _, err := os.Lstat(at); err == nil { // one call if there is nothing
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

// fold maps names that some file system takes for the same file to the same text. It ignores letter
// case, format characters, and dots and spaces at the end.
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

// protection is the reason why a target may not be touched.
type protection int

const (
	free protection = iota
	notWritten
	notTouched
	notJudged // the target does not name a path that can be judged
)

// NeverWritten reports whether the path, absolute and with its symbolic links resolved, must not be
// written. It is true for a path that cannot be judged.
func (p *PathRules) NeverWritten(path string) bool {
	return p.judge(toolcrib.Target{Kind: toolcrib.TargetFile, Name: path, Write: true}) != free
}

// NeverTouched is NeverWritten for reading and writing.
func (p *PathRules) NeverTouched(path string) bool {
	return p.judge(toolcrib.Target{Kind: toolcrib.TargetFile, Name: path}) != free
}

// judge returns the reason why a target may not be touched, or free.
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

// longest returns the number of components of the longest of paths that contains in, or -1.
func longest(paths [][]string, in []string) int {
	most := -1
	for _, p := range paths {
		if len(p) > most && len(p) <= len(in) && slices.Equal(p, in[:len(p)]) {
			most = len(p)
		}
	}
	return most
}

// targetsStep refuses a call with a protected target.
func (j *judgement) targetsStep() *refusal {
	j.targets = j.plan.Targets
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

// otherwise returns advice for a target that is usually written by a git command, or "".
func otherwise(t toolcrib.Target) string {
	path := filepath.ToSlash(t.Name)
	if t.Write && (strings.HasSuffix(path, "/.git") || strings.HasSuffix(path, "/.git/config")) {
		return ", or ask the person to run this command in a terminal of their own"
	}
	return ""
}

// inWorkspace returns the name of a path for a model, relative to the workspace. Paths outside the
// workspace are not named.
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
