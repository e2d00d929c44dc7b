// Package beneath opens what lies in the workspace of a call, for tools that look
// at it and never write (C11). A path is resolved inside the workspace first, then
// opened component by component without following a link: somebody who changes
// links meanwhile gains nothing but a refusal.
package beneath

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/toolcrib/toolcrib"
)

const (
	maxPathBytes = 4096 // PATH_MAX of Linux; nothing longer can be opened
	maxLinks     = 40   // symbolic links on one path, as Linux has it
)

// ErrOutside says that a path leaves the workspace, by its text or by a link.
var ErrOutside = errors.New("the path leaves the workspace")

// ErrMoved says that a path was changed between the look and the open, or leads to
// what is not a regular file or folder.
var ErrMoved = errors.New("the path is not what it was, or no regular file or folder")

// Folder is the workspace of a call, opened.
type Folder struct {
	root  *os.Root
	given string // as the call names it
	dir   string // absolute, symbolic links resolved
}

// Open opens the workspace of a call. Without one, or with one that is no absolute
// path, the error is a [*toolcrib.ToolError].
func Open(call toolcrib.Call) (*Folder, error) {
	if call.Workspace == "" {
		return nil, toolcrib.Failf(toolcrib.PermissionDenied, "this run has no workspace")
	}
	if !filepath.IsAbs(call.Workspace) {
		return nil, toolcrib.Failf(toolcrib.PermissionDenied, "the workspace of this run is not given as an absolute path")
	}
	dir, err := filepath.EvalSymlinks(call.Workspace)
	if err == nil && Machine(dir) {
		return nil, InMachine()
	}
	if err == nil {
		var root *os.Root
		if root, err = os.OpenRoot(dir); err == nil {
			return &Folder{root: root, given: filepath.Clean(call.Workspace), dir: dir}, nil
		}
	}
	return nil, &toolcrib.ToolError{Kind: toolcrib.ExecutionFailed, Message: "the workspace folder cannot be opened", Err: err}
}

// InMachine is the error of a workspace that lies where [Machine] says.
func InMachine() error {
	return toolcrib.Failf(toolcrib.PermissionDenied, "the workspace lies in /proc, /sys or /dev, which tools do not touch")
}

// Close lets go of the folder.
func (f *Folder) Close() { _ = f.root.Close() } // opened for reading: there is nothing to lose

// Abs is the absolute path of one that Resolve returned.
func (f *Folder) Abs(real string) string { return filepath.Join(f.dir, filepath.FromSlash(real)) }

// Clean makes a path of a call relative to the workspace, with slashes; it looks at
// the text only. An absolute path inside the workspace counts as the relative one.
// The error is a [*toolcrib.ToolError] of kind invalid path (C11, C15).
func (f *Folder) Clean(name string) (string, error) { return Relative(name, f.given, f.dir) }

// Relative is [Folder.Clean] for a workspace that is given under one path, and is in
// truth, with links resolved, another.
func Relative(name, given, dir string) (string, error) {
	switch {
	case name == "":
		return "", toolcrib.Failf(toolcrib.InvalidPath, "the path is empty")
	case strings.ContainsRune(name, 0):
		return "", toolcrib.Failf(toolcrib.InvalidPath, "the path holds a NUL byte")
	case len(name) > maxPathBytes:
		return "", toolcrib.Failf(toolcrib.InvalidPath, "the path is longer than %d bytes", maxPathBytes)
	}
	local := filepath.Clean(filepath.FromSlash(name))
	if filepath.IsAbs(local) {
		inside, ok := Below(local, given, dir)
		if !ok {
			// The workspace under another name: through a link above it (the folder for
			// temporary files is one on some systems).
			inside, ok = Below(resolved(local), dir)
		}
		if !ok {
			return "", escapes(name)
		}
		local = inside
	}
	if !filepath.IsLocal(local) {
		return "", escapes(name)
	}
	return filepath.ToSlash(local), nil
}

func escapes(name string) error {
	return &toolcrib.ToolError{Kind: toolcrib.InvalidPath, Message: "path escapes workspace: " + name, Err: ErrOutside}
}

// resolved is an absolute path with the links of the part of it that exists
// resolved.
func resolved(name string) string {
	rest := ""
	for at := name; ; at = filepath.Dir(at) {
		if real, err := filepath.EvalSymlinks(at); err == nil {
			return filepath.Join(real, rest)
		}
		if filepath.Dir(at) == at {
			return name
		}
		rest = filepath.Join(filepath.Base(at), rest)
	}
}

