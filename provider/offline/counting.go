package offline

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
)

// list answers what there is: in a folder, or of a kind of files.
func list(t *turn, c clause, _ string) (string, bool) {
	if c.glob != "" {
		f, done := t.search(arguments{"glob": c.glob, "path": c.folder, "max_results": maxFound})
		switch {
		case !done:
			return "", false
		case f.problem != "":
			return cannot("look for "+c.kind, f.problem), true
		case len(f.Matches) == 0:
			return fmt.Sprintf("There are no %s %s.", c.kind, c.where()), true
		}
		n := len(f.paths())
		return fmt.Sprintf("%s%d %s %s:\n%s", upper(f.more()), n, c.kindOf(n), c.where(), bullets(f.paths())), true
	}
	folder := c.inBareFolder().folder
	if folder == "" && len(c.files) > 0 {
		folder = strings.TrimSuffix(c.files[0], "/")
	}
	if m := listOf.FindStringSubmatch(c.text); m != nil && folder == "" && !slices.Contains(everything, strings.ToLower(m[1])) {
		folder = m[1]
	}
	l, done := t.folder(folder)
	switch {
	case !done:
		return "", false
	case l.problem != "":
		return cannot("list "+visible(cmp.Or(folder, "this folder")), l.problem), true
	}
	return describe(l, folder), true
}

var (
	listOf     = pattern(`^(?:ls|dir|tree|list)\s+(?:-\w+\s+)?(?:the\s+)?([\w@-]+)$`)
	everything = []string{"files", "file", "all", "everything", "folders", "folder", "directory", "directories", "here", "contents", "dateien", "structure"}
)

// kindOf names the kind of files of the clause, for n of them.
func (c clause) kindOf(n int) string {
	kind := cmp.Or(c.kind, "files")
	if n != 1 {
		return kind
	}
	if glob, ok := strings.CutPrefix(kind, "files that match "); ok {
		return "file that matches " + glob
	}
	return strings.TrimSuffix(kind, "s")
}

