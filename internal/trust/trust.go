// Package trust records which configurations, .mcp.json files, skills folders and similar files the
// user has reviewed and trusts.
//
// Until then a workspace is hostile: its configuration may start programs. Trust is bound to the
// absolute real path of the folder and to the hash of the content, so that a changed file must be
// trusted again. The record is in the user's state folder, at a path that does not depend on any
// configuration, which could otherwise move it.
//
// A caller must use the same bytes that were hashed: read them once, ask [Store.State] or
// [Store.Require], and use these bytes.
package trust

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
	"github.com/toolcrib/toolcrib/internal/safefile"
	"github.com/toolcrib/toolcrib/internal/standin"
)

// State is the trust in a file or folder. The zero value is untrusted.
type State string

const (
	Untrusted State = ""        // never trusted, or unknown
	Changed   State = "changed" // trusted with other content
	Trusted   State = "trusted" // trusted with exactly this content
	Absent    State = "absent"  // the file does not exist
)

// File is a file or folder with one of the names that [Store.Check] looks for.
type File struct {
	Path    string `json:"path"` // absolute
	Name    string `json:"-"`    // path in the folder, such as toolcrib.yaml
	State   State  `json:"-"`
	Hash    string `json:"hash"` // "sha256:…"; "" if absent or unreadable
	Problem string `json:"-"`    // why it cannot be read, or ""
	// Content is the hashed content: that of a file under its name, that of a folder by path.
	Content map[string][]byte `json:"-"`
	// Outside are links to targets outside the folder, by their paths in it, with the real paths of
	// the targets. The targets are part of Content.
	Outside map[string]string `json:"outside,omitempty"`
	// Before is the content that was last trusted, to show what has changed; nil if unknown.
	Before map[string][]byte `json:"-"`
}

