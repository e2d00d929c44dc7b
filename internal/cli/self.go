package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/toolcrib/toolcrib/guard"
)

// self begins the command lines that are shown: with the flags that say where this
// process looked, so that what is pasted looks there, too, from any folder.
func (a *app) self() string {
	text := program()
	for _, f := range []struct{ name, path string }{
		{"--config", a.configFlag}, {"--data-dir", a.dataFlag}, {"--server", a.serverFlag}, {"--token-file", a.tokenOf()},
	} {
		if f.path == "" || f.path == "-" {
			continue
		}
		path := f.path
		if abs, err := filepath.Abs(path); err == nil && f.name != "--server" {
			path = abs
		}
		text += " " + f.name + " " + guard.Visible(shellWord(path))
	}
	return text
}

// tokenOf is the file of the token by which a server is asked.
func (a *app) tokenOf() string {
	if a.remote == nil {
		return ""
	}
	return a.tokenFlag
}

// program is how this program is called: by its name, or as go run calls it in a clone.
func program() string {
	const source = "./cmd/toolcrib"
	path, err := os.Executable()
	if err == nil && strings.Contains(filepath.ToSlash(path), "/exe/") && strings.Contains(path, "go-build") {
		if _, err := os.Stat(source + "/main.go"); err == nil {
			return "go run " + source
		}
	}
	return "toolcrib"
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// shellWord quotes a text so that a POSIX shell reads it as one word.
func shellWord(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// inHome writes a path as people do: what is in their home with ~.
func inHome(path string) string {
	home, err := os.UserHomeDir()
	if rest, ok := strings.CutPrefix(path, home+string(filepath.Separator)); err == nil && home != "" && ok {
		return filepath.Join("~", rest)
	}
	return path
}
