package ui

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"path"
	"strings"
)

//go:embed templates/*.html texts assets
var files embed.FS

// templates are the pages by language and name. Each has the layout, the parts (_*.html) and its own file, which
// defines "title" and "main".
type templates struct {
	of map[string]map[string]*template.Template
}

// readTemplates parses templates/*.html for each language.
func readTemplates(from fs.FS, t texts, a *assets) (*templates, error) {
	shared, err := fs.Glob(from, "templates/_*.html")
	if err != nil {
		return nil, err
	}
	names, err := fs.Glob(from, "templates/[a-z]*.html")
	if err != nil {
		return nil, err
	}
	all := &templates{of: map[string]map[string]*template.Template{}}
	for _, language := range languages {
		base, err := template.New("").Option("missingkey=error").Funcs(functions(language, t, a)).ParseFS(from, shared...)
		if err != nil {
			return nil, err
		}
		all.of[language] = map[string]*template.Template{}
		for _, name := range names {
			one, err := base.Clone()
			if err == nil {
				one, err = one.ParseFS(from, name)
			}
			if err != nil {
				return nil, err
			}
			all.of[language][strings.TrimSuffix(path.Base(name), ".html")] = one
		}
	}
	return all, nil
}

// execute returns the part of a page with its data.
func (t *templates) execute(language, name, part string, data any) ([]byte, error) {
	one := t.of[language][name]
	if one == nil {
		return nil, fmt.Errorf("there is no template %s", name)
	}
	var b bytes.Buffer
	err := one.ExecuteTemplate(&b, part, data)
	return b.Bytes(), err
}
