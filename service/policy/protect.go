package policy

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/standin"
	"github.com/toolcrib/toolcrib/internal/trust"
)

// steering returns the names of files and folders that start programs or configure agents other than toolcrib: those of
// git, editors and other agents, and the notes that they read.
func steering() []string {
	return []string{
		".git", ".githooks", ".husky", ".envrc", ".mcp.json", config.FileName, ".toolcrib", ".agents", ".claude", ".codex",
		".cursor", ".cursorrules", ".devcontainer", ".devcontainer.json", ".gemini", ".idea", ".vscode", ".windsurf",
		".windsurfrules", ".zed", "AGENTS.md", "CLAUDE.md", "CLAUDE.local.md", "GEMINI.md", "copilot-instructions.md",
	}
}

// protectSteering protects those names and the configured notes (notes.files) everywhere. Editors and agents also keep
// work trees in folders with such a name. If the workspace is in one, the name is protected only at the root of the
// workspace; otherwise nothing could be written.
func protectSteering(p *gate.Protected, workspace, real string, notes []string) {
	around := strings.FieldsFunc(filepath.ToSlash(workspace+"/"+real),
		func(r rune) bool { return r == '/' })
	names := steering()
	for _, note := range notes {
		names = append(names, path.Base(filepath.ToSlash(note)))
	}
	p.Names = make([]string, 0, len(names))
	for _, name := range names {
		switch {
		case name == "." || name == ".." || name == "/":
		case name != ".git" && slices.ContainsFunc(around, func(part string) bool { return strings.EqualFold(part, name) }):
			p.Write = append(p.Write, filepath.Join(workspace, name))
		default:
			p.Names = append(p.Names, name)
		}
	}
}

// protectHooks protects the folders of git hooks in the workspace. If the workspace is such a folder, it protects the
// hooks in it.
func protectHooks(p *gate.Protected, workspace, real string, seen Paths) {
	for _, folder := range hooksPaths(real, seen) {
		switch to := gate.Resolved(folder); {
		case !insideReal(to, real):
		case to != real:
			p.Write = append(p.Write, folder)
		default:
			for _, name := range gitHooks() {
				p.Write = append(p.Write, filepath.Join(workspace, name))
			}
		}
	}
}

// gitHooks returns the names of the programs that git runs (githooks(5)).
func gitHooks() []string {
	return []string{
		"applypatch-msg", "commit-msg", "fsmonitor-watchman", "post-applypatch", "post-checkout", "post-commit",
		"post-index-change", "post-merge", "post-receive", "post-rewrite", "post-update", "pre-applypatch", "pre-auto-gc",
		"pre-commit", "pre-merge-commit", "pre-push", "pre-rebase", "pre-receive", "prepare-commit-msg", "proc-receive",
		"push-to-checkout", "reference-transaction", "sendemail-validate", "update",
	}
}

// Protection returns the paths that no tool may touch. Files that configure toolcrib or programs next to it are never
// written; the data folder is neither read nor written.
func (p *Policy) Protection(workspace string, seen Paths) (gate.Protected, error) {
	if seen == nil {
		seen = Paths{}
	}
	free := filepath.Join(p.env.DataDir, "workspaces")
	out := gate.Protected{
		Touch: []string{p.env.DataDir}, Except: []string{free}, Write: []string{filepath.Join(workspace, "skills")},
	}
	real, data := seen.resolved(workspace), seen.resolved(p.env.DataDir)
	protectSteering(&out, workspace, real, p.env.Config.ProtectedNotes())
	protectHooks(&out, workspace, real, seen)
	keys, err := p.env.KeysFile()
	if err != nil {
		return gate.Protected{}, err
	}
	if !insideReal(seen.resolved(keys), data) {
		out.Touch = append(out.Touch, keys)
	}
	for file := range p.env.Config.Files() {
		whole, err := filepath.Abs(file)
		if err != nil {
			return gate.Protected{}, err
		}
		out.Write = append(out.Write, whole)
	}
	if folder := config.UserFolder(os.Getenv); folder != "" {
		out.Write = append(out.Write, folder)
	}
	if record := trust.DefaultPath(os.Getenv); record != "" {
		out.Write = append(out.Write, filepath.Dir(record))
	}
	for _, dir := range p.env.Config.Skills.Dirs {
		abs, err := dir.Resolve(p.env.Resolver())
		if err != nil {
			return gate.Protected{}, err
		}
		out.Write = append(out.Write, abs)
	}
	for _, tree := range []string{"/proc", "/sys", "/dev"} {
		if runtime.GOOS != "windows" && insideReal(real, seen.resolved(tree)) {
			return gate.Protected{}, toolcrib.Errorf(toolcrib.CodeBadRequest,
				"the workspace %s lies in %s, which no tool may touch; start in another folder", workspace, tree)
		}
	}
	if insideReal(real, data) && !insideReal(real, seen.resolved(free)) {
		return gate.Protected{}, toolcrib.Errorf(toolcrib.CodeBadRequest,
			"the workspace %s lies in the data folder %s, which no tool may touch; choose another of the two", workspace,
			p.env.DataDir)
	}
	return out, nil
}

