package policy

import (
	"bytes"
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
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/store"
)

// Folder is what a folder brings that steers toolcrib. It counts once a person has looked at exactly that.
type Folder struct {
	Dir     string       `json:"dir"` // absolute
	Trusted bool         `json:"trusted"`
	Digest  string       `json:"digest,omitempty"` // of all that is there
	Files   []trust.File `json:"files,omitempty"`  // those that are there

	Named string `json:"-"` // as the user called it

	all   []trust.File // what is absent, too
	store trust.Store
}

// LookAt reads what a folder brings.
func LookAt(dir string) (*Folder, error) {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, toolcrib.Errorf(toolcrib.CodeNotFound, "%s is not a folder", dir)
	}
	trusted := env.TrustStore()
	files, err := trusted.Check(dir)
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
	}
	f.Trusted = f.Trusted && len(f.Files) > 0
	return f, nil
}

// Trustable returns an error if the folder brings nothing, or something that cannot be read.
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

// Trust trusts what was read of the folder, whatever lies there by now. digest is that of
// what a person has looked at.
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

// TrustWritten trusts a file that was just written for its user, if it still has that
// content, and nothing else that its folder brings.
func TrustWritten(path string, content []byte) (*Folder, error) {
	f, err := LookAt(filepath.Dir(path))
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

// TrustedFolders are the folders that this user trusts.
func TrustedFolders() ([]Folder, error) {
	dirs, err := env.TrustStore().Folders()
	folders := make([]Folder, len(dirs))
	for i, dir := range dirs {
		folders[i] = Folder{Dir: dir, Trusted: true}
	}
	return folders, err
}

// Distrust ends the trust in a folder.
func Distrust(dir string) (*Folder, error) {
	err := env.TrustStore().Revoke(dir)
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

// RecordTrust writes down that what a folder brings is trusted now, or no more. It never
// takes trust back, and never keeps it: where it cannot be written down, that is told.
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

// Changes is what files differ in from what they were when a person looked at them last.
type Changes struct {
	Added   []string `json:"added,omitempty"`
	Removed []string `json:"removed,omitempty"`
	Changed []string `json:"changed,omitempty"`
	Diff    string   `json:"diff,omitempty"` // of all of them

	Files []FileChange `json:"-"`
}

// FileChange is how one file has changed.
type FileChange struct {
	What string // added | removed | changed
	Name string
	Diff string
}

// ChangesOf returns how content has changed. If before is nil, all of it is new.
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

// maxDiffed bounds what is compared line by line; what is larger is shown whole.
const maxDiffed = 1 << 20

// difference shows how a file has changed. Of a binary file it shows the size.
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

// protectedChanged tells the person that a command of theirs changed what steers toolcrib or its neighbours, and
// ends the trust in the folders around it (design.md §7). What was renamed afterwards is only told.
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
	folders, err := env.TrustStore().RevokeContaining(paths...)
	if err != nil {
		tell("the trust in their folder could not be ended: %v", err)
	}
	for _, dir := range folders {
		// The call may have been given up by now; what it did is written down.
		p.RecordTrust(context.Background(), who, store.SystemTrustRevoked, &Folder{Dir: dir}, "a command changed "+names)
		tell("%s is no longer trusted; once you have reviewed it: toolcrib trust %s", PathText(dir), PathText(dir))
	}
}

// noticeProtectedChanged tells that a command changed what steers toolcrib or its neighbours.
const noticeProtectedChanged = "protected_changed"

// protectedNotice is that notice, with the paths as the workspace has them.
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

// PathText is a path as it may be shown, in one line.
func PathText(path string) string {
	return guard.Visible(strings.NewReplacer("\n", `\n`, "\r", `\r`).Replace(path))
}
