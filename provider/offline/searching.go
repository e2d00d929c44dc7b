package offline

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// find searches for a text, or for files by name.
func find(t *turn, c clause, previous string) (string, bool) {
	what := subject(c, isFind)
	switch {
	case c.glob != "" && len(c.quotes) == 0 && (what == "" || isFiles.MatchString(what) || strings.Contains(what, "*")):
		return list(t, c, previous)
	case len(c.files) > 0 && (what == c.files[0] || isFiles.MatchString(c.text) && len(c.quotes) == 0):
		return t.named(c, c.files[0])
	case what == "":
		return help(t), true
	}
	return t.grep(c, what)
}

// grep shows the lines that mention something.
func (t *turn) grep(c clause, what string) (string, bool) {
	f, done := t.mentions(c, what)
	switch {
	case !done:
		return "", false
	case f.problem != "":
		return cannot("search", f.problem), true
	case len(f.Matches) == 0:
		return fmt.Sprintf("Nothing mentions %q (%s searched).", what, plural(f.Searched, "file", "files")), true
	}
	return fmt.Sprintf("%s%s %q, in %s:\n%s", upper(f.more()), plural(len(f.Matches), "line mentions", "lines mention"), what,
		plural(len(f.paths()), "file", "files"), bullets(lines(f))), true
}

// lines shows matches with their places.
func lines(f found) (items []string) {
	for _, m := range f.Matches {
		items = append(items, fmt.Sprintf("%s:%d: `%s`", m.Path, m.Line, strings.ReplaceAll(shorten(m.Text, 160), "`", "'")))
	}
	return items
}

// whereIs looks for a definition first, and then for any mention.
func whereIs(t *turn, c clause, previous string) (string, bool) {
	rule := isWhere
	switch {
	case isDefined.MatchString(c.text):
		rule = isDefined
	case !rule.MatchString(c.text):
		rule = isUse
	}
	what := subject(c, rule)
	switch {
	case what == "" && len(c.files) == 0:
		return help(t), true
	case len(c.files) > 0 && (what == "" || what == c.files[0]):
		return t.named(c, c.files[0])
	case rule == isUse || strings.Contains(what, " ") || usesOnly.MatchString(c.text):
		return t.grep(c, what)
	}
	return t.defined(c, strings.TrimSuffix(what, "()"))
}

// maxExpression is what search_files takes, in bytes.
const maxExpression = 1024

// defined shows the lines that look like the definition of a name, else those that
// mention it. The plain word is searched for, which is what a person can follow;
// only if that finds too much, the definition is.
func (t *turn) defined(c clause, name string) (string, bool) {
	quoted := regexp.QuoteMeta(name)
	e := `^\s*(export |pub |public |private |static |async |default )*` +
		`(func|type|class|def|interface|struct|enum|trait|fn|function|const|var|let|module)\s+(\([^)]*\)\s*)?` + quoted + `\b|^\t` + quoted + `\s+(=|[\w.\[\]*]+\s*=)`
	definition, err := regexp.Compile(e)
	if err != nil || name == "" || len(e) > maxExpression {
		return t.grep(c, name+"()")
	}
	f, done := t.mentions(c, name)
	if done && f.problem == "" && f.Truncated {
		f, done = t.search(c.area(arguments{"max_results": 50, "pattern": e}))
	}
	switch {
	case !done:
		return "", false
	case f.problem != "":
		return cannot("search", f.problem), true
	}
	f.Matches = slices.DeleteFunc(slices.Clone(f.Matches), func(m match) bool { return !definition.MatchString(m.Text) })
	if len(f.Matches) == 0 {
		return t.grep(c, name)
	}
	return fmt.Sprintf("%s is defined here:\n%s", name, bullets(lines(f))), true
}

// mentions asks for the lines that mention something.
func (t *turn) mentions(c clause, what string) (found, bool) {
	return t.search(c.area(arguments{"pattern": expression(what), "case_insensitive": len(c.quotes) == 0, "max_results": 100}))
}

var usesOnly = pattern(`\b(?:used|mentioned|called|imported|verwendet|benutzt|erwähnt)\b`)

// findNamed looks for files by their name.
func findNamed(t *turn, c clause, _ string) (string, bool) {
	what := subject(c, isNamed)
	if len(c.files) > 0 {
		what = c.files[0]
	}
	if what == "" {
		return help(t), true
	}
	if strings.Contains(what, "*") {
		c.glob, c.kind = what, "files that match "+what
		return list(t, c, "")
	}
	return t.named(c, what)
}

