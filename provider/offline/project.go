package offline

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// licence shows the beginning of the licence file.
func licence(t *turn, _ clause, _ string) (string, bool) {
	f, done := t.search(arguments{"glob": "{LICENSE,LICENCE,COPYING,License,Licence,license,licence}*", "max_results": 20})
	switch {
	case !done:
		return "", false
	case f.problem != "":
		return cannot("look for a licence", f.problem), true
	case len(f.Matches) == 0:
		return "I found no file called LICENSE or COPYING here.", true
	}
	paths := f.paths()
	slices.SortStableFunc(paths, func(a, b string) int { return cmp.Compare(strings.Count(a, "/"), strings.Count(b, "/")) })
	d, done := t.read(paths[0])
	switch {
	case !done:
		return "", false
	case d.problem != "":
		return d.failure(), true
	}
	var head []string
	for _, line := range strings.Split(d.text, "\n") {
		if line = strings.TrimSpace(line); line != "" && len(head) < 3 {
			head = append(head, line)
		}
	}
	return fmt.Sprintf("%s begins:\n%s", d.path, fence(strings.Join(head, "\n"))), true
}

// manifests are the files in which projects name what they depend on.
var manifests = []struct {
	name string
	line *regexp.Regexp // of a dependency, with its name and version
}{
	{"go.mod", regexp.MustCompile(`^(?:require\s+)?\s*([\w.~-]+\.[\w.~-]+/\S+\s+v\S+)\s*$`)},
	{"package.json", regexp.MustCompile(`^\s*("(?:@[\w.-]+/)?[\w.-]+":\s*"[\^~><=*]*\d[^"]*"),?\s*$`)},
	{"requirements.txt", regexp.MustCompile(`^\s*([A-Za-z][\w.\[\]-]*.*)$`)},
	{"Cargo.toml", regexp.MustCompile(`^([\w-]+\s*=\s*(?:"[\d^~*][^"]*"|\{.*version.*\}))\s*$`)},
}

// dependencies lists what the manifest of the project names.
func dependencies(t *turn, _ clause, _ string) (string, bool) {
	l, done := t.folder("")
	switch {
	case !done:
		return "", false
	case l.problem != "":
		return cannot("list this folder", l.problem), true
	}
	for _, m := range manifests {
		if !slices.ContainsFunc(l.Entries, func(e entry) bool { return e.Name == m.name }) {
			continue
		}
		d, done := t.read(m.name)
		switch {
		case !done:
			return "", false
		case d.problem != "":
			return d.failure(), true
		}
		var items []string
		for _, line := range strings.Split(d.text, "\n") {
			if found := m.line.FindStringSubmatch(strings.TrimRight(line, "\r")); found != nil {
				items = append(items, strings.TrimSpace(found[1]))
			}
		}
		if len(items) == 0 {
			return fmt.Sprintf("%s names no direct dependency that I can read.", m.name), true
		}
		return fmt.Sprintf("%s names %s:\n%s", m.name, plural(len(items), "direct dependency", "direct dependencies"), bullets(items)), true
	}
	return "I found no go.mod, package.json, requirements.txt or Cargo.toml in this folder.", true
}

// goVersion reads the go line of go.mod.
func goVersion(t *turn, _ clause, _ string) (string, bool) {
	f, done := t.search(arguments{"pattern": `^(go|toolchain) \S+`, "path": "go.mod"})
	switch {
	case !done:
		return "", false
	case f.problem != "":
		return cannot("look into go.mod", f.problem), true
	case len(f.Matches) == 0:
		return "go.mod names no Go version.", true
	}
	return "go.mod says:\n" + bullets(lines(f)), true
}

