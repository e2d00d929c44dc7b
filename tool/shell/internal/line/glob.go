package line

import (
	"io"
	"io/fs"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/expand"
)

// maxVisited bounds the folder entries that are read for the patterns of one line.
const maxVisited = 50_000

// expander expands the patterns of one line in the workspace, as a shell does: * does not match a
// leading dot or a slash, results are sorted, and a pattern without matches is kept as it is.
type expander struct {
	files   Files
	visited int
}

// expand returns the file names that match a pattern. A name that a program could read as an
// option or an operator gets the prefix "./".
func (e *expander) expand(w word) ([]string, error) {
	if !w.pattern() {
		return []string{w.text}, nil
	}
	if strings.HasPrefix(w.text, "/") || slices.Contains(strings.Split(w.text, "/"), "..") {
		return nil, refuse("the pattern %s is not allowed; patterns are relative to the workspace, without ..", Quote(w.text))
	}
	found, err := expand.Fields(&expand.Config{ReadDir2: e.entries}, w.glob)
	given := strings.Split(w.text, "/")
	found = slices.DeleteFunc(found, func(name string) bool { // the library lets ? and [ match a leading dot
		for i, part := range strings.Split(name, "/") {
			if strings.HasPrefix(part, ".") && (i >= len(given) || !strings.HasPrefix(given[i], ".")) {
				return true
			}
		}
		return false
	})
	switch {
	case e.visited > maxVisited:
		return nil, refuse("the patterns would look at more than %d files; name a folder, or use find", maxVisited)
	case err != nil:
		return nil, err
	case len(found) > maxWords:
		return nil, refuse("a pattern matches more than %d files; name a folder, or use find", maxWords)
	case len(found) == 0 || len(found) == 1 && found[0] == w.text:
		return []string{w.text}, nil
	}
	for i, name := range found {
		if !ordinary(name[0]) {
			found[i] = "./" + name
		}
	}
	return found, nil
}

// ordinary reports whether programs read a word that begins with c only as a file name.
func ordinary(c byte) bool {
	return c >= 0x80 || c == '.' || c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// entries lists a folder of the workspace.
func (e *expander) entries(name string) ([]fs.DirEntry, error) {
	if e.visited++; e.visited > maxVisited {
		return nil, io.ErrShortBuffer
	}
	if name == "" {
		name = "."
	}
	found, err := e.files.ReadDir(name, maxVisited-e.visited+1)
	e.visited += len(found)
	return found, err
}
