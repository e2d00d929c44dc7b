// Package trust remembers which configurations, .mcp.json files and skills folders
// of which folders this user has looked at and trusts (contract §2, design.md §7).
//
// A workspace is hostile until then: it may bring a configuration that starts
// programs. Trust is bound to the absolute real path of the folder and to the hash
// of the content, so a changed file asks again. The record lies in the user's state
// folder and depends on no configuration, or a configuration could move it.
//
// A caller must use the same bytes that were hashed: read them once, ask [Store.State] or
// [Store.Require], and use these bytes.
package trust

import (
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

// State is what is known about a file or folder. The zero value trusts nothing.
type State string

const (
	Untrusted State = ""        // never trusted, or not known
	Changed   State = "changed" // trusted once, with another content
	Trusted   State = "trusted" // trusted with exactly this content
	Absent    State = "absent"  // there is no such file
)

// File is what was found of one name in a folder.
type File struct {
	Path    string `json:"path"` // absolute
	Name    string `json:"-"`    // toolcrib.yaml, .mcp.json or skills, or as it was asked for
	State   State  `json:"-"`
	Hash    string `json:"hash"` // "sha256:…"; "" if absent or unreadable
	Problem string `json:"-"`    // why it cannot be read; "" = it can
	// Content is what the hash is over: of a folder by path, of a file under its name.
	Content map[string][]byte `json:"-"`
	// Outside are the links that lead out of the folder that brings the file, by their paths in
	// that folder, each with the real path of its target. What they lead to is part of Content.
	Outside map[string]string `json:"outside,omitempty"`
	// Before is what was trusted last, for those who show what has changed; nil if nothing is known.
	Before map[string][]byte `json:"-"`
}

// Digest is a hash over the names and contents of the files that exist.
func Digest(files []File) string {
	sum := sha256.New()
	for _, f := range files {
		if f.State != Absent {
			fmt.Fprintf(sum, "%d %s %s\n", len(f.Name), f.Name, f.Hash)
		}
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}

// Names are what a folder may bring that steers toolcrib, or is read by its models.
func Names() []string {
	return slices.Concat([]string{"toolcrib.yaml", ".mcp.json", "AGENTS.md", "CLAUDE.md"}, SkillFolders(),
		CommandFolders())
}

// SkillFolders are those of Names that hold skills.
func SkillFolders() []string { return []string{".agents/skills", ".claude/skills", "skills"} }

// CommandFolders hold the commands that a folder brings for conversations.
func CommandFolders() []string { return []string{".toolcrib/commands", ".claude/commands"} }

// UntrustedError says that something was found that is not trusted (exit 2 for a
// configuration).
type UntrustedError struct {
	Path  string // as it was found
	Dir   string // the folder to trust
	State State
}

// Error names the file and the way out.
func (e *UntrustedError) Error() string {
	why := "is not trusted yet"
	if e.State == Changed {
		why = "has changed since you trusted it"
	}
	return fmt.Sprintf("%s %s, so it is not used; review it, then run: toolcrib trust %s", e.Path, why, ShellWord(e.Dir))
}

// PassedOver is the notice for a .mcp.json or skills folder that is not used.
func PassedOver(dir string, f File) string {
	if f.Problem != "" {
		return fmt.Sprintf("%s is skipped: it %s", filepath.Join(dir, f.Name), f.Problem)
	}
	e := UntrustedError{Path: filepath.Join(dir, f.Name), Dir: dir, State: f.State}
	return e.Error()
}

var plainWord = lazyregexp.New(`^[A-Za-z0-9_./@%+=:,-]+$`)

// ShellWord quotes a text so that a POSIX shell reads it as one word. What would act on a terminal is shown
// instead, as [guard.Visible] does.
func ShellWord(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	text = strings.NewReplacer("'", `'\''`, "\n", "[U+000A]", "\t", "[U+0009]").Replace(text)
	return guard.Visible("'" + text + "'")
}

// Check looks at what dir brings: the names given, or those of [Names]. An error (the
// record cannot be read) comes with everything untrusted.
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
	known, err := s.entries()
	files := make([]File, len(names))
	for i, name := range names {
		files[i] = look(root, name)
		files[i].Path = filepath.Join(whole, name)
		if files[i].State != Absent {
			files[i].State = known.state(root, name, files[i].Hash)
		}
	}
	return files, err
}

// State returns what is known about a file or folder with this hash, of the content that
// the caller has read and is about to use.
func (s Store) State(path, hash string) (State, error) {
	root, err := realPath(filepath.Dir(path))
	if err != nil {
		return Untrusted, err
	}
	known, err := s.entries()
	return known.state(root, filepath.Base(path), hash), err
}

// Require returns nil if the file is trusted with this content, and else an error
// that says what to do: an [*UntrustedError], or that of a broken record. It is
// made for config.Load.
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

// TrustFiles trusts the files with the hashes that [Store.Check] gave and a person
// was shown, whatever lies there by now. What is Absent loses its trust.
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

// Revoke forgets the trust in a folder, which need no longer exist. It returns
// fs.ErrNotExist if there was none.
func (s Store) Revoke(dir string) error {
	root, err := realPath(dir)
	if err != nil {
		if root, err = filepath.Abs(dir); err != nil {
			return err
		}
	}
	return s.update(func(known entries) error {
		if known[root] == nil {
			return fmt.Errorf("%s is not trusted: %w", dir, fs.ErrNotExist)
		}
		for name := range known[root] {
			_ = os.Remove(s.copyPath(root, name)) // nothing is decided by it
		}
		delete(known, root)
		return nil
	})
}

// RevokeAround forgets the trust in every folder that holds one of the paths, at
// any depth, and returns these folders, sorted. The paths are absolute and need
// no longer exist. It is for files that steer toolcrib or its neighbours and
// were changed behind its back (design.md §7): what a person looked at is not what
// is there now.
func (s Store) RevokeAround(paths ...string) (revoked []string, err error) {
	known, _ := s.entries() // a record that cannot be read trusts nothing
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

// Bounds of what is read for a hash. What is larger cannot be trusted.
const (
	MaxFileBytes   = 1 << 20  // toolcrib.yaml or .mcp.json
	MaxFolderBytes = 32 << 20 // all files of a folder
	MaxFolderFiles = 5000
	maxFolderDepth = 16
)

var errTooMuch = fmt.Errorf("holds more than %d files, %d bytes or %d levels", MaxFolderFiles, MaxFolderBytes,
	maxFolderDepth)

// Folder is the content of a folder as it was read at one time.
type Folder struct {
	Files map[string][]byte // by path relative to the folder, with slashes
	Hash  string            // over all paths and contents
	Links map[string]string // what is a symbolic link, by path, with the real path that it leads to
}

// ReadFolder reads a folder with everything in it. Symbolic links are followed, so
// that what lies behind them is part of the hash; the bounds end a circle of them.
func ReadFolder(dir string) (Folder, error) {
	r := folderReader{files: map[string][]byte{}, links: map[string]string{}}
	if err := r.read(dir, "", 0); err != nil {
		return Folder{}, err
	}
	sum := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(r.files)) {
		// Length before name: no two folders may look alike by clever names.
		fmt.Fprintf(sum, "%d %s %s\n", len(name), name, Hash(r.files[name]))
	}
	return Folder{Files: r.files, Hash: "sha256:" + hex.EncodeToString(sum.Sum(nil)), Links: r.links}, nil
}

type folderReader struct {
	files map[string][]byte
	links map[string]string
	bytes int64
	seen  int // entries, empty folders too
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

// look reads what a folder has under a name and returns its hash, and the state
// Absent or, for now, Untrusted. dir is a real path.
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
		// Symbolic links are followed: what counts is what is really read.
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

// leads notes where a path leads, if that is outside of the folder.
func (f *File) leads(dir, name, target string) {
	if rel, err := filepath.Rel(dir, target); err != nil || !filepath.IsLocal(rel) {
		f.Outside[name] = target
	}
}

// problem puts an error into words that follow the name of the file.
func problem(err error) string {
	cause := safefile.Cause(err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "is a link to nothing, or holds one"
	case errors.Is(err, safefile.ErrIrregular):
		return "is neither a regular file nor a folder"
	case cause != err: //nolint:errorlint // whether there was a path before it
		return "cannot be read: " + cause.Error()
	}
	return err.Error()
}
