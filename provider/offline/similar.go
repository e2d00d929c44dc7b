package offline

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
)

const (
	maxSimilar   = 5  // names that are offered in place of one that is not there
	maxCompared  = 64 // characters of a name that are compared
	shortestPart = 3  // characters that a name must have to be found inside of another
)

// nearest looks for a file that is not there under its name. near are those that
// differ in case, folder or ending only, the closest first; if there are none,
// similar are names that look like it.
func (t *turn) nearest(name string) (near, similar []string, done bool) {
	if _, ok := t.offered[searchFiles]; !ok {
		return t.similar(name, nil, true)
	}
	f, done := t.search(arguments{"glob": anyCase(path.Base(name)) + "*", "max_results": maxFound})
	if !done {
		return nil, nil, false
	}
	for _, p := range f.paths() {
		if unlike(p, name) < 2 {
			near = append(near, p)
		}
	}
	slices.SortStableFunc(near, func(a, b string) int {
		return cmp.Or(
			cmp.Compare(unlike(a, name), unlike(b, name)),
			cmp.Compare(strings.Count(a, "/"), strings.Count(b, "/")),
			cmp.Compare(len(a), len(b)))
	})
	if len(near) > 0 {
		return near, nil, true
	}
	all, done := t.search(arguments{"glob": "*", "max_results": 1000})
	return t.similar(name, append(f.paths(), all.paths()...), done)
}

// similar compares a name with those that a search found and with those of its
// folder, where links and folders stand too.
func (t *turn) similar(name string, paths []string, searched bool) (near, similar []string, done bool) {
	if _, ok := t.offered[listDirectory]; ok {
		in := path.Dir(strings.TrimSuffix(name, "/"))
		l, ok := t.folder(strings.TrimSuffix(in, "."))
		searched = searched && ok
		for _, e := range l.Entries {
			p := path.Join(in, e.Name)
			if e.IsDir {
				p += "/"
			}
			paths = append(paths, p)
		}
	}
	if !searched {
		return nil, nil, false
	}
	slices.Sort(paths)
	paths = slices.DeleteFunc(slices.Compact(paths), func(p string) bool { return distance(p, name) < 0 })
	slices.SortStableFunc(paths, func(a, b string) int { return cmp.Compare(distance(a, name), distance(b, name)) })
	return nil, paths[:min(len(paths), maxSimilar)], true
}

// unlike is 0 if the file at p is just what name calls, but for case or folder,
// and 1 if it has an ending more.
func unlike(p, name string) int {
	base := path.Base(p)
	switch {
	case strings.EqualFold(base, path.Base(name)):
		return 0
	case path.Ext(name) == "" && strings.EqualFold(strings.TrimSuffix(base, path.Ext(base)), path.Base(name)):
		return 1
	}
	return 2
}

// distance tells how far the name of p is from name: 0 if one is a part of the
// other, else the number of characters to change; -1 if that is more than a third.
func distance(p, name string) int {
	a, b := strings.ToLower(path.Base(p)), strings.ToLower(path.Base(name))
	whole := b
	if ext := path.Ext(b); ext != b { // not of a name such as .env
		b = strings.TrimSuffix(b, ext)
	}
	short := strings.TrimSuffix(a, path.Ext(a))
	if len([]rune(b)) >= shortestPart && strings.Contains(a, b) || len([]rune(short)) >= shortestPart && strings.Contains(b, short) {
		return 0
	}
	n := edits([]rune(a), []rune(whole))
	if n == 2 && sorted(a) == sorted(whole) {
		n = 1 // two characters changed places
	}
	if n > (len([]rune(whole))+1)/3 {
		return -1
	}
	return n
}

func sorted(s string) string {
	r := []rune(s)
	slices.Sort(r)
	return string(r)
}

// edits is the Levenshtein distance of the beginnings of two names.
func edits(a, b []rune) int {
	a, b = a[:min(len(a), maxCompared)], b[:min(len(b), maxCompared)]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range a {
		diagonal := row[0]
		row[0] = i + 1
		for j := range b {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// noSuchFile says that there is no file of this name, and what looks like it.
func (t *turn) noSuchFile(name string, similar []string) string {
	text := fmt.Sprintf("There is no file %s here", visible(name))
	_, search := t.offered[searchFiles]
	_, list := t.offered[listDirectory]
	switch {
	case !search && !list:
		return text + "." // nobody looked for others
	case len(similar) == 0:
		return text + ", and none with a similar name that I found."
	}
	return text + "; files with similar names: " + listed(similar) + "."
}

// listed puts names behind each other, at most maxSimilar of them.
func listed(names []string) string {
	shown := make([]string, 0, maxSimilar)
	for _, name := range names[:min(len(names), maxSimilar)] {
		shown = append(shown, visible(name))
	}
	text := strings.Join(shown, ", ")
	if len(names) > maxSimilar {
		text += fmt.Sprintf(" and %d more", len(names)-maxSimilar)
	}
	return text
}