// fileKinds counts the files by the end of their names.
func fileKinds(t *turn, c clause, _ string) (string, bool) {
	f, done := t.search(arguments{"glob": "*", "path": c.folder, "max_results": 1000})
	switch {
	case !done:
		return "", false
	case f.problem != "":
		return cannot("look for files", f.problem), true
	}
	counts := map[string]int{}
	for _, p := range f.paths() {
		counts[cmp.Or(path.Ext(p), "without an ending")]++
	}
	type kind struct {
		name string
		n    int
	}
	var all []kind
	for name, n := range counts {
		all = append(all, kind{name, n})
	}
	slices.SortFunc(all, func(a, b kind) int { return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.name, b.name)) })
	var items []string
	for _, k := range all {
		items = append(items, fmt.Sprintf("%s: %d", k.name, k.n))
	}
	return fmt.Sprintf("%s%s %s, by the ends of their names:\n%s", upper(f.more()), plural(len(f.paths()), "file", "files"), c.where(), bullets(items[:min(len(items), 12)])), true
}

// howTo shows the lines of the project's own texts that speak of something.
func howTo(t *turn, c clause, _ string) (string, bool) {
	what := bare(isHowTo.FindStringSubmatch(c.text)[1])
	words := strings.Fields(what)
	if len(words) == 0 || len(words) > 6 {
		return help(t), true
	}
	e := make([]string, 0, len(words))
	for _, w := range words {
		if w = strings.Trim(w, endMarks); len(w) > 2 && !slices.Contains([]string{"the", "and", "for", "with", "this", "project", "use", "start", "get", "das", "die", "der"}, strings.ToLower(w)) {
			e = append(e, `\b`+regexp.QuoteMeta(stem(w)))
		}
	}
	if len(e) == 0 {
		return help(t), true
	}
	f, done := t.search(arguments{"pattern": strings.Join(e, "|"), "glob": "{README*,CONTRIBUTING*,INSTALL*,Makefile}", "case_insensitive": true, "max_results": 40})
	switch {
	case !done:
		return "", false
	case f.problem != "":
		return cannot("search", f.problem), true
	case len(f.Matches) == 0:
		return fmt.Sprintf("README, CONTRIBUTING and Makefile say nothing about %q that rules could find.", what), true
	}
	return fmt.Sprintf("I cannot explain it, but these lines speak of %q:\n%s", what, bullets(lines(f))), true
}

var (
	beforePackage = pattern(`([\w-]+)\s+(?:package|paket)\b`)
	afterPackage  = pattern(`\b(?:package|paket)\s+([\w-]+)`)
	noPackage     = pattern(`^(?:the|this|that|which|what|does|is|a|an|go|explain|describe|about|do|for|das|dieses|tut|macht)$`)
)

// packageName is the package that a clause asks about; "" = none.
func packageName(c clause) string {
	for _, rule := range []*regexp.Regexp{beforePackage, afterPackage} {
		if m := rule.FindStringSubmatch(c.text); m != nil && !noPackage.MatchString(m[1]) {
			return m[1]
		}
	}
	return ""
}

// aboutPackage shows what a Go package says of itself.
func aboutPackage(t *turn, c clause, _ string) (string, bool) {
	name := packageName(c)
	f, done := t.search(arguments{"pattern": `^// (Package|Command) ` + regexp.QuoteMeta(name) + `\b`, "glob": "*.go", "max_results": 10})
	switch {
	case !done:
		return "", false
	case f.problem != "":
		return cannot("search", f.problem), true
	case len(f.Matches) == 0:
		return fmt.Sprintf("I found no Go package %q that says what it does.", name), true
	}
	d, done := t.read(f.Matches[0].Path)
	switch {
	case !done:
		return "", false
	case d.problem != "":
		return d.failure(), true
	}
	var comment []string
	all := strings.Split(d.text, "\n")
	for _, line := range all[min(f.Matches[0].Line-1, len(all)):] {
		if !strings.HasPrefix(line, "//") {
			break
		}
		comment = append(comment, strings.TrimSpace(strings.TrimPrefix(line, "//")))
	}
	return fmt.Sprintf("%s says:\n%s", d.path, fence(clip(strings.Join(comment, "\n")))), true
}
