package policy

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	udiff "github.com/aymanbagabas/go-udiff"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/project"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/store"
)

// Folder has the files in a folder that configure toolcrib. They are used once a person has reviewed exactly their
// content.
type Folder struct {
	Dir     string       `json:"dir"` // absolute
	Trusted bool         `json:"trusted"`
	Digest  string       `json:"digest,omitempty"` // of all files that exist
	Files   []trust.File `json:"files,omitempty"`  // that exist
	// Differs says how its configuration differs from the user's.
	Differs []string `json:"differs,omitempty"`

	Named string `json:"-"` // path as the user gave it

	all   []trust.File // includes absent files
	store trust.Store
}

// LookAt reads the files in a folder that configure toolcrib, or those of them with the given names.
func LookAt(trusted trust.Store, dir string, names ...string) (*Folder, error) {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, toolcrib.Errorf(toolcrib.CodeNotFound, "%s is not a folder", dir)
	}
	files, err := trusted.Check(dir, names...)
	if err != nil {
		return nil, err
	}
	f := &Folder{Dir: wholePath(dir), Trusted: true, Digest: trust.Digest(files), Named: dir, all: files, store: trusted}
	for _, file := range files {
		if file.State != trust.Absent {
			last, _ := trusted.LastTrusted(dir, file.Name)
			file.Before, f.Trusted = last.Files, f.Trusted && file.State == trust.Trusted
			f.Files = append(f.Files, file)
		}
		if content := file.Content[config.FileName]; file.Name == config.FileName {
			f.Differs = config.Changes(file.Path, content, config.Own(os.Getenv))
		}
	}
	f.Trusted = f.Trusted && len(f.Files) > 0
	return f, nil
}

// Unreviewed returns the folders with files that runs in a workspace would use if the user trusted them: the folder of
// the project's configuration, the workspace, and the root of its repository. err says what could not be read.
func (p *Policy) Unreviewed(workspace string) (list []*Folder, err error) {
	var dirs []string
	own, workspace := realPath(p.env.Source.Folder), realPath(workspace)
	found, findErr := project.Find(workspace)
	root := cmp.Or(found.Root, workspace)
	seen := findErr == nil && p.hasSeenNotes(found) // those of the whole repository are then used
	home, _ := os.UserHomeDir()                     // if it is unknown, nothing is the user's own
	for _, dir := range []string{own, workspace, root} {
		if slices.Contains(dirs, dir) || dir == config.UserFolder(os.Getenv) {
			continue
		}
		dirs = append(dirs, dir)
		names := slices.DeleteFunc(trust.Names(), func(name string) bool {
			if dir == home && strings.HasPrefix(name, ".claude/") {
				return true // the user's own, which need no trust
			}
			switch {
			case name == config.FileName:
				return dir != own || !p.env.Source.NeedsTrust()
			case name == ".mcp.json":
				return dir != own
			case slices.Contains(trust.CommandFolders(), name):
				return dir != workspace
			case slices.Contains(trust.SkillFolders(), name):
				return !p.readsSkills(filepath.Join(dir, filepath.FromSlash(name)))
			}
			return dir != root && (dir != workspace || seen) || !slices.Contains(p.env.Config.Notes.Files, name)
		})
		if len(names) == 0 {
			continue
		}
		f, lookErr := LookAt(p.env.TrustStore(), dir, names...)
		if lookErr == nil && len(f.Files) > 0 {
			lookErr = f.Trustable()
		}
		unused := func(file trust.File) bool {
			return file.State == trust.Untrusted || // notes that have changed are used
				file.State == trust.Changed && !slices.Contains(p.env.Config.Notes.Files, file.Name)
		}
		if err = errors.Join(err, lookErr); lookErr == nil && slices.ContainsFunc(f.Files, unused) {
			list = append(list, f)
		}
	}
	return list, err
}

// readsSkills reports whether a folder is one of skills.dirs that needs trust.
func (p *Policy) readsSkills(folder string) bool {
	return slices.ContainsFunc(p.env.Config.Skills.Dirs, func(v config.Value) bool {
		path, err := v.Resolve(config.Resolver{})
		return err == nil && workspaceOf(path) != "" && realPath(path) == realPath(folder)
	})
}

// realPath returns the absolute path of a folder without symbolic links, or with them if they cannot be resolved.
func realPath(dir string) string {
	whole := wholePath(dir)
	if real, err := filepath.EvalSymlinks(whole); err == nil {
		return real
	}
	return whole
}