// Paths caches what is at paths while a run is prepared, so that each of them, and each folder that several have in
// common, is looked up once. A nil Paths keeps nothing.
type Paths map[string]found

// found is what is at a path.
type found int

const (
	linked found = iota // it may lead elsewhere
	there               // a file or a folder, free of symbolic links
	absent              // nothing, nor a symbolic link on the way
)

// resolved returns the same as [gate.Resolved].
func (l Paths) resolved(path string) string {
	if l.free(path) {
		return filepath.Clean(path)
	}
	return gate.Resolved(path)
}

// free reports whether a path is free of symbolic links.
func (l Paths) free(path string) bool { return l.at(path) != linked }

func (l Paths) at(path string) found {
	path = filepath.Clean(path)
	seen, known := l[path]
	if known {
		return seen
	}
	if dir := filepath.Dir(path); dir != path {
		if seen = l.at(dir); seen == there {
			info, err := os.Lstat(path)
			if errors.Is(err, fs.ErrNotExist) {
				seen = absent
			} else if err != nil || !info.IsDir() && !info.Mode().IsRegular() {
				seen = linked
			}
		}
	} else if runtime.GOOS != "windows" { // there a path has several forms without a link
		seen = there
	}
	if l != nil {
		l[path] = seen
	}
	return seen
}

// Inside reports whether path is dir or below it. Links are resolved as far as they exist.
func Inside(path, dir string) bool { return insideReal(gate.Resolved(path), gate.Resolved(dir)) }

// insideReal is [Inside] for paths without links.
func insideReal(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

const (
	maxGitConfig = 1 << 20 // most bytes of a repository's configuration that are read
	maxGitUp     = 64      // most parent folders in which a repository is looked for
)

// hooksPaths returns the folders of git hooks that the configuration of the repository around a folder names instead of
// .git/hooks (core.hooksPath of git-config(1)). It does not read included files and the user's own configuration, which
// are elsewhere.
func hooksPaths(dir string, seen Paths) []string {
	for range maxGitUp {
		if files := gitConfigs(dir, seen); len(files) > 0 {
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

// gitConfigs returns the configuration files of the repository in dir, or nil if it is not one.
func gitConfigs(dir string, seen Paths) []string {
	git := filepath.Join(dir, ".git")
	if seen.at(git) == absent {
		return nil
	}
	info, err := os.Stat(git)
	if err != nil || standin.Is(git) {
		return nil
	}
	common := git
	if !info.IsDir() { // an additional work tree, or a submodule
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

// below returns the path that path means in dir.
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

// readBounded returns the beginning of a file, or "" if it cannot be read.
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

// hooksPathOf returns the values of core.hooksPath in a git configuration. All of them are protected, not only the
// last.
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

// gitValue returns a value without quotes, escapes and comment.
func gitValue(raw string) string {
	var b strings.Builder
	quoted, escaped := false, false
	kept := 0 // bytes to keep even if they end with spaces
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
