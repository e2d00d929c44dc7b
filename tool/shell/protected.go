package shell

import (
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	maxGuarded     = 20_000  // files and folders that are looked at
	maxVisits      = 200_000 // entries of a workspace that are visited
	maxGuardedFile = 1 << 20 // bytes of a file whose content is hashed; of larger ones size and times count
	maxGuardDepth  = 12      // folders deep that protected names are looked for
)

// guarded is what protected paths were like before a call.
type guarded struct {
	set    *Options
	dir    string
	before map[string]string // by path, what stands for its content; "" = there is nothing
}

// guard takes down what the protected paths are like. A line that only reads
// needs none.
func (s *shell) guard(p *plan) *guarded {
	g := &guarded{set: &s.options, dir: p.w.dir}
	if p.writes {
		g.before = g.look()
	}
	return g
}

// paths returns the protected paths that exist.
func (g *guarded) paths() []string {
	var found []string
	for path, print := range g.before {
		if print != "" {
			found = append(found, path)
		}
	}
	slices.Sort(found)
	return found
}

// changed returns the protected paths that are not what they were.
func (g *guarded) changed() []string {
	if g.before == nil {
		return nil
	}
	var found []string
	after := g.look()
	for path, print := range after {
		if g.before[path] != print {
			found = append(found, path)
		}
	}
	for path := range g.before {
		if _, still := after[path]; !still {
			found = append(found, path)
		}
	}
	slices.Sort(found)
	return found
}

// look returns prints of all protected paths.
func (g *guarded) look() map[string]string {
	prints := map[string]string{}
	left := maxGuarded
	for _, path := range g.set.Protected {
		prints[filepath.Clean(path)] = fingerprint(path, &left)
	}
	if len(g.set.ProtectedNames) == 0 {
		return prints
	}
	visits := maxGuarded
	_ = filepath.WalkDir(g.dir, func(path string, entry fs.DirEntry, err error) error {
		if visits--; visits < 0 {
			return fs.SkipAll
		}
		if err != nil || path == g.dir {
			return nil
		}
		if slices.ContainsFunc(g.set.ProtectedNames, func(n string) bool { return strings.EqualFold(n, entry.Name()) }) {
			prints[path] = fingerprint(path, &left)
			if entry.IsDir() {
				return fs.SkipDir
			}
		}
		if entry.IsDir() && strings.Count(path[len(g.dir):], string(filepath.Separator)) > maxGuardDepth {
			return fs.SkipDir
		}
		return nil
	})
	return prints
}

// fingerprint stands for what a file or a folder with all that is in it holds; "" =
// there is nothing. Where there is more than can be looked at, the rest is left out.
func fingerprint(path string, left *int) string {
	sum := sha256.New()
	seen := false
	_ = filepath.WalkDir(path, func(at string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if *left--; *left < 0 {
			return fs.SkipAll
		}
		info, err := entry.Info()
		if err != nil {
			return nil
		}
		seen = true
		_, _ = fmt.Fprintf(sum, "%q %v\n", at, info.Mode())
		switch {
		case info.Mode().IsRegular() && info.Size() <= maxGuardedFile:
			if f, err := os.Open(at); err == nil {
				_, _ = io.Copy(sum, io.LimitReader(f, maxGuardedFile))
				_ = f.Close()
			}
		case info.Mode().IsRegular():
			_, _ = fmt.Fprintf(sum, "%d %d\n", info.Size(), info.ModTime().UnixNano())
		case info.Mode()&fs.ModeSymlink != 0:
			target, _ := os.Readlink(at)
			_, _ = fmt.Fprintf(sum, "%q\n", target)
		}
		return nil
	})
	if !seen {
		return ""
	}
	return string(sum.Sum(nil))
}
