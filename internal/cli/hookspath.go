package cli

import (
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/toolcrib/toolcrib/internal/standin"
)

const (
	maxGitConfig = 1 << 20 // bytes of a repository's configuration that are read
	maxGitUp     = 64      // folders up in which a repository is looked for
)

// hooksPaths are the folders from which git takes its hooks in the repository around a
// workspace, where its own configuration names others than .git/hooks (core.hooksPath of
// git-config(1)). What it includes, and the user's own configuration, lies elsewhere and
// is not read.
func hooksPaths(workspace string) []string {
	dir := resolved(workspace)
	for range maxGitUp {
		if files := gitConfigs(dir); len(files) > 0 {
			var paths []string
			for _, file := range files {
				for _, value := range hooksPathOf(readBounded(file)) {
					paths = append(paths, hooksFolder(dir, value))
				}
			}
			return paths
		}
		if filepath.Dir(dir) == dir {
			break
		}
		dir = filepath.Dir(dir)
	}
	return nil
}

// gitConfigs are the configurations of the repository whose files lie in dir; none =
// there is none.
func gitConfigs(dir string) []string {
	git := filepath.Join(dir, ".git")
	info, err := os.Stat(git)
	if err != nil || standin.Is(git) {
		return nil
	}
	common := git
	if !info.IsDir() { // a further work tree, or a submodule
		to, ok := strings.CutPrefix(strings.TrimSpace(readBounded(git)), "gitdir:")
		if !ok {
			return nil
		}
		git = below(dir, strings.TrimSpace(to))
		common = git
	}
	if to := strings.TrimSpace(readBounded(filepath.Join(git, "commondir"))); to != "" {
		common = below(git, to)
	}
	return []string{filepath.Join(common, "config"), filepath.Join(git, "config.worktree")}
}

// below is a path as it is meant in dir.
func below(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

func hooksFolder(dir, value string) string {
	if rest, ok := strings.CutPrefix(value, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	return below(dir, value)
}

// readBounded is the beginning of a file; "" where it cannot be read.
func readBounded(path string) string {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxGitConfig))
	if err != nil {
		return ""
	}
	return string(data)
}

// hooksPathOf are the values of core.hooksPath in a configuration of git. All of them
// count, not the last alone.
func hooksPathOf(text string) []string {
	var values []string
	core := false
	text = strings.NewReplacer("\r\n", "\n", "\\\r\n", "", "\\\n", "").Replace(text)
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			section, rest, ok := strings.Cut(line[1:], "]")
			if !ok {
				continue
			}
			core, line = strings.EqualFold(strings.TrimSpace(section), "core"), strings.TrimSpace(rest)
		}
		key, value, ok := strings.Cut(line, "=")
		if !core || !ok || !strings.EqualFold(strings.TrimSpace(key), "hooksPath") {
			continue
		}
		if value = gitValue(value); value != "" {
			values = append(values, value)
		}
	}
	return values
}

// gitValue reads a value: what is quoted stands for itself, and a comment ends it.
func gitValue(raw string) string {
	var b strings.Builder
	quoted, escaped := false, false
	kept := 0 // bytes that count even if they are spaces at the end
read:
	for _, r := range strings.TrimSpace(raw) {
		switch {
		case escaped:
			b.WriteRune(r)
			escaped, kept = false, b.Len()
			continue
		case r == '\\':
			escaped = true
			continue
		case r == '"':
			quoted, kept = !quoted, b.Len()
			continue
		case !quoted && (r == '#' || r == ';'):
			break read
		}
		b.WriteRune(r)
		if quoted {
			kept = b.Len()
		}
	}
	text := b.String()
	return text[:kept] + strings.TrimRight(text[kept:], " \t")
}