// named lists the files whose name contains what.
func (t *turn) named(c clause, what string) (string, bool) {
	f, done := t.search(arguments{"glob": "*" + anyCase(path.Base(what)) + "*", "path": c.folder, "max_results": maxFound})
	switch {
	case !done:
		return "", false
	case f.problem != "":
		return cannot("look for files", f.problem), true
	case len(f.Matches) == 0:
		return fmt.Sprintf("There is no file whose name contains %q %s (links not counted).", path.Base(what), c.where()), true
	}
	return fmt.Sprintf("%s%s %q in the name:\n%s", upper(f.more()), plural(len(f.paths()), "file has", "files have"), path.Base(what), bullets(f.paths())), true
}

// existence answers whether there is something: a file, a kind of files, a text.
func existence(t *turn, c clause, previous string) (string, bool) {
	what := subject(c, isThere)
	switch {
	case len(c.files) > 0:
		return t.yesNo(c, c.files[0])
	case c.glob != "":
		return list(t, c, previous)
	case what == "":
		return help(t), true
	case isFiles.MatchString(c.text) && isFileOf.MatchString(c.text):
		return filesAbout(t, c, previous)
	}
	word := strings.Fields(what)[0]
	return t.yesNo(c, stem(strings.TrimSuffix(word, "s")))
}

// isVague tells whether the question is about files as such, which their names
// cannot answer.
func isVague(c clause) bool {
	words := strings.Fields(subject(c, isThere))
	return len(words) > 0 && len(c.files) == 0 && c.glob == "" && !isFileOf.MatchString(c.text) &&
		slices.Contains([]string{"file", "files", "folder", "folders", "way", "something", "anything", "dateien", "datei"}, strings.ToLower(words[0]))
}

func (t *turn) yesNo(c clause, what string) (string, bool) {
	text, done := t.named(c, what)
	switch {
	case !done || strings.HasPrefix(text, "I could not"):
		return text, done
	case strings.HasPrefix(text, "There is no file"):
		return "No, as far as names tell. " + text, true
	}
	return "Yes, by the names of files. " + text, true
}

// filesAbout lists the files that mention something. If the question is what they
// are about, files with it in their name come first.
func filesAbout(t *turn, c clause, _ string) (string, bool) {
	what := subject(c, isFileOf)
	topic := isTopic.MatchString(c.text)
	exact := len(c.quotes) > 0 && !topic
	word, e := what, expression(what)
	if !exact && !strings.Contains(what, " ") {
		word = stem(what)
		e = strings.TrimSuffix(expression(word), `\b`)
		if topic {
			e = regexp.QuoteMeta(word) // also inside of a word: TestMain, unittest
		}
	}
	if isWordy.MatchString(c.text) && !exact {
		e = strings.TrimSuffix(e, `\b`)
	}
	f, done := t.search(c.area(arguments{"pattern": e, "names_only": true, "case_insensitive": !exact, "max_results": 200}))
	var byName found
	if topic {
		a := arguments{"glob": "*" + anyCase(word) + "*", "path": c.folder, "max_results": 200}
		var ok bool
		byName, ok = t.search(a)
		done = done && ok
	}
	switch {
	case !done:
		return "", false
	case f.problem != "":
		return cannot("search", f.problem), true
	}
	return tellFiles(f, byName, what, word, topic), true
}

var isWordy = pattern(`\bimport(?:s|ing)?\b`)

func tellFiles(f, byName found, what, word string, topic bool) string {
	names, mentions := byName.paths(), f.paths()
	mentions = slices.DeleteFunc(mentions, func(p string) bool { return slices.Contains(names, p) })
	if !topic {
		if len(mentions) == 0 {
			return fmt.Sprintf("No file mentions %q (%s searched).", what, plural(f.Searched, "file", "files"))
		}
		return fmt.Sprintf("%s%s %q:\n%s", upper(f.more()), plural(len(mentions), "file mentions", "files mention"), what, bullets(mentions))
	}
	if len(names)+len(mentions) == 0 {
		return fmt.Sprintf("No file has %q in its name or its text (%s searched).", word, plural(f.Searched, "file", "files"))
	}
	var b strings.Builder
	b.WriteString("What a file is about I can only tell by words. ")
	if len(names) > 0 {
		fmt.Fprintf(&b, "%s%s %q in the name:\n%s\n", upper(byName.more()), plural(len(names), "file has", "files have"), word, bulletsUpTo(topicShown, names))
	} else {
		fmt.Fprintf(&b, "No file has %q in its name.\n", word)
	}
	if len(mentions) > 0 {
		fmt.Fprintf(&b, "%s%s it in the text:\n%s", upper(f.more()), plural(len(mentions), other(names)+"file has", other(names)+"files have"), bulletsUpTo(topicShown, mentions))
	}
	return strings.TrimRight(b.String(), "\n")
}

func other(names []string) string {
	if len(names) > 0 {
		return "other "
	}
	return ""
}

// topicShown is how many files are named where the match is only a guess.
const topicShown = 12