// Digest returns a hash of the names and hashes of the files that exist.
func Digest(files []File) string {
	sum := sha256.New()
	for _, f := range files {
		if f.State != Absent {
			fmt.Fprintf(sum, "%d %s %s\n", len(f.Name), f.Name, f.Hash)
		}
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}

// Names returns the names of files and folders that control toolcrib or that its models read.
func Names() []string {
	return slices.Concat([]string{"toolcrib.yaml", ".mcp.json", "AGENTS.md", "CLAUDE.md"}, SkillFolders(),
		CommandFolders())
}

// SkillFolders returns the names of folders with skills.
func SkillFolders() []string { return []string{".agents/skills", ".claude/skills", "skills"} }

// CommandFolders returns the names of folders with commands for conversations.
func CommandFolders() []string { return []string{".toolcrib/commands", ".claude/commands"} }

// UntrustedError says that a file is not trusted. For a configuration the exit status is 2.
type UntrustedError struct {
	Path  string // path of the file
	Dir   string // folder to trust
	State State
}

// Error names the file and the command that trusts it.
func (e *UntrustedError) Error() string {
	why := "is not trusted yet"
	if e.State == Changed {
		why = "has changed since you trusted it"
	}
	return fmt.Sprintf("%s %s, so it is not used; review it, then run: toolcrib trust %s", e.Path, why, ShellWord(e.Dir))
}

// PassedOver returns the notice for a file or folder that is not used.
func PassedOver(dir string, f File) string {
	if f.Problem != "" {
		return fmt.Sprintf("%s is skipped: it %s", filepath.Join(dir, f.Name), f.Problem)
	}
	e := UntrustedError{Path: filepath.Join(dir, f.Name), Dir: dir, State: f.State}
	return e.Error()
}

var plainWord = lazyregexp.New(`^[A-Za-z0-9_./@%+=:,-]+$`)

// ShellWord quotes a text so that a POSIX shell reads it as one word. Control characters are made visible, as by
// [guard.Visible].
func ShellWord(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	text = strings.NewReplacer("'", `'\''`, "\n", "[U+000A]", "\t", "[U+0009]").Replace(text)
	return guard.Visible("'" + text + "'")
}

// Check returns the files of dir with the given names, or those of [Names], and their states. If the
// record cannot be read, it returns an error and the files as untrusted.
func (s Store) Check(dir string, names ...string) ([]File, error) {
	if len(names) == 0 {
		names = Names()
	}
	root, err := realPath(dir)
	if err != nil {
		return nil, err
	}
	whole, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	files := make([]File, len(names))
	known := map[bool]entries{}
	for i, name := range names {
		of := early(name)
		if _, read := known[of]; !read {
			var readErr error
			known[of], readErr = s.entries(name)
			err = cmp.Or(err, readErr)
		}
		files[i] = look(root, name)
		files[i].Path = filepath.Join(whole, name)
		if files[i].State != Absent {
			files[i].State = known[of].state(root, name, files[i].Hash)
		}
	}
	return files, err
}

// State returns the trust in a file or folder. hash must be that of the content that the caller has
// read and will use.
func (s Store) State(path, hash string) (State, error) {
	root, err := realPath(filepath.Dir(path))
	if err != nil {
		return Untrusted, err
	}
	known, err := s.entries(filepath.Base(path))
	return known.state(root, filepath.Base(path), hash), err
}

// Require returns nil if the file is trusted with this content, and otherwise an error that says
// what to do: an [*UntrustedError], or that of a damaged record. It is meant for config.Load.
func (s Store) Require(path string, content []byte) error {
	state, err := s.State(path, Hash(content))
	if err != nil {
		return err
	}
	if state == Trusted {
		return nil
	}
	dir, err := realPath(filepath.Dir(path))
	if err != nil {
		return err
	}
	return &UntrustedError{Path: path, Dir: dir, State: state}
}

// TrustFiles trusts the files with the hashes that [Store.Check] returned and a person has reviewed,
// even if the files have changed since. Trust in Absent files is removed.
func (s Store) TrustFiles(dir string, files []File) error {
	root, err := realPath(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if f.State != Absent && f.Content != nil {
			s.Keep(dir, f.Name, Copy{Hash: f.Hash, Files: f.Content})
		}
	}
	return s.update(func(known entries) error {
		folder := known[root]
		if folder == nil {
			folder = map[string]string{}
		}
		for _, f := range files {
			delete(folder, f.Name)
			if f.Hash != "" && f.State != Absent && f.Problem == "" {
				folder[f.Name] = f.Hash
			}
		}
		if known[root] = folder; len(folder) == 0 {
			delete(known, root)
		}
		return nil
	})
}

// Revoke removes the trust in a folder, which need no longer exist. It returns fs.ErrNotExist if the
// folder is not trusted.
func (s Store) Revoke(dir string) error {
	root, err := realPath(dir)
	if err != nil {
		if root, err = filepath.Abs(dir); err != nil {
			return err
		}
	}
	var names []string
	found := false
	err = s.update(func(known entries) error {
		if known[root] == nil {
			return errUnchanged
		}
		found = true
		names = slices.AppendSeq(names, maps.Keys(known[root]))
		delete(known, root)
		return nil
	})
	for _, name := range names {
		s.putCopy(root, name, nil)
	}
	if err == nil && !found {
		err = fmt.Errorf("%s is not trusted: %w", dir, fs.ErrNotExist)
	}
	return err
}

// RevokeContaining removes the trust in every folder that contains one of the paths, at any depth, and
// returns these folders, sorted. The paths are absolute and need no longer exist. It is for
// protected files that a program has changed, so that a person must review them again.
func (s Store) RevokeContaining(paths ...string) (revoked []string, err error) {
	own, _ := s.entries("toolcrib.yaml") // a record that cannot be read trusts nothing
	shared, _ := s.entries("")
	known := entries{}
	maps.Copy(known, own)
	maps.Copy(known, shared)
	for dir := range known {
		holds := func(path string) bool {
			if real, err := realPath(filepath.Dir(path)); err == nil {
				path = filepath.Join(real, filepath.Base(path))
			}
			rel, err := filepath.Rel(dir, path)
			return err == nil && filepath.IsLocal(rel)
		}
		if slices.ContainsFunc(paths, holds) {
			revoked = append(revoked, dir)
		}
	}
	if len(revoked) == 0 {
		return nil, nil
	}
	slices.Sort(revoked)
	err = s.update(func(known entries) error {
		for _, dir := range revoked {
			delete(known, dir)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return revoked, nil
}

// realPath returns the absolute path of an existing folder without symbolic links.
func realPath(dir string) (string, error) {
	whole, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	root, err := filepath.EvalSymlinks(whole)
	if err != nil {
		return "", fmt.Errorf("%s: %w", dir, safefile.Cause(err))
	}
	return root, nil
}

// Hash returns the hash of a file.
func Hash(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Bounds of files and folders. Larger ones cannot be trusted.
const (
	MaxFileBytes   = 1 << 20  // toolcrib.yaml or .mcp.json
	MaxFolderBytes = 32 << 20 // all files of a folder
	MaxFolderFiles = 5000
	maxFolderDepth = 16
)

var errTooMuch = fmt.Errorf("holds more than %d files, %d bytes or %d levels", MaxFolderFiles, MaxFolderBytes,
	maxFolderDepth)

// Folder is the content of a folder.
type Folder struct {
	Files map[string][]byte // content by path relative to the folder, with slashes
	Hash  string            // hash of all paths and contents
	Links map[string]string // real paths of the targets of symbolic links, by path
}

// ReadFolder reads a folder with everything in it. It follows symbolic links, so that their targets
// are part of the hash; the bounds end cycles.
func ReadFolder(dir string) (Folder, error) {
	r := folderReader{files: map[string][]byte{}, links: map[string]string{}}
	if err := r.read(dir, "", 0); err != nil {
		return Folder{}, err
	}
	sum := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(r.files)) {
		// The length of the name prevents collisions by crafted names.
		fmt.Fprintf(sum, "%d %s %s\n", len(name), name, Hash(r.files[name]))
	}
	return Folder{Files: r.files, Hash: "sha256:" + hex.EncodeToString(sum.Sum(nil)), Links: r.links}, nil
}

type folderReader struct {
	files map[string][]byte
	links map[string]string
	bytes int64
	seen  int // number of entries, including empty folders
}

func (r *folderReader) read(dir, prefix string, depth int) error {
	if depth > maxFolderDepth {
		return errTooMuch
	}
	f, err := os.OpenFile(dir, os.O_RDONLY|safefile.NonBlock, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	for e, err := range safefile.Entries(f) {
		if err != nil {
			return err
		}
		if err := r.entry(dir, prefix, e, depth); err != nil {
			return err
		}
	}
	return nil
}

func (r *folderReader) entry(dir, prefix string, e fs.DirEntry, depth int) error {
	if r.seen++; r.seen > MaxFolderFiles {
		return errTooMuch
	}
	whole, relative := filepath.Join(dir, e.Name()), path.Join(prefix, e.Name())
	info, err := os.Stat(whole)
	if err != nil {
		return err
	}
	if e.Type()&fs.ModeSymlink != 0 {
		if r.links[relative], err = filepath.EvalSymlinks(whole); err != nil {
			return err
		}
	}
	if info.IsDir() {
		return r.read(whole, relative, depth+1)
	}
	data, err := safefile.Read(whole, MaxFolderBytes-r.bytes)
	if errors.Is(err, safefile.ErrTooLarge) {
		return errTooMuch
	}
	if err != nil {
		return err
	}
	r.bytes += int64(len(data))
	r.files[relative] = data
	return nil
}

// look reads the file or folder with a name. Its State is Absent or, until it is compared with the
// record, Untrusted. dir is a real path.
func look(dir, name string) File {
	out := File{Name: name, Outside: map[string]string{}}
	whole := filepath.Join(dir, name)
	if !standin.Exists(whole) {
		out.State = Absent
		return out
	}
	info, err := os.Stat(whole)
	if err == nil && info.IsDir() {
		var folder Folder
		if folder, err = ReadFolder(whole); err == nil {
			out.Hash, out.Content = folder.Hash, folder.Files
			for link, target := range folder.Links {
				out.leads(dir, path.Join(name, link), target)
			}
		}
	} else if err == nil {
		// Symbolic links are followed, since the content that is read must be trusted.
		var content []byte
		if content, err = safefile.Read(whole, MaxFileBytes); err == nil {
			out.Hash, out.Content = Hash(content), map[string][]byte{name: content}
		}
	}
	if err != nil {
		out.Problem = problem(err)
	} else if real, err := filepath.EvalSymlinks(whole); err == nil {
		out.leads(dir, name, real)
	}
	return out
}

// leads records the target of a link if it is outside the folder.
func (f *File) leads(dir, name, target string) {
	if rel, err := filepath.Rel(dir, target); err != nil || !filepath.IsLocal(rel) {
		f.Outside[name] = target
	}
}

// problem returns the text of an error, to be written after the name of the file.
func problem(err error) string {
	cause := safefile.Cause(err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "is a link to nothing, or holds one"
	case errors.Is(err, safefile.ErrIrregular):
		return "is neither a regular file nor a folder"
	case cause != err: //nolint:errorlint // whether the error had a path
		return "cannot be read: " + cause.Error()
	}
	return err.Error()
}