// Decline records that the user does not trust what was read.
func (f *Folder) Decline() error { return f.store.Decline(f.Dir, f.Digest) }

// Declined reports whether the user has declined to trust what was read.
func (f *Folder) Declined() bool { return f.store.Declined(f.Dir, f.Digest) }

// Trustable returns an error if the folder has no such files, or one that cannot be read.
func (f *Folder) Trustable() error {
	if len(f.Files) == 0 {
		return toolcrib.Errorf(toolcrib.CodeNotFound, "%s brings no toolcrib.yaml, .mcp.json, skills, commands or notes "+
			"(AGENTS.md, CLAUDE.md)", f.Named)
	}
	for _, file := range f.Files {
		if file.Problem != "" {
			return fmt.Errorf("%s in %s cannot be trusted: it %s", file.Name, f.Named, file.Problem)
		}
	}
	return nil
}

// Trust trusts the content that was read, even if the files have changed since. digest is that of the reviewed content.
func (f *Folder) Trust(digest string) error {
	if digest != f.Digest {
		return toolcrib.Errorf(toolcrib.CodeConflict, "what %s brings has the digest %s now, not %s; review it again",
			f.Named, f.Digest, digest)
	}
	if err := f.store.TrustFiles(f.Named, f.all); err != nil {
		return err
	}
	f.Trusted = true
	return nil
}

// TrustWritten trusts a file that was just written for its user if it still has that content. It trusts no other file
// of the folder.
func TrustWritten(path string, content []byte) (*Folder, error) {
	f, err := LookAt(env.TrustStore(), filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	f.Files = slices.DeleteFunc(f.Files, func(file trust.File) bool {
		return file.Name != filepath.Base(path) || file.Hash != trust.Hash(content)
	})
	if len(f.Files) == 0 {
		return nil, toolcrib.Errorf(toolcrib.CodeConflict, "%s was changed by something else in the meantime", path)
	}
	return f, f.store.TrustFiles(f.Named, f.Files)
}

// TrustedFolders returns the folders that the user trusts.
func TrustedFolders(trusted trust.Store) ([]Folder, error) {
	dirs, err := trusted.Folders()
	folders := make([]Folder, len(dirs))
	for i, dir := range dirs {
		folders[i] = Folder{Dir: dir, Trusted: true}
	}
	return folders, err
}

// Distrust removes the trust in a folder.
func Distrust(trusted trust.Store, dir string) (*Folder, error) {
	err := trusted.Revoke(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, toolcrib.Errorf(toolcrib.CodeNotFound, "%s is not trusted", dir)
	}
	return &Folder{Dir: wholePath(dir)}, err
}

// wholePath returns the absolute path of a folder, or the path as it is.
func wholePath(dir string) string {
	if whole, err := filepath.Abs(dir); err == nil {
		return whole
	}
	return dir
}

// RecordTrust records in the audit log that a folder is trusted, or no longer. If that fails, a notice says so; the
// trust stays as it is.
func (p *Policy) RecordTrust(ctx context.Context, who toolcrib.Principal, kind toolcrib.Kind, f *Folder, why string) {
	changed := []store.FileChanged{}
	for _, file := range f.Files {
		changed = append(changed, store.FileChanged{Path: file.Path, Hash: file.Hash, Why: why})
	}
	if len(changed) == 0 {
		changed = append(changed, store.FileChanged{Path: f.Dir, Why: why})
	}
	err := p.env.Open(ctx)
	if err == nil {
		err = p.env.RecordChanged(ctx, who, kind, changed...)
	}
	if err != nil {
		p.env.Notice("not recorded in the audit log: " + err.Error())
	}
}

// Changes are the differences between files now and at their last review.
type Changes struct {
	Added   []string `json:"added,omitempty"`
	Removed []string `json:"removed,omitempty"`
	Changed []string `json:"changed,omitempty"`
	Diff    string   `json:"diff,omitempty"` // of all files

	Files []FileChange `json:"-"`
}

// FileChange is the change of one file.
type FileChange struct {
	What string // added | removed | changed
	Name string
	Diff string
}

// ChangesOf returns the differences of contents. If before is nil, all files are new.
func ChangesOf(before, now map[string][]byte) *Changes {
	c := &Changes{}
	names := map[string][]byte{}
	maps.Copy(names, before)
	maps.Copy(names, now)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		old, was := before[name]
		content, is := now[name]
		one := FileChange{What: "changed", Name: name}
		switch {
		case !was:
			one.What, c.Added = "added", append(c.Added, name)
		case !is:
			one.What, c.Removed = "removed", append(c.Removed, name)
		case bytes.Equal(old, content):
			continue
		default:
			c.Changed = append(c.Changed, name)
		}
		one.Diff = difference(one, old, content)
		c.Files, c.Diff = append(c.Files, one), c.Diff+one.Diff
	}
	return c
}

