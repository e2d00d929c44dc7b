package skill

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/safefile"
)

// content is what the folder of a skill holds, as it was hashed.
type content struct {
	main  []byte // SKILL.md
	files []File // sorted by name
	bytes int64
}

// hash is SHA-256 over names and contents. Each name has its length before it: no
// two folders look alike by clever names.
func (c *content) hash() string {
	sum := sha256.New()
	for _, f := range c.files {
		_, _ = fmt.Fprintf(sum, "%d %s %s\n", len(f.Name), f.Name, f.Hash) // never fails
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}

// passedOver are names that programs keep beside files and change behind one's
// back; they are not part of a skill.
func passedOver(name string) bool { return name == ".git" || name == ".DS_Store" }

// folderErrorf says why a folder is not a skill, in words for people.
func folderErrorf(format string, args ...any) *Error {
	return lineErrorf(0, "no skill: "+format, args...)
}

var (
	errNoSkill  = folderErrorf("it has no %s", FileName)
	errTooDeep  = folderErrorf("it has more than %d folders inside one another", MaxFolderDepth)
	errTooMany  = folderErrorf("it has more than %d files and folders", MaxFolderFiles)
	errTooMuch  = folderErrorf("its files have more than %d bytes together", MaxFolderBytes)
	errChanging = errors.New("it was changed while it was read")
)

const notPlain = "%s is neither a regular file nor a folder; a skill has regular files only, no links"

// folderReader reads the folder of one skill. It never follows a link, and never
// waits for a pipe or a device.
type folderReader struct {
	root *os.Root // the folder that holds skills
	base string   // the skill's folder below root
	seen int
	content
}

// readFolder reads a skill's folder below root. With an error the content has only
// the number of bytes that were read.
func readFolder(root *os.Root, base string) (content, error) {
	r := folderReader{root: root, base: base}
	if err := r.folder("", 0); err != nil {
		return content{bytes: r.bytes}, err
	}
	return r.finish()
}

// meaning returns the first of the names that is SKILL.md in any case, or "".
func meaning(names []string) string {
	for _, name := range names {
		if strings.EqualFold(name, FileName) {
			return name
		}
	}
	return ""
}

func (c *content) finish() (content, error) {
	if c.main == nil {
		return content{bytes: c.bytes}, errNoSkill
	}
	slices.SortFunc(c.files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	return *c, nil
}

func (r *folderReader) folder(name string, depth int) error {
	if depth > MaxFolderDepth {
		return errTooDeep
	}
	whole := path.Join(r.base, name)
	// What was a folder when it was listed may be a link by now.
	info, err := r.root.Lstat(whole)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return folderErrorf(notPlain, quote(whole))
	}
	d, err := r.root.OpenFile(whole, os.O_RDONLY|safefile.NonBlock, 0)
	if err != nil {
		return err
	}
	defer d.Close() //nolint:errcheck // only read
	for {
		entries, err := d.ReadDir(64)
		for _, e := range entries {
			if passedOver(e.Name()) {
				continue
			}
			if err := r.entry(path.Join(name, e.Name()), e, depth); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *folderReader) entry(name string, e fs.DirEntry, depth int) error {
	if r.seen++; r.seen > MaxFolderFiles {
		return errTooMany
	}
	switch {
	case e.IsDir():
		return r.folder(name, depth+1)
	case !e.Type().IsRegular():
		return folderErrorf(notPlain, quote(name))
	}
	return r.file(name)
}

func (r *folderReader) file(name string) error {
	limit := min(sizeLimit(name), MaxFolderBytes-r.bytes)
	data, size, err := readRegular(r.root, path.Join(r.base, name), limit)
	if err == nil && size > limit {
		return r.add(name, size, nil) // says what is too large
	}
	if err != nil {
		return err
	}
	return r.add(name, int64(len(data)), data)
}

func (c *content) add(name string, size int64, data []byte) error {
	if limit := sizeLimit(name); size > limit {
		return folderErrorf("%s has %d bytes, more than the %d that are allowed", quote(name), size, limit)
	}
	if c.bytes += size; c.bytes > MaxFolderBytes {
		return errTooMuch
	}
	if name == FileName {
		c.main = append([]byte{}, data...) // never nil
	}
	c.files = append(c.files, File{Name: name, Size: size, Hash: hashOf(data)})
	return nil
}

func sizeLimit(name string) int64 {
	if name == FileName {
		return MaxSkillBytes
	}
	return MaxFileBytes
}

// fromMemory makes the content of a skill of files that were read before.
func fromMemory(files map[string][]byte) (content, error) {
	var c content
	seen := 0
	for name, data := range files {
		if slices.ContainsFunc(strings.Split(name, "/"), passedOver) {
			continue
		}
		if seen++; seen > MaxFolderFiles {
			return content{bytes: c.bytes}, errTooMany
		}
		if strings.Count(name, "/") > MaxFolderDepth {
			return content{bytes: c.bytes}, errTooDeep
		}
		if err := c.add(name, int64(len(data)), data); err != nil {
			return content{bytes: c.bytes}, err
		}
	}
	return c.finish()
}

// readRegular reads a regular file below root, not through a link. Of one that is larger
// than limit it returns the size only.
func readRegular(root *os.Root, name string, limit int64) (data []byte, size int64, err error) {
	before, err := root.Lstat(name)
	if err != nil {
		return nil, 0, err
	}
	if !before.Mode().IsRegular() {
		return nil, 0, folderErrorf(notPlain, quote(name))
	}
	f, err := root.OpenFile(name, os.O_RDONLY|safefile.NonBlock, 0)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close() //nolint:errcheck // only read
	info, err := f.Stat()
	if err == nil && !os.SameFile(before, info) {
		err = errChanging
	}
	if err != nil {
		return nil, 0, err
	}
	if info.Size() > limit {
		return nil, info.Size(), nil
	}
	data, err = io.ReadAll(io.LimitReader(f, limit+1))
	return data, max(info.Size(), int64(len(data))), err
}

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// ErrChanged says that a file is not what it was when the skill was loaded.
var ErrChanged = errors.New("the file has changed since the skill was loaded")

// ReadFile returns a file of the skill, by a name of Files, if it still is what it
// was when the skill was loaded: what is read is what a person approved. A name
// that the skill does not have is [fs.ErrNotExist], other content [ErrChanged].
func (s *Skill) ReadFile(name string) ([]byte, error) {
	at := slices.IndexFunc(s.Files, func(f File) bool { return f.Name == name })
	if at < 0 || s.real == "" {
		return nil, fs.ErrNotExist
	}
	root, err := os.OpenRoot(filepath.Dir(s.real))
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // only read
	data, size, err := readRegular(root, path.Join(filepath.Base(s.real), name), s.Files[at].Size)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrChanged, err) // it was there, and could be read
	case size != s.Files[at].Size || hashOf(data) != s.Files[at].Hash:
		return nil, ErrChanged
	}
	return data, nil
}

// plainCause is the cause of an error without the path before it, for people.
func plainCause(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return guard.Visible(err.Error())
}
