package skill

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib/internal/safefile"
)

// content is the content of a skill's folder, as it was hashed.
type content struct {
	main  []byte // SKILL.md
	files []File // sorted by name
	bytes int64
	seen  int // number of files and folders
}

// hash returns a SHA-256 hash over names and contents. The length of each name is hashed before it, so
// that different folders never have the same input.
func (c *content) hash() string {
	sum := sha256.New()
	for _, f := range c.files {
		_, _ = fmt.Fprintf(sum, "%d %s %s\n", len(f.Name), f.Name, f.Hash) // never fails
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}

// passedOver reports whether a name is that of a file or folder that other programs keep and change
// without notice; it is not part of a skill.
func passedOver(name string) bool { return name == ".git" || name == ".DS_Store" }

// folderErrorf returns an error for people with the reason why a folder is not a skill.
func folderErrorf(format string, args ...any) *Error {
	return lineErrorf(0, "no skill: "+format, args...)
}

// meaning returns the first name that equals SKILL.md when case is ignored, or "".
func meaning(names []string) string {
	for _, name := range names {
		if strings.EqualFold(name, FileName) {
			return name
		}
	}
	return ""
}

// folder adds the content of a folder below root; name is its path in the skill's folder, base. It
// never follows a link out of root, and never waits for a pipe or a device.
func (c *content) folder(root *os.Root, base, name string) error {
	d, err := root.OpenFile(path.Join(base, name), os.O_RDONLY|safefile.NonBlock, 0)
	if err != nil {
		return err
	}
	defer d.Close() //nolint:errcheck // only read
	for e, err := range safefile.Entries(d) {
		if err != nil {
			return err
		}
		if passedOver(e.Name()) {
			continue
		}
		inner := path.Join(name, e.Name())
		if err := c.count(inner); err != nil {
			return err
		}
		if e.IsDir() {
			err = c.folder(root, base, inner)
		} else {
			err = c.file(root, base, inner)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// count bounds files and folders.
func (c *content) count(name string) error {
	if c.seen++; c.seen > MaxFolderFiles {
		return folderErrorf("it has more than %d files and folders", MaxFolderFiles)
	}
	if strings.Count(name, "/") > MaxFolderDepth {
		return folderErrorf("it has more than %d folders inside one another", MaxFolderDepth)
	}
	return nil
}

func (c *content) file(root *os.Root, base, name string) error {
	whole := path.Join(base, name)
	info, err := root.Lstat(whole)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return folderErrorf("%s is neither a regular file nor a folder; a skill has regular files only, no links", quote(name))
	}
	return c.add(name, info.Size(), func() ([]byte, error) { return safefile.ReadIn(root, whole, info.Size()) })
}

func (c *content) add(name string, size int64, read func() ([]byte, error)) error {
	limit := int64(MaxFileBytes)
	if name == FileName {
		limit = MaxSkillBytes
	}
	if size > limit {
		return folderErrorf("%s has %d bytes, more than the %d that are allowed", quote(name), size, limit)
	}
	if c.bytes += size; c.bytes > MaxFolderBytes {
		return folderErrorf("its files have more than %d bytes together", MaxFolderBytes)
	}
	data, err := read()
	if err != nil {
		return err
	}
	if name == FileName {
		c.main = append([]byte{}, data...) // never nil
	}
	c.files = append(c.files, File{Name: name, Size: int64(len(data)), Hash: hashOf(data)})
	return nil
}

// memory adds the files of a skill that were read before.
func (c *content) memory(files map[string][]byte) error {
	for name, data := range files {
		if slices.ContainsFunc(strings.Split(name, "/"), passedOver) {
			continue
		}
		if err := c.count(name); err != nil {
			return err
		}
		if err := c.add(name, int64(len(data)), func() ([]byte, error) { return data, nil }); err != nil {
			return err
		}
	}
	return nil
}

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// ErrChanged reports that a file has changed since the skill was loaded.
var ErrChanged = errors.New("the file has changed since the skill was loaded")

// ReadFile returns a file of the skill, by a name in Files, if it has not changed since the skill was
// loaded, because a person approved that content. For an unknown name the error is [fs.ErrNotExist],
// for a changed file [ErrChanged].
func (s *Skill) ReadFile(name string) ([]byte, error) {
	at := slices.IndexFunc(s.Files, func(f File) bool { return f.Name == name })
	if at < 0 || s.real == "" {
		return nil, fs.ErrNotExist
	}
	data, err := safefile.Read(filepath.Join(s.real, filepath.FromSlash(name)), s.Files[at].Size)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrChanged, err) // it was readable before
	case hashOf(data) != s.Files[at].Hash:
		return nil, ErrChanged
	}
	return data, nil
}