// maxDiffed is the most bytes that are compared by lines. Larger files are shown whole.
const maxDiffed = 1 << 20

// difference returns the change of a file as a diff. For a binary file it gives the sizes.
func difference(c FileChange, before, after []byte) string {
	from, to := "a/"+PathText(c.Name), "b/"+PathText(c.Name)
	if c.What == "added" {
		from = "/dev/null"
	}
	if c.What == "removed" {
		to = "/dev/null"
	}
	head := "--- " + from + "\n+++ " + to + "\n"
	switch {
	case !utf8.Valid(before) || !utf8.Valid(after):
		return head + fmt.Sprintf("no text: %s before, %s now\n",
			guard.Count(len(before), "byte"), guard.Count(len(after), "byte"))
	case len(before)+len(after) == 0:
		return head
	case len(before) > 0 && len(before)+len(after) <= maxDiffed:
		text, err := udiff.ToUnified(from, to, string(before), udiff.Lines(string(before), string(after)),
			udiff.DefaultContextLines)
		if err == nil {
			return text
		}
	}
	if c.What == "removed" {
		return head + fmt.Sprintf("%d bytes are gone\n", len(before))
	}
	return head + "+" + strings.ReplaceAll(strings.TrimSuffix(string(after), "\n"), "\n", "\n+") + "\n"
}

// protectedChanged tells the person that their command has changed files that configure toolcrib or programs next to
// it, and removes the trust in the folders around them. Files that were renamed afterwards are only reported.
func (p *Policy) protectedChanged(who toolcrib.Principal, paths, aside []string) {
	tell := func(format string, args ...any) { p.env.Alert(fmt.Sprintf(format, args...)) }
	if len(aside) > 0 {
		tell("a command made files that would steer toolcrib or programs beside it; they were renamed: %s", pathTexts(aside))
	}
	if len(paths) == 0 {
		return
	}
	names := pathTexts(paths)
	tell("a command changed files that steer toolcrib or programs beside it: %s; review them before you continue", names)
	folders, err := p.env.TrustStore().RevokeContaining(paths...)
	if err != nil {
		tell("the trust in their folder could not be ended: %v", err)
	}
	for _, dir := range folders {
		// The call may have been cancelled by now; its changes are recorded anyway.
		p.RecordTrust(context.Background(), who, store.SystemTrustRevoked, &Folder{Dir: dir}, "a command changed "+names)
		tell("%s is no longer trusted; once you have reviewed it: toolcrib trust %s", PathText(dir), PathText(dir))
	}
}

// noticeProtectedChanged is the code of the notice that a command has changed protected files.
const noticeProtectedChanged = "protected_changed"

// protectedNotice returns that notice, with paths in the workspace.
func protectedNotice(call *toolcrib.Call, changed, aside []string) toolcrib.Notice {
	var parts []string
	say := func(what string, paths []string) {
		for _, path := range paths {
			name, err := filepath.Rel(call.Workspace, path)
			if err != nil || !filepath.IsLocal(name) {
				name = filepath.Base(path)
			}
			parts = append(parts, what+" "+PathText(name))
		}
	}
	say("changed", changed)
	say("renamed afterwards:", aside)
	const most = 20
	if len(parts) > most {
		parts = append(parts[:most], fmt.Sprintf("and %d more", len(parts)-most))
	}
	return toolcrib.Notice{
		Code: noticeProtectedChanged, Message: call.Name + " touched protected files: " + strings.Join(parts, ", "),
	}
}

func pathTexts(paths []string) string {
	texts := make([]string, len(paths))
	for i, path := range paths {
		texts[i] = PathText(path)
	}
	return strings.Join(texts, ", ")
}

// PathText returns a path in a form that can be shown in one line.
func PathText(path string) string {
	return guard.Visible(strings.NewReplacer("\n", `\n`, "\r", `\r`).Replace(path))
}
