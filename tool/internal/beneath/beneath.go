// Package beneath resolves paths inside the workspace of a call, and opens files and folders there
// for tools (C11). A path is first resolved, then opened component by component without following
// links: if links are changed meanwhile, opening fails.
package beneath

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/internal/nolink"
)

const (
	maxPathBytes = 4096 // PATH_MAX of Linux; longer paths cannot be opened
	maxLinks     = 40   // symbolic links in one path, as on Linux
)

var (
	// ErrOutside says that a path leaves the workspace, by its text or by a link.
	ErrOutside = errors.New("the path leaves the workspace")
	// ErrLinks is the [ErrOutside] of a path with too many symbolic links.
	ErrLinks = fmt.Errorf("%w, or has too many symbolic links", ErrOutside)
)

// Folder is the open workspace of a call.
type Folder struct {
	Root  *os.Root
	Given string // absolute path, as the call has it
	Dir   string // absolute path with symbolic links resolved
}

// Open opens the workspace of a call. All errors are [*toolcrib.ToolError].
func Open(call toolcrib.Call) (*Folder, error) {
	if call.Workspace == "" {
		return nil, toolcrib.Failf(toolcrib.PermissionDenied, "this run has no workspace")
	}
	if !filepath.IsAbs(call.Workspace) || strings.ContainsRune(call.Workspace, 0) {
		return nil, toolcrib.Failf(toolcrib.PermissionDenied, "the workspace of this run is not given as an absolute path")
	}
	dir, err := filepath.EvalSymlinks(call.Workspace)
	if err == nil && Machine(dir) {
		return nil, toolcrib.Failf(toolcrib.PermissionDenied,
			"the workspace lies in /proc, /sys or /dev, which tools do not touch")
	}
	if err == nil {
		var root *os.Root
		if root, err = os.OpenRoot(dir); err == nil {
			return &Folder{Root: root, Given: filepath.Clean(call.Workspace), Dir: dir}, nil
		}
	}
	return nil, &toolcrib.ToolError{
		Kind: toolcrib.ExecutionFailed, Message: "the workspace folder cannot be opened",
		Err: err,
	}
}

// Close releases the folder.
func (f *Folder) Close() { _ = f.Root.Close() } // opened for reading, so that errors do not matter

// Abs returns the absolute path of a resolved one.
func (f *Folder) Abs(real string) string { return filepath.Join(f.Dir, filepath.FromSlash(real)) }

