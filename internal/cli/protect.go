package cli

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/store"
)

// steering returns the names of files and folders that start programs or configure agents
// beside toolcrib: git's, editors' and other agents', with the notes that they read.
func steering() []string {
	return []string{
		".git", ".githooks", ".husky", ".envrc", ".mcp.json", config.FileName, ".toolcrib", ".agents", ".claude", ".codex",
		".cursor", ".cursorrules", ".devcontainer", ".devcontainer.json", ".gemini", ".idea", ".vscode", ".windsurf", ".windsurfrules",
		".zed", "AGENTS.md", "CLAUDE.md", "CLAUDE.local.md", "GEMINI.md", "copilot-instructions.md",
	}
}

// protectSteering protects those names and the configured notes (notes.files) everywhere.
// Editors and agents keep work trees in folders of such a name, too: where the workspace
// itself lies in one, it is protected at the workspace's own root, for else nothing could
// be written at all.
func protectSteering(p *gate.Protected, workspace string, notes []string) {
	around := strings.FieldsFunc(filepath.ToSlash(workspace+"/"+resolved(workspace)), func(r rune) bool { return r == '/' })
	names := steering()
	for _, note := range notes {
		names = append(names, path.Base(filepath.ToSlash(note)))
	}
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

// protectHooks protects the folders of git's hooks that lie in the workspace; where that
// is the workspace itself, the hooks in it.
func protectHooks(p *gate.Protected, workspace string) {
	for _, folder := range hooksPaths(workspace) {
		switch {
		case !inside(folder, workspace):
		case resolved(folder) != resolved(workspace):
			p.Write = append(p.Write, folder)
		default:
			for _, name := range gitHooks() {
				p.Write = append(p.Write, filepath.Join(workspace, name))
			}
		}
	}
}

// gitHooks are the programs that git runs (githooks(5)).
func gitHooks() []string {
	return []string{
		"applypatch-msg", "commit-msg", "fsmonitor-watchman", "post-applypatch", "post-checkout", "post-commit", "post-index-change",
		"post-merge", "post-receive", "post-rewrite", "post-update", "pre-applypatch", "pre-auto-gc", "pre-commit", "pre-merge-commit",
		"pre-push", "pre-rebase", "pre-receive", "prepare-commit-msg", "proc-receive", "push-to-checkout", "reference-transaction",
		"sendemail-validate", "update",
	}
}

// protection is what no tool may touch (contract §11): what steers toolcrib or its
// neighbours is never written, the data folder neither read nor written.
func (a *app) protection(workspace string) (gate.Protected, error) {
	c, err := a.configuration()
	if err != nil {
		return gate.Protected{}, err
	}
	data, err := a.dataDir()
	if err != nil {
		return gate.Protected{}, err
	}
	p := gate.Protected{
		Touch:  []string{data},
		Except: []string{filepath.Join(data, "workspaces")},
		Write:  []string{filepath.Join(workspace, "skills")},
	}
	protectSteering(&p, workspace, c.Notes.Files)
	protectHooks(&p, workspace)
	kept, err := a.svc()
	if err != nil {
		return gate.Protected{}, err
	}
	keys, err := kept.KeysFile()
	if err != nil {
		return gate.Protected{}, err
	}
	if !inside(keys, data) {
		p.Touch = append(p.Touch, keys)
	}
	if file, err := filepath.Abs(c.File()); c.File() != "" {
		if err != nil {
			return gate.Protected{}, err
		}
		p.Write = append(p.Write, file)
	}
	if folder := config.UserFolder(os.Getenv); folder != "" {
		p.Write = append(p.Write, folder)
	}
	if store, err := a.trustStore(); err == nil {
		p.Write = append(p.Write, filepath.Dir(store.Path()))
	}
	for _, dir := range c.Skills.Dirs {
		abs, err := dir.Resolve(a.resolver())
		if err != nil {
			return gate.Protected{}, err
		}
		p.Write = append(p.Write, abs)
	}
	for _, tree := range []string{"/proc", "/sys", "/dev"} {
		if runtime.GOOS != "windows" && inside(workspace, tree) {
			return gate.Protected{}, usagef("the workspace %s lies in %s, which no tool may touch; start in another folder", workspace, tree)
		}
	}
	if inside(workspace, data) && !inside(workspace, filepath.Join(data, "workspaces")) {
		return gate.Protected{}, usagef("the workspace %s lies in the data folder %s, which no tool may touch; choose another of the two", workspace, data)
	}
	return p, nil
}

// protectedChanged tells the person that a command changed what steers toolcrib or
// its neighbours, and ends the trust in the folders around it (design.md §7). What was
// renamed afterwards is only told.
func (a *app) protectedChanged(paths, aside []string) {
	out := a.besides()
	tell := func(format string, args ...any) {
		fmt.Fprintf(out, "%s %s\n", a.style.Red("!"), guard.Visible(fmt.Sprintf(format, args...)))
	}
	if len(aside) > 0 {
		tell("a command made files that would steer toolcrib or programs beside it; they were renamed: %s", pathTexts(aside))
	}
	if len(paths) == 0 {
		return
	}
	names := pathTexts(paths)
	tell("a command changed files that steer toolcrib or programs beside it: %s; look at them before you go on", names)
	trusted, err := a.trustStore()
	if err != nil {
		return // there is no record, so nothing is trusted
	}
	folders, err := trusted.RevokeAround(paths...)
	if err != nil {
		tell("the trust in their folder could not be ended: %v", err)
	}
	for _, dir := range folders {
		// The call may have been given up by now; what it did is written down.
		a.recordTrust(context.Background(), store.SystemTrustRevoked, dir, "a command changed "+names)
		tell("%s is no longer trusted; once you have looked at it: toolcrib trust %s", pathText(dir), pathText(dir))
	}
}

func pathTexts(paths []string) string {
	texts := make([]string, len(paths))
	for i, path := range paths {
		texts[i] = pathText(path)
	}
	return strings.Join(texts, ", ")
}

// inside reports whether path is dir or lies below it; links are resolved as far as
// they exist.
func inside(path, dir string) bool {
	rel, err := filepath.Rel(resolved(dir), resolved(path))
	return err == nil && filepath.IsLocal(rel)
}

func resolved(path string) string {
	rest := ""
	for at := filepath.Clean(path); ; at = filepath.Dir(at) {
		if real, err := filepath.EvalSymlinks(at); err == nil {
			return filepath.Join(real, rest)
		}
		if filepath.Dir(at) == at {
			return filepath.Clean(path)
		}
		rest = filepath.Join(filepath.Base(at), rest)
	}
}
