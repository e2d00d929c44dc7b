package ui

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// texts is the table of texts: by key, then by language. A key is the name of a file of texts/, a dot, and the name in
// that file.
type texts map[string]map[string]string

// readTexts reads texts/*.json.
func readTexts(from fs.FS) (texts, error) {
	names, err := fs.Glob(from, "texts/*.json")
	if err != nil {
		return nil, err
	}
	all := texts{}
	for _, name := range names {
		data, err := fs.ReadFile(from, name)
		if err != nil {
			return nil, err
		}
		var some map[string]map[string]string
		if err := json.Unmarshal(data, &some); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		prefix := strings.TrimSuffix(path.Base(name), ".json")
		for key, text := range some {
			all[prefix+"."+key] = text
		}
	}
	return all, nil
}

// text returns a text in a language, with its arguments in place. Templates have it as "t". An unknown key is shown as
// it is; a test looks for those.
func (t texts) text(language, key string, args ...any) string {
	format, ok := t[key][language]
	if !ok {
		return key
	}
	if len(args) == 0 {
		return format
	}
	return fmt.Sprintf(format, args...)
}

// count returns the text for a number: that of KEY.one for 1, of KEY.many for all others. Templates have it as "tn".
func (t texts) count(language, key string, n int) string {
	if n == 1 {
		return t.text(language, key+".one", n)
	}
	return t.text(language, key+".many", n)
}