// Clean returns a path of a call relative to the workspace, with slashes, also for an absolute path
// inside the workspace. Links in a relative path are not resolved. The error is a
// [*toolcrib.ToolError] of kind invalid path (C11, C15).
func (f *Folder) Clean(name string) (string, error) {
	switch {
	case name == "":
		return "", toolcrib.Failf(toolcrib.InvalidPath, "the path is empty")
	case strings.ContainsRune(name, 0):
		return "", toolcrib.Failf(toolcrib.InvalidPath, "the path contains a NUL byte")
	case len(name) > maxPathBytes:
		return "", toolcrib.Failf(toolcrib.InvalidPath, "the path is longer than %d bytes", maxPathBytes)
	}
	local := filepath.Clean(filepath.FromSlash(name))
	if filepath.IsAbs(local) {
		inside, ok := Below(local, f.Given, f.Dir)
		if !ok {
			// The path may name the workspace through another link above it: on some systems
			// the folder for temporary files is a link.
			inside, ok = Below(Real(local), f.Dir)
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

// Real resolves the symbolic links of an absolute path as far as it exists.
func Real(name string) string {
	clean, rest := filepath.Clean(name), ""
	for at := clean; ; at = filepath.Dir(at) {
		if real, err := filepath.EvalSymlinks(at); err == nil {
			return filepath.Join(real, rest)
		}
		if filepath.Dir(at) == at {
			return clean
		}
		rest = filepath.Join(filepath.Base(at), rest)
	}
}

// Below returns name relative to the first of the folders that contains it.
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

// Place is a resolved path.
type Place struct {
	Real string      // relative to the workspace, symbolic links resolved
	Info fs.FileInfo // nil if it does not exist
}

// Resolve resolves the symbolic links of a relative path inside the workspace, as far as it exists.
// It goes component by component, as the system does, so that "link/.." is the parent of the link's
// target. A path that leaves the workspace at any point, even if it returns, is [ErrOutside]. Other
// errors of the file system are returned unchanged, except those for which absent reports that the
// file does not exist.
//
// The result may be outdated at once: it must be checked again when the path is opened.
func (f *Folder) Resolve(name string, absent func(error) bool) (Place, error) {
	p := Place{Real: "."}
	pending, links, ended := strings.Split(name, "/"), 0, false
	for len(pending) > 0 {
		next := pending[0]
		pending = pending[1:]
		switch next {
		case "", ".":
			continue
		case "..":
			if p.Real == "." {
				return p, ErrOutside
			}
			p.Real = path.Dir(p.Real)
			continue
		}
		at := path.Join(p.Real, next)
		if ended {
			p.Real = at
			continue
		}
		info, err := f.Root.Lstat(at)
		switch {
		case err != nil && absent(err):
			ended = true // the rest must not leave the workspace either
		case err != nil:
			return p, err
		case info.Mode()&fs.ModeSymlink != 0:
			if links++; links > maxLinks {
				return p, ErrLinks
			}
			target, fromRoot, err := f.readlink(at)
			if err != nil {
				return p, err
			}
			if fromRoot {
				p.Real = "."
			}
			pending = append(target, pending...)
			continue
		}
		p.Real = at
	}
	if Machine(f.Abs(p.Real)) {
		return p, ErrOutside
	}
	if ended {
		return p, nil
	}
	info, err := f.Root.Lstat(p.Real)
	if err == nil {
		p.Info = info
	} else if absent(err) {
		err = nil
	}
	return p, err
}

// Absent reports whether an error says that there is no such file.
func Absent(err error) bool { return errors.Is(err, fs.ErrNotExist) }

func (f *Folder) readlink(at string) (parts []string, fromRoot bool, err error) {
	text, err := f.Root.Readlink(at)
	if err != nil {
		return nil, false, err
	}
	if filepath.IsAbs(text) {
		// Only a literal prefix is inside, whatever the target resolves to.
		inside, ok := Below(text, f.Dir, f.Given)
		if !ok {
			return nil, false, ErrOutside
		}
		text, fromRoot = inside, true
	} else if filepath.VolumeName(text) != "" {
		return nil, false, ErrOutside
	}
	return strings.Split(filepath.ToSlash(text), "/"), fromRoot, nil
}

// OpenFolder opens a folder by its resolved path; see [nolink.OpenFolder].
func (f *Folder) OpenFolder(real string, before func(parent *os.Root, name string) error) (*os.Root, error) {
	return nolink.OpenFolder(f.Root, real, before)
}

// OpenFile opens a regular file by its resolved path, without following links.
func (f *Folder) OpenFile(real string) (*os.File, fs.FileInfo, error) {
	return nolink.OpenFile(f.Root, real)
}

// Special describes a file that is neither a regular file nor a folder, for a message.
func Special(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "no regular file"
}

// Failure converts an error of the file system into one for the model (C15), with the path as the
// call has it and no other path. A [*toolcrib.ToolError] and the error of a context are returned
// unchanged.
func Failure(err error, shown string) error {
	if made := (*toolcrib.ToolError)(nil); err == nil || errors.As(err, &made) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	for _, known := range []struct {
		errno error
		kind  toolcrib.ToolErrorKind
		text  string
	}{
		{ErrOutside, toolcrib.InvalidPath, "path escapes workspace: %s"},
		{syscall.ENOTDIR, toolcrib.InvalidPath, "a part of the path is not a folder: %s"},
		{syscall.ENAMETOOLONG, toolcrib.InvalidPath, "a name in the path is too long: %s"},
		{syscall.EROFS, toolcrib.PermissionDenied, "read-only file system: %s"},
		{fs.ErrNotExist, toolcrib.NotFound, "%s"},
		{fs.ErrPermission, toolcrib.PermissionDenied, "%s"},
		{syscall.ENOSPC, toolcrib.ExecutionFailed, "no space left on the disk: %s was not changed"},
		{syscall.EDQUOT, toolcrib.ExecutionFailed, "no space left on the disk: %s was not changed"},
		{syscall.EFBIG, toolcrib.ExecutionFailed, "file too large for the file system: %s was not changed"},
		{syscall.EMFILE, toolcrib.ExecutionFailed, "too many open files; try again: %s"},
		{syscall.ENFILE, toolcrib.ExecutionFailed, "too many open files; try again: %s"},
	} {
		if errors.Is(err, known.errno) {
			return &toolcrib.ToolError{Kind: known.kind, Message: fmt.Sprintf(known.text, shown), Err: err}
		}
	}
	return &toolcrib.ToolError{
		Kind: toolcrib.ExecutionFailed, Message: shown + ": the file system reported an error",
		Err: err,
	}
}

// Entries returns at most most entries of a folder, sorted by name. more reports whether there may
// be others.
func Entries(ctx context.Context, dir *os.Root, most int) (found []fs.DirEntry, more bool, err error) {
	file, err := dir.Open(".")
	if err != nil {
		return nil, false, err
	}
	defer file.Close() //nolint:errcheck // only read
	for len(found) < most && err == nil {
		if err := ctx.Err(); err != nil {
			return nil, false, err
		}
		var batch []fs.DirEntry
		batch, err = file.ReadDir(min(1024, most-len(found)))
		found = append(found, batch...)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, err
	}
	slices.SortFunc(found, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return found, err == nil, nil
}
