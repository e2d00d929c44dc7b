package offline

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

const (
	maxShown = 40  // lines of a list or file that an answer shows
	maxFound = 500 // files that a search by name asks for
	maxReads = 64  // files that one task reads
	maxPages = 12  // parts in which one file is read
)

type entry struct {
	Name      string `json:"name"`
	IsDir     bool   `json:"is_dir"`
	Size      int64  `json:"size"`
	IsSymlink bool   `json:"is_symlink"`
}

type listing struct {
	Entries   []entry `json:"entries"`
	Truncated bool    `json:"truncated"`
	problem   string
}

// folder lists one folder; "" is the workspace.
func (t *turn) folder(name string) (l listing, done bool) {
	a := arguments{"path": "."}
	if name != "" {
		a["path"] = name
	}
	r, done := t.call(listDirectory, a)
	if !done {
		return l, false
	}
	switch {
	case r.problem != "":
		l.problem = r.problem
	case !r.decode(&l, false):
		l.problem = "the listing could not be read"
	}
	l.Truncated = l.Truncated || r.cut
	return l, true
}

type match struct {
	Path string `json:"path"`
	Line int    `json:"line"`
	Text string `json:"text"`
}

type found struct {
	Matches   []match `json:"matches"`
	Searched  int     `json:"files_searched"`
	Truncated bool    `json:"truncated"`
	problem   string
}

// more marks a number that is only a lower bound.
func (f found) more() string {
	if f.Truncated {
		return "at least "
	}
	return ""
}

// search asks search_files. Arguments that are empty are not sent.
func (t *turn) search(a arguments) (f found, done bool) {
	for name, v := range a {
		if v == "" || v == false {
			delete(a, name)
		}
	}
	r, done := t.call(searchFiles, a)
	if !done {
		return f, false
	}
	switch {
	case r.problem != "":
		f.problem = r.problem
	case !r.decode(&f, false):
		f.problem = "the result of the search could not be read"
	}
	f.Truncated = f.Truncated || r.cut
	return f, true
}

// paths returns the files that were found, each once, in order.
func (f found) paths() (paths []string) {
	for _, m := range f.Matches {
		if !slices.Contains(paths, m.Path) {
			paths = append(paths, m.Path)
		}
	}
	return paths
}

// document is a file as far as it could be read.
type document struct {
	path    string
	text    string
	whole   bool
	problem string
	folder  bool   // the problem is that it is a folder
	absent  string // there is no such file: said instead of the problem
	note    string // said with the answer: another file was taken
}

// failure says why there is no text.
func (d document) failure() string {
	if d.absent != "" {
		return d.absent
	}
	return cannot("read "+visible(d.path), d.problem)
}

// read reads a file, in parts where it is too long for one result. A file that
// does not exist under this name is looked for by it.
func (t *turn) read(name string) (d document, done bool) {
	d, missing, done := t.readPath(name)
	if !done || !missing {
		return d, done
	}
	near, similar, done := t.nearest(name)
	if !done {
		return d, false
	}
	if len(near) == 0 {
		if d.absent = t.noSuchFile(name, similar); slices.Contains(similar, path.Clean(name)) {
			d.absent = visible(name) + " is a link, and there is nothing where it leads to."
		}
		return d, true
	}
	other, _, done := t.readPath(near[0])
	also := ""
	if len(near) > 1 {
		also = " Also: " + listed(near[1:]) + "."
	}
	other.note = fmt.Sprintf("(There is no %s; I took %s.%s)\n", visible(name), visible(near[0]), also)
	return other, done
}

// readPath reads the file at a path. missing tells that there is none.
func (t *turn) readPath(name string) (d document, missing, done bool) {
	d.path = name
	r, done := t.call(readFile, arguments{"path": name})
	if !done {
		return d, false, false
	}
	if r.problem != "" {
		d.problem, d.folder = r.problem, r.isFolder
		return d, r.notFound, true
	}
	var result struct {
		Content string `json:"content"`
	}
	if !r.decode(&result, true) {
		d.problem = "the result of the tool could not be read"
		return d, false, true
	}
	d.text, d.whole = result.Content, !r.cut
	if !r.cut {
		return d, false, true
	}
	return t.readPages(d)
}

// readPages reads a long file in ranges of lines that should fit into a result,
// judged by the part that did.
func (t *turn) readPages(d document) (document, bool, bool) {
	if !strings.Contains(string(t.offered[readFile].Parameters), `"offset"`) {
		return d, false, true
	}
	perLine := len(d.text)/max(strings.Count(d.text, "\n"), 1) + 1
	limit := max(len(d.text)*3/5/perLine, 1)
	var text strings.Builder
	next := int64(1)
	for range maxPages {
		r, done := t.call(readFile, arguments{"path": d.path, "offset": next, "limit": limit})
		if !done {
			return d, false, false
		}
		var page struct {
			Content string `json:"content"`
			Next    int64  `json:"next_offset"`
		}
		if r.problem != "" || r.cut || !r.decode(&page, false) {
			return d, false, true // what was read first stands, as a part
		}
		text.WriteString(page.Content)
		d.text = text.String()
		if next = page.Next; next == 0 {
			d.whole = true
			return d, false, true
		}
	}
	return d, false, true
}

// readAll reads several files at the same time.
func (t *turn) readAll(paths []string) (documents []document, done bool) {
	done = true
	for _, p := range paths[:min(len(paths), maxReads)] {
		d, ok := t.read(p)
		documents, done = append(documents, d), done && ok
	}
	return documents, done
}

// atLeast marks a number that is about a part of the file only.
func (d document) atLeast() string {
	if d.whole {
		return ""
	}
	return "at least "
}

// count counts the units of a text: lines as an editor shows them.
func count(text, unit string) int {
	switch unit {
	case "words":
		return len(strings.Fields(text))
	case "characters":
		return len([]rune(text))
	case "bytes":
		return len(text)
	}
	n := strings.Count(text, "\n")
	if text != "" && !strings.HasSuffix(text, "\n") {
		n++
	}
	return n
}

// filesOf returns the files that a clause is about: those that it names, or those
// of its kind in its folder. all tells that there are no more of them.
func (t *turn) filesOf(c clause) (paths []string, all bool, problem string, done bool) {
	if len(c.files) > 0 {
		return c.files, true, "", true
	}
	c = c.inBareFolder()
	glob := c.glob
	if glob == "" {
		glob = "*"
	}
	f, done := t.search(arguments{"glob": glob, "path": c.folder, "max_results": maxFound})
	return f.paths(), !f.Truncated, f.problem, done
}

// bullets lists items, the first maxShown of them.
func bullets(items []string) string { return bulletsUpTo(maxShown, items) }

func bulletsUpTo(most int, items []string) string {
	var b strings.Builder
	for i, item := range items {
		if i == most {
			fmt.Fprintf(&b, "… and %d more\n", len(items)-most)
			break
		}
		fmt.Fprintf(&b, "- %s\n", visible(item))
	}
	return strings.TrimRight(b.String(), "\n")
}

func cannot(what, problem string) string {
	return fmt.Sprintf("I could not %s: %s.", what, strings.TrimSuffix(problem, "."))
}
