package ui

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// contents returns the files of the pages whose names match a pattern.
func contents(t *testing.T, pattern string) map[string]string {
	t.Helper()
	names, err := fs.Glob(files, pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: no files (%v)", pattern, err)
	}
	all := map[string]string{}
	for _, name := range names {
		data, err := fs.ReadFile(files, name)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(data)
	}
	return all
}

var (
	usedKey    = regexp.MustCompile(`\bt "([a-z_]+\.[A-Za-z0-9_.]+)"`)
	usedCount  = regexp.MustCompile(`\btn "([a-z_]+\.[A-Za-z0-9_.]+)"`)
	usedPrefix = regexp.MustCompile(`\bprint "([a-z_]+\.[A-Za-z0-9_.]*)"`)
	inCode     = regexp.MustCompile(`"([a-z]+\.[a-z_][A-Za-z0-9_.]*)"`)
	verbs      = regexp.MustCompile(`%(\[\d\])?[a-z%]`)
)

// TestTexts finds texts that are missing in a language, and those that no page uses.
func TestTexts(t *testing.T) {
	table, err := readTexts(files)
	if err != nil {
		t.Fatal(err)
	}
	for key, text := range table {
		for _, language := range languages {
			if strings.TrimSpace(text[language]) == "" {
				t.Errorf("%s has no text in %s", key, language)
			}
			if strings.ContainsAny(text[language], "<>") {
				t.Errorf("%s has markup: %s", key, text[language])
			}
		}
		a, b := verbs.FindAllString(text["en"], -1), verbs.FindAllString(text["de"], -1)
		slices.Sort(a)
		slices.Sort(b)
		if !slices.Equal(a, b) {
			t.Errorf("%s: the languages take different values: %s and %s", key, text["en"], text["de"])
		}
		if len(text) != len(languages) {
			t.Errorf("%s has %d languages", key, len(text))
		}
	}
	used, prefixes := map[string]bool{}, []string{}
	for _, text := range contents(t, "templates/*.html") {
		for _, m := range usedKey.FindAllStringSubmatch(text, -1) {
			used[m[1]] = true
		}
		for _, m := range usedCount.FindAllStringSubmatch(text, -1) {
			used[m[1]+".one"], used[m[1]+".many"] = true, true
		}
		for _, m := range usedPrefix.FindAllStringSubmatch(text, -1) {
			prefixes = append(prefixes, m[1])
		}
	}
	for key := range used {
		if table[key] == nil {
			t.Errorf("a template uses %s, which the table lacks", key)
		}
	}
	for _, text := range sources(t) {
		for _, m := range inCode.FindAllStringSubmatch(text, -1) {
			used[m[1]] = true
			prefixes = append(prefixes, m[1])
		}
	}
	for key := range table {
		begins := func(prefix string) bool { return strings.HasPrefix(key, prefix) }
		if !used[key] && !slices.ContainsFunc(prefixes, begins) {
			t.Errorf("no page uses the text %s", key)
		}
	}
}

// sources returns the Go files of the package.
func sources(t *testing.T) map[string]string {
	t.Helper()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(name, "_test.go") {
			all[name] = string(data)
		}
	}
	return all
}

// TestN25_TemplatesHaveNoCode finds code, style and unescaped HTML in templates and modules.
func TestN25_TemplatesHaveNoCode(t *testing.T) {
	forbidden := regexp.MustCompile(`(?i)\sstyle=|\son[a-z]+=|javascript:|<script(?: type="module")?>|<style|<iframe|<object|<embed`)
	for name, text := range contents(t, "templates/*.html") {
		if found := forbidden.FindString(text); found != "" {
			t.Errorf("%s has %q", name, found)
		}
	}
	unsafe := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|\.style\b|setAttribute\("(style|on)`)
	for name, text := range contents(t, "assets/js/*.js") {
		for _, found := range unsafe.FindAllString(text, -1) {
			if name != "assets/js/dom.js" || found != "innerHTML" {
				t.Errorf("%s has %q", name, found)
			}
		}
	}
	makes := regexp.MustCompile(`template\.(HTML|JS|CSS|URL|HTMLAttr|JSStr|Srcset)\(`)
	for name, text := range sources(t) {
		if found := makes.FindString(text); found != "" && !slices.Contains([]string{"format.go", "markdown.go", "plot.go"}, name) {
			t.Errorf("%s has %q: only format.go, markdown.go and plot.go make HTML", name, found)
		}
	}
}

// TestStyle_Tokens keeps colors in the tokens.
func TestStyle_Tokens(t *testing.T) {
	color := regexp.MustCompile(`#[0-9a-fA-F]{3,8}\b|\b(rgba?|hsla?|oklch)\(`)
	use := regexp.MustCompile(`var\((--[a-z0-9-]+)`)
	all := contents(t, "assets/style/*.css")
	tokens := all["assets/style/10-tokens.css"]
	for name, text := range all {
		if name != "assets/style/10-tokens.css" {
			for _, found := range color.FindAllString(text, -1) {
				t.Errorf("%s has the color %s: use a token", name, found)
			}
		}
		for _, m := range use.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(tokens, m[1]+":") {
				t.Errorf("%s uses %s: not a token", name, m[1])
			}
		}
	}
}