// Below returns name relative to the first of the folders that it is in.
func Below(name string, folders ...string) (string, bool) {
	for _, folder := range folders {
		if name == folder {
			return ".", true
		}
		prefix := strings.TrimSuffix(folder, string(filepath.Separator)) + string(filepath.Separator)
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			return rest, true
		}
	}
	return "", false
}

// Resolve follows the symbolic links of a cleaned path, inside the workspace, as far
// as it exists: what it names in truth, for a decision about it. A link that leaves
// the workspace is [ErrOutside]; what the file system says comes as it is.
func (f *Folder) Resolve(name string) (real string, err error) {
	real, err = f.follow(name)
	if err == nil && Machine(f.Abs(real)) {
		return "", ErrOutside
	}
	return real, err
}

func (f *Folder) follow(name string) (real string, err error) {
	real = "."
	pending := strings.Split(name, "/")
	for links := 0; len(pending) > 0; {
		next, rest := pending[0], pending[1:]
		switch next {
		case "", ".":
			pending = rest
			continue
		case "..": // only ever comes out of a link
			if real == "." {
				return "", ErrOutside
			}
			real, pending = path.Dir(real), rest
			continue
		}
		at := path.Join(real, next)
		info, err := f.root.Lstat(at)
		if errors.Is(err, fs.ErrNotExist) {
			return f.absent(real, pending)
		}
		if err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			real, pending = at, rest
			continue
		}
		if links++; links > maxLinks {
			return "", ErrOutside
		}
		target, fromRoot, err := f.readlink(at)
		if err != nil {
			return "", err
		}
		if fromRoot {
			real = "."
		}
		pending = append(target, rest...)
	}
	return real, nil
}

// absent ends the search at the first component that does not exist.
func (f *Folder) absent(real string, missing []string) (string, error) {
	for _, name := range missing {
		if name == ".." && real == "." {
			return "", ErrOutside
		}
		real = path.Join(real, name)
	}
	return real, nil
}

func (f *Folder) readlink(at string) (parts []string, fromRoot bool, err error) {
	text, err := f.root.Readlink(at)
	if err != nil {
		return nil, false, err
	}
	if filepath.IsAbs(text) {
		// Only a plain prefix counts as inside: whatever is spelled otherwise is outside.
		inside, ok := Below(text, f.dir, f.given)
		if !ok {
			return nil, false, ErrOutside
		}
		text, fromRoot = inside, true
	} else if filepath.VolumeName(text) != "" {
		return nil, false, ErrOutside
	}
	return strings.Split(filepath.ToSlash(text), "/"), fromRoot, nil
}

// OpenFolder opens a folder by its resolved path, itself and no link to another.
func (f *Folder) OpenFolder(real string) (*os.Root, error) {
	at, err := f.root.OpenRoot(".")
	if err != nil || real == "." {
		return at, err
	}
	for name := range strings.SplitSeq(real, "/") {
		next, err := Step(at, name)
		_ = at.Close()
		if err != nil {
			return nil, err
		}
		at = next
	}
	return at, nil
}

// Step opens the folder name in parent, itself and no link to another.
func Step(parent *os.Root, name string) (*os.Root, error) {
	// "/." makes the open one of a folder: a FIFO put there meanwhile cannot block it.
	next, err := parent.OpenRoot(name + "/.")
	if err != nil {
		return nil, err
	}
	opened, err := next.Lstat(".")
	if err == nil {
		var entry fs.FileInfo
		if entry, err = parent.Lstat(name); err == nil && (!entry.IsDir() || !os.SameFile(opened, entry)) {
			err = ErrMoved
		}
	}
	if err != nil {
		_ = next.Close()
		return nil, err
	}
	return next, nil
}

// OpenFile opens a regular file by its resolved path, itself and no link to another.
// It never waits for the other end of a FIFO, and opens no device.
func (f *Folder) OpenFile(real string) (*os.File, fs.FileInfo, error) {
	dir, err := f.OpenFolder(path.Dir(real))
	if err != nil {
		return nil, nil, err
	}
	defer dir.Close() //nolint:errcheck // only read
	name := path.Base(real)
	entry, err := dir.Lstat(name)
	if err != nil {
		return nil, nil, err
	}
	if !entry.Mode().IsRegular() {
		return nil, nil, ErrMoved
	}
	file, err := dir.OpenFile(name, os.O_RDONLY|nonBlocking, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil && (!info.Mode().IsRegular() || !os.SameFile(entry, info)) {
		err = ErrMoved
	}
	if err != nil {
		_ = file.Close()
		return nil, nil, err
	}
	return file, info, nil
}
