package shell

import (
	"errors"
	"io"
	"os"
	"path"
	"slices"
	"strings"
)

// maxVisited bounds the folder entries that the patterns of one line look at.
const maxVisited = 50_000

// expander expands the patterns of one line beneath the workspace. Patterns work
// as in a shell: * does not match a leading dot or a slash, results are sorted, a
// pattern that matches nothing stays as it is.
type expander struct {
	w       *workspace
	visited int
}

// expand returns the words that a pattern stands for. One that could be taken for
// an option or an operator gets "./" before it.
func (e *expander) expand(w word) ([]string, error) {
	if !w.pattern() {
		return []string{w.text}, nil
	}
	if strings.HasPrefix(w.text, "/") || slices.Contains(strings.Split(w.text, "/"), "..") {
		return nil, refuse("the pattern %s is not allowed; patterns are relative to the workspace, without ..", quote(w.text))
	}
	components := strings.Split(w.glob, "/")
	for _, c := range components {
		if _, err := path.Match(c, ""); err != nil {
			return []string{w.text}, nil // as a shell takes a lone [
		}
	}
	var found []string
	if err := e.match("", components, &found); err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return []string{w.text}, nil
	}
	slices.Sort(found)
	for i, name := range found {
		if !ordinary(name[0]) {
			found[i] = "./" + name
		}
	}
	return found, nil
}

// ordinary reports whether a file name that begins so is never taken for anything
// else by a program.
func ordinary(c byte) bool {
	return c >= 0x80 || c == '.' || c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// match follows the components of a pattern below the folder at prefix ("" or with
// a slash at its end).
func (e *expander) match(prefix string, components []string, found *[]string) error {
	component, rest := components[0], components[1:]
	if !strings.ContainsAny(component, `*?[\`) {
		return e.step(prefix+component, rest, found)
	}
	names, err := e.names(prefix)
	if err != nil {
		return err
	}
	for _, name := range names {
		if name[0] == '.' && component[0] != '.' && !strings.HasPrefix(component, `\.`) {
			continue
		}
		if ok, err := path.Match(component, name); err != nil || !ok {
			continue
		}
		if err := e.step(prefix+name, rest, found); err != nil {
			return err
		}
	}
	return nil
}

// step goes on behind a component that stands for the file at.
func (e *expander) step(at string, rest []string, found *[]string) error {
	if len(rest) > 0 {
		return e.match(at+"/", rest, found)
	}
	name := at
	if strings.HasSuffix(at, "/") {
		name = at + "." // a pattern that ends in a slash matches folders only
	}
	if name == "" {
		return nil
	}
	if _, err := e.w.Root.Lstat(name); err != nil {
		return nil //nolint:nilerr // what cannot be seen does not match
	}
	if len(*found) >= maxWords {
		return refuse("a pattern matches more than %d files; name a folder, or use find", maxWords)
	}
	*found = append(*found, at)
	return nil
}

// names lists a folder of the workspace; what is no folder, or outside, has no
// names.
func (e *expander) names(prefix string) ([]string, error) {
	folder, err := e.w.Root.Open(prefix + ".") // with "/." it is a folder, or it fails
	if err != nil {
		return nil, nil //nolint:nilerr // what cannot be opened does not match
	}
	defer func() { _ = folder.Close() }()
	var names []string
	for {
		batch, err := folder.ReadDir(256)
		for _, entry := range batch {
			names = append(names, entry.Name())
		}
		if e.visited += len(batch); e.visited > maxVisited {
			return nil, refuse("the patterns would look at more than %d files; name a folder, or use find", maxVisited)
		}
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, os.ErrNotExist) {
				err = nil
			}
			return names, err
		}
	}
}