func upper(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// unitOf names what a clause wants counted.
func unitOf(c clause) string {
	switch unit := strings.ToLower(isUnit.FindString(c.text)); {
	case strings.HasPrefix(unit, "w"):
		return "words"
	case strings.HasPrefix(unit, "ch"), unit == "letters", unit == "zeichen":
		return "characters"
	case unit == "bytes":
		return "bytes"
	}
	return "lines"
}

// countUnits counts the lines, words, characters or bytes of files.
func countUnits(t *turn, c clause, _ string) (string, bool) {
	unit := unitOf(c)
	paths, all, problem, done := t.filesOf(c)
	switch {
	case !done:
		return "", false
	case problem != "":
		return cannot("look for files", problem), true
	case len(paths) == 0:
		return fmt.Sprintf("There are no %s %s.", cmp.Or(c.kind, "files"), c.where()), true
	}
	documents, done := t.readAll(paths)
	if !done {
		return "", false
	}
	if len(documents) == 1 {
		d := documents[0]
		if d.problem != "" {
			return d.failure(), true
		}
		return fmt.Sprintf("%s%s has %s%d %s.", d.note, visible(d.path), d.atLeast(), count(d.text, unit), singular(unit, count(d.text, unit))), true
	}
	return t.sums(documents, len(paths)-len(documents), all, unit)
}

// sums tells what was counted in each of several files, and the sum.
func (t *turn) sums(documents []document, left int, all bool, unit string) (string, bool) {
	var items, problems []string
	sum, exact := 0, all && left == 0
	for _, d := range documents {
		if d.problem != "" {
			problems = append(problems, cmp.Or(d.absent, d.path+": "+d.problem))
			continue
		}
		n := count(d.text, unit)
		sum, exact = sum+n, exact && d.whole
		items = append(items, fmt.Sprintf("%s: %s%d", d.path, d.atLeast(), n))
	}
	atLeast := "At least "
	if exact {
		atLeast = ""
	}
	text := fmt.Sprintf("%s%d %s in %s:\n%s", atLeast, sum, singular(unit, sum), plural(len(items), "file", "files"), bullets(items))
	if left > 0 || !all {
		text += fmt.Sprintf("\nThere are more files; I read no more than %d for one question.", maxReads)
	}
	if len(problems) > 0 {
		text += "\nNot counted:\n" + bullets(problems)
	}
	return text, true
}

func singular(unit string, n int) string {
	if n == 1 {
		return strings.TrimSuffix(unit, "s")
	}
	return unit
}

// countFiles counts files: all, of a kind, or those that mention something.
func countFiles(t *turn, c clause, previous string) (string, bool) {
	if what := subject(c, isFileOf); isFileOf.MatchString(c.text) && what != "" {
		return filesAbout(t, c, previous)
	}
	c = c.inBareFolder()
	glob := cmp.Or(c.glob, "*")
	f, done := t.search(arguments{"glob": glob, "path": c.folder, "max_results": 1000})
	switch {
	case !done:
		return "", false
	case f.problem != "":
		return cannot("count files", f.problem), true
	}
	n := len(f.Matches)
	text := fmt.Sprintf("There are %s%d %s %s and the folders below it (.git not counted)", f.more(), n, c.kindOf(n), c.where())
	if n == 1 {
		text = fmt.Sprintf("There is %s%d %s %s and the folders below it: %s", f.more(), n, c.kindOf(n), c.where(), visible(f.Matches[0].Path))
	}
	return text + ".", true
}

func countFolders(t *turn, c clause, _ string) (string, bool) {
	l, done := t.folder(c.folder)
	switch {
	case !done:
		return "", false
	case l.problem != "":
		return cannot("list the folder", l.problem), true
	}
	var folders []string
	for _, e := range l.Entries {
		if e.IsDir {
			folders = append(folders, e.Name+"/")
		}
	}
	if len(folders) == 0 {
		return fmt.Sprintf("There are no folders %s.", c.where()), true
	}
	return fmt.Sprintf("%s %s (those inside of them not counted):\n%s", plural(len(folders), "folder", "folders"), c.where(), bullets(folders)), true
}

// countTests counts Go test functions.
func countTests(t *turn, c clause, _ string) (string, bool) {
	c = c.inBareFolder()
	f, done := t.search(arguments{"pattern": `^func (Test|Fuzz|Benchmark|Example)\w*\(`, "glob": "*_test.go", "path": c.folder, "max_results": 1000})
	switch {
	case !done:
		return "", false
	case f.problem != "":
		return cannot("look for tests", f.problem), true
	case len(f.Matches) == 0:
		return fmt.Sprintf("I found no Go test functions %s; tests of other languages I do not know.", c.where()), true
	}
	kinds := map[string]int{}
	for _, m := range f.Matches {
		for _, kind := range []string{"Test", "Fuzz", "Benchmark", "Example"} {
			if strings.HasPrefix(m.Text, "func "+kind) {
				kinds[kind]++
			}
		}
	}
	text := fmt.Sprintf("%s%s in %s", upper(f.more()), plural(len(f.Matches), "Go test function", "Go test functions"), plural(len(f.paths()), "file", "files"))
	var parts []string
	for _, kind := range []string{"Test", "Fuzz", "Benchmark", "Example"} {
		if kinds[kind] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s…", kinds[kind], kind))
		}
	}
	return text + " (" + strings.Join(parts, ", ") + ").", true
}

// countMatches counts the lines that mention something.
func countMatches(t *turn, c clause, _ string) (string, bool) {
	what := subject(c, pattern(`(?:how\s+many|number\s+of|count|wie\s*viele?|anzahl|zähle?)\s+(?:times\s+(?:is|are|does|do)\s+)?(.+?)(?:\s+(?:are|is|do|does|appear|occur|gibt)\b.*)?$`))
	if m := lineWith.FindStringIndex(c.text); m != nil && len(c.quotes) == 0 {
		what = bare(c.text[m[1]:])
	}
	if what == "" {
		return help(t), true
	}
	a := c.area(arguments{"pattern": expression(what), "max_results": 1000, "case_insensitive": len(c.quotes) == 0})
	if one := stem(what); one != what && len(c.quotes) == 0 {
		a["pattern"] = `\b` + strings.TrimPrefix(expression(one), `\b`)
		a["pattern"] = strings.TrimSuffix(a["pattern"].(string), `\b`)
	}
	f, done := t.search(a)
	switch {
	case !done:
		return "", false
	case f.problem != "":
		return cannot("search", f.problem), true
	}
	n, files := len(f.Matches), len(f.paths())
	if n == 0 {
		return fmt.Sprintf("No line mentions %q (%s searched).", what, plural(f.Searched, "file", "files")), true
	}
	return fmt.Sprintf("%s%s %q, in %s.", upper(f.more()), plural(n, "line mentions", "lines mention"), what, plural(files, "file", "files")), true
}

