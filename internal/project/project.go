// Package project finds the project of a workspace, and reads its notes for agents, such as AGENTS.md
// and CLAUDE.md. It reads them only from the folders from the root of the git repository down to the
// workspace. Notes are data and grant nothing; the caller decides whether they may be used.
package project

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/safefile"
)

const (
	maxLevels  = 64 // folders from the root of the repository down to the workspace
	maxImports = 5  // nested imports of notes
	maxFiles   = 64 // files that are read
)

// Note is a file with notes.
type Note struct {
	Path string // relative to [Project.Root], with slashes
	Text string // cleaned text
	Cut  bool   // whether Text is cut
}

// Project is a git repository, or a workspace outside any.
type Project struct {
	Root   string // root of the repository, or the workspace; absolute, with symbolic links resolved
	Folder string // workspace relative to Root, with slashes
	Git    bool   // whether there is a repository
}

// Find returns the project of a workspace: the nearest folder, the workspace itself or above it, that
// has a .git. Like git it ignores a .git that belongs to another user: in a shared folder anyone
// could create one above the projects of others.
func Find(workspace string) (Project, error) {
	start, err := filepath.EvalSymlinks(workspace)
	if err != nil {
		return Project{}, err
	}
	if start, err = filepath.Abs(start); err != nil {
		return Project{}, err
	}
	return FindFrom(start, func(string) bool { return true })
}

// FindFrom is Find for an absolute path without symbolic links. If exists returns false for a path, it is not checked.
func FindFrom(start string, exists func(path string) bool) (Project, error) {
	for dir, n := start, 0; n < maxLevels; n++ {
		git := filepath.Join(dir, ".git")
		if !exists(git) {
			// As most folders.
		} else if info, err := os.Lstat(git); err == nil && safefile.Owned(info) {
			rel, err := filepath.Rel(dir, start)
			return Project{Root: dir, Folder: filepath.ToSlash(rel), Git: true}, err
		}
		up := filepath.Dir(dir)
		if up == dir {
			break
		}
		dir = up
	}
	return Project{Root: start, Folder: "."}, nil
}

// Names returns the files that Read reads, without imported ones, outermost first: in each folder from
// the root down to the workspace the first of names that exists.
func (p Project) Names(names []string) []string {
	var found []string
	dir, steps := ".", []string{"."}
	if p.Folder != "." {
		steps = append(steps, strings.Split(p.Folder, "/")...)
	}
	for _, step := range steps {
		dir = path.Join(dir, step)
		for _, name := range names {
			file := path.Join(dir, name)
			if info, err := os.Stat(filepath.Join(p.Root, filepath.FromSlash(file))); err == nil && info.Mode().IsRegular() {
				found = append(found, file)
				break
			}
		}
	}
	return found
}

// Read returns the notes of the project, outermost first, with at most limit bytes of text. Those
// nearest to the workspace take precedence; text beyond the limit is left out. An imported file
// (@docs/style.md) becomes a note before the one that imports it. problems lists files that could not
// be read.
func (p Project) Read(names []string, limit int) (found []Note, problems []string) {
	if limit <= 0 {
		return nil, nil
	}
	root, err := os.OpenRoot(p.Root)
	if err != nil {
		return nil, []string{err.Error()}
	}
	defer root.Close()
	r := reader{root: root, limit: limit, seen: map[string]bool{}}
	files := p.Names(names)
	slices.Reverse(files) // the nearest takes precedence
	for _, file := range files {
		r.file(file, 0)
	}
	slices.Reverse(r.found)
	return r.found, r.problems
}

// reader reads notes, the nearest first and each before what it imports.
type reader struct {
	root     *os.Root
	limit    int // remaining bytes
	seen     map[string]bool
	found    []Note
	problems []string
}

func (r *reader) file(name string, depth int) {
	if r.seen[name] || len(r.seen) >= maxFiles || r.limit <= 0 {
		return
	}
	r.seen[name] = true
	text, cut, err := r.read(name)
	if err != nil {
		r.problems = append(r.problems, fmt.Sprintf("%s is not read: %v", name, err))
		return
	}
	r.limit -= len(text)
	r.found = append(r.found, Note{Path: name, Text: text, Cut: cut})
	if depth == maxImports {
		return
	}
	for _, imported := range slices.Backward(imports(text)) {
		if file, ok := r.imported(path.Dir(name), imported); ok {
			r.file(file, depth+1)
		}
	}
}

// imported returns the file that name in a note in dir imports, and false if name is not an import but,
// for example, the name of a person. Hidden files cannot be imported, except in folders for agents: a
// note must not bring an .env into the conversation.
func (r *reader) imported(dir, name string) (string, bool) {
	if path.IsAbs(name) || strings.HasPrefix(name, "~") {
		return "", false
	}
	file := path.Join(dir, name)
	if !filepath.IsLocal(filepath.FromSlash(file)) {
		return "", false
	}
	if hidden(file) {
		return "", false
	}
	info, err := r.root.Stat(filepath.FromSlash(file))
	return file, err == nil && info.Mode().IsRegular()
}

func hidden(file string) bool {
	return slices.ContainsFunc(strings.Split(file, "/"), func(part string) bool {
		return strings.HasPrefix(part, ".") && !slices.Contains([]string{".claude", ".agents", ".github", ".cursor"}, part)
	})
}

// read returns the cleaned text of a file, cut to the remaining bytes. It refuses links to hidden files.
func (r *reader) read(name string) (text string, cut bool, err error) {
	if real, err := filepath.EvalSymlinks(filepath.Join(r.root.Name(), filepath.FromSlash(name))); err == nil {
		if rel, err := filepath.Rel(r.root.Name(), real); err == nil && rel != filepath.FromSlash(name) &&
			filepath.IsLocal(rel) && hidden(filepath.ToSlash(rel)) {
			return "", false, errors.New("it is a link to a hidden file")
		}
	}
	f, err := r.root.OpenFile(filepath.FromSlash(name), os.O_RDONLY|safefile.NonBlock, 0)
	if err != nil {
		return "", false, safefile.Cause(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", false, errors.New("it is not a regular file")
	}
	b, err := io.ReadAll(io.LimitReader(f, int64(r.limit)+1))
	if err != nil {
		return "", false, err
	}
	if slices.Contains(b, 0) {
		return "", false, errors.New("it is not text")
	}
	text = strings.TrimSpace(guard.Clean(string(b)))
	if cut = len(b) > r.limit; len(text) > r.limit {
		text = strings.ToValidUTF8(text[:r.limit], "")
	}
	return text, cut, nil
}

// imports returns the files that a text imports, in order: words that begin with @ outside code.
func imports(text string) (files []string) {
	fence := ""
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		if mark := fenceOf(trimmed); mark != "" && (fence == "" || strings.HasPrefix(mark, fence)) {
			if fence == "" {
				fence = mark
			} else {
				fence = ""
			}
			continue
		}
		if fence != "" {
			continue
		}
		for i, part := range strings.Split(line, "`") {
			if i%2 == 1 {
				continue // code
			}
			for word := range strings.FieldsSeq(part) {
				if file, ok := strings.CutPrefix(word, "@"); ok {
					if file = strings.TrimRight(file, ".,;:!?)'\""); file != "" {
						files = append(files, path.Clean(file))
					}
				}
			}
		}
	}
	return files
}

// fenceOf returns the mark in a line that begins or ends a block of code, or "".
func fenceOf(line string) string {
	for _, c := range []string{"`", "~"} {
		if n := len(line) - len(strings.TrimLeft(line, c)); n >= 3 {
			return line[:n]
		}
	}
	return ""
}
