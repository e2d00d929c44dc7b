package trust

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/toolcrib/toolcrib/internal/safefile"
	"github.com/toolcrib/toolcrib/internal/standin"
)

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
	for {
		entries, err := f.ReadDir(256)
		for _, e := range entries {
			if err := r.entry(dir, prefix, e, depth); err != nil {
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
	var pe *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "is a link to nothing, or holds one"
	case errors.Is(err, safefile.ErrIrregular):
		return "is neither a regular file nor a folder"
	case errors.As(err, &pe) && pe == err:
		return "cannot be read: " + pe.Err.Error()
	}
	return err.Error()
}