// area narrows a search to the file or folder and kind of the clause.
func (c clause) area(a arguments) arguments {
	switch {
	case len(c.files) > 0 && !slices.Contains(c.quotes, c.files[0]):
		a["path"] = c.files[0]
	case c.folder != "":
		a["path"] = c.folder
	}
	if c.glob != "" {
		a["glob"] = c.glob
	}
	return a
}

// fileSize tells the size of files, from the listing of their folder.
func fileSize(t *turn, c clause, _ string) (string, bool) {
	var answers []string
	for _, name := range c.files {
		l, done := t.folder(strings.TrimSuffix(strings.TrimSuffix(path.Dir(name), "."), "/"))
		if !done {
			return "", false
		}
		i := slices.IndexFunc(l.Entries, func(e entry) bool { return e.Name == path.Base(name) })
		switch {
		case l.problem != "":
			answers = append(answers, cannot("look at "+name, l.problem))
		case i < 0:
			answers = append(answers, fmt.Sprintf("There is no %s here.", visible(name)))
		case l.Entries[i].IsDir:
			answers = append(answers, fmt.Sprintf("%s is a folder; its size I cannot tell.", visible(name)))
		case l.Entries[i].IsSymlink:
			answers = append(answers, fmt.Sprintf("%s is %s.", visible(name), l.Entries[i].about()))
		default:
			answers = append(answers, fmt.Sprintf("%s has %s.", visible(name), exactly(l.Entries[i].Size)))
		}
	}
	return strings.Join(answers, "\n"), true
}

// largestFile compares the files of one folder.
func largestFile(t *turn, c clause, _ string) (string, bool) {
	l, done := t.folder(c.folder)
	switch {
	case !done:
		return "", false
	case l.problem != "":
		return cannot("list the folder", l.problem), true
	}
	files := slices.DeleteFunc(slices.Clone(l.Entries), func(e entry) bool { return e.IsDir })
	if len(files) == 0 {
		return fmt.Sprintf("There are no files directly %s.", c.where()), true
	}
	slices.SortStableFunc(files, func(a, b entry) int { return cmp.Compare(b.Size, a.Size) })
	var items []string
	for _, e := range files[:min(len(files), 5)] {
		items = append(items, fmt.Sprintf("%s: %s", e.Name, exactly(e.Size)))
	}
	return fmt.Sprintf("The largest files directly %s (folders below it not looked at):\n%s", c.where(), bullets(items)), true
}

// longestFile compares files by their lines.
func longestFile(t *turn, c clause, _ string) (string, bool) {
	c.files = nil
	paths, all, problem, done := t.filesOf(c)
	switch {
	case !done:
		return "", false
	case problem != "":
		return cannot("look for files", problem), true
	}
	documents, done := t.readAll(paths)
	if !done {
		return "", false
	}
	documents = slices.DeleteFunc(documents, func(d document) bool { return d.problem != "" })
	slices.SortStableFunc(documents, func(a, b document) int { return cmp.Compare(count(b.text, "lines"), count(a.text, "lines")) })
	if len(documents) == 0 {
		return fmt.Sprintf("I could read no %s %s.", cmp.Or(c.kind, "files"), c.where()), true
	}
	var items []string
	for _, d := range documents[:min(len(documents), 5)] {
		items = append(items, fmt.Sprintf("%s: %s%s", d.path, d.atLeast(), plural(count(d.text, "lines"), "line", "lines")))
	}
	text := "The longest of " + plural(len(documents), "file", "files") + " that I read:\n" + bullets(items)
	if !all || len(paths) > maxReads {
		text += fmt.Sprintf("\nThere are more files; I read no more than %d for one question.", maxReads)
	}
	return text, true
}
