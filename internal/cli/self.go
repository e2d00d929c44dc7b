package cli

import (
	"path/filepath"
	"regexp"
	"strings"

	"github.com/toolcrib/toolcrib/guard"
)

// self begins the command lines that are shown: with the flags that say where this
// process looked, so that what is pasted looks there, too, from any folder.
func (a *app) self() string {
	text := "toolcrib"
	for _, f := range []struct{ name, path string }{{"--config", a.configFlag}, {"--data-dir", a.dataFlag}} {
		if f.path == "" {
			continue
		}
		path := f.path
		if abs, err := filepath.Abs(path); err == nil {
			path = abs
		}
		text += " " + f.name + " " + guard.Visible(shellWord(path))
	}
	return text
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// shellWord quotes a text so that a POSIX shell reads it as one word.
func shellWord(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
