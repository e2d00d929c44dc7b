package files

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"syscall"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/internal/beneath"
	"github.com/toolcrib/toolcrib/tool/internal/nolink"
)

const maxTries = 16 // attempts with a path that changes during the call

// errMoved says that a path changed between resolving and opening it.
var errMoved = nolink.ErrMoved

// workspace is the open workspace of one call.
type workspace struct {
	*beneath.Folder
	set *settings

	temporary string // see temporaryName
}

// place is a resolved path of a call.
type place struct {
	shown string      // cleaned, relative to the workspace, with slashes; for messages
	real  string      // the same with symbolic links resolved; for opening
	info  fs.FileInfo // nil if it does not exist
}

// open opens the workspace of call. An empty or relative one is refused.
func (s *settings) open(call toolcrib.Call) (*workspace, error) {
	folder, err := beneath.Open(call)
	if err != nil {
		return nil, err
	}
	return &workspace{Folder: folder, set: s, temporary: temporaryName(call)}, nil
}

// find resolves the path of a call as far as it exists. It refuses a path that leaves the workspace,
// as text or by a symbolic link, and returns errors of the file system unchanged. The result may be
// outdated at once: it is checked again when the path is opened.
func (w *workspace) find(name string) (place, error) {
	shown, err := w.Clean(name)
	if err != nil {
		return place{}, err
	}
	found, err := w.Resolve(shown, beneath.Absent)
	if errors.Is(err, beneath.ErrLinks) {
		err = toolcrib.Failf(toolcrib.InvalidPath, "too many symbolic links: %s", shown)
	}
	return place{shown: shown, real: found.Real, info: found.Info}, err
}

// makeFolder creates the folder name, with mode 0755 before umask, unless it exists.
func makeFolder(parent *os.Root, name string) error {
	err := parent.Mkdir(name, 0o755)
	if err == nil {
		return beneath.SyncFolder(parent)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// openFile opens the regular file name in dir for reading. It does not follow links, and never blocks
// on a FIFO.
func (w *workspace) openFile(dir *os.Root, name, shown string) (*os.File, fs.FileInfo, error) {
	entry, err := dir.Lstat(name)
	if err == nil {
		err = regular(entry, shown)
	}
	if err != nil {
		return nil, nil, err
	}
	f, info, err := nolink.OpenIn(dir, entry)
	if err == nil && w.set.own.Is(info) {
		_ = f.Close()
		return nil, nil, protectedPath(shown)
	}
	return f, info, err
}

// regular returns an error for the model unless info is of a regular file.
func regular(info fs.FileInfo, shown string) error {
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return nil
	case mode&fs.ModeSymlink != 0:
		return errMoved // links were resolved before, so this one is new
	case mode.IsDir():
		return toolcrib.Failf(toolcrib.InvalidPath, "%s is a folder; list_directory shows what is in it", shown)
	case mode&(fs.ModeNamedPipe|fs.ModeSocket|fs.ModeDevice) != 0:
		return toolcrib.Failf(toolcrib.InvalidPath, "%s is %s, not a regular file", shown, beneath.Special(mode))
	}
	return toolcrib.Failf(toolcrib.InvalidPath, "%s is not a regular file", shown)
}

func protectedPath(shown string) error {
	return toolcrib.Failf(toolcrib.PermissionDenied, "protected path: %s", shown)
}

// hidden refuses paths that tools may not read.
func (w *workspace) hidden(p place) error {
	if w.set.hidden(w.Abs(p.real)) || w.set.own.Is(p.info) {
		return protectedPath(p.shown)
	}
	return nil
}

// protected refuses paths that tools may not write.
func (w *workspace) protected(p place) error {
	if w.set.hidden(w.Abs(p.real)) || w.set.protected(w.Abs(p.real)) {
		return protectedPath(p.shown)
	}
	return nil
}

// failure is [beneath.Failure], but returns errMoved unchanged.
func failure(err error, shown string) error {
	if errors.Is(err, errMoved) {
		return err
	}
	return beneath.Failure(err, shown)
}

// settled reports whether trying again is useless: for tool errors, the end of the context, and
// errors of the system that do not come from a changed path. All other errors may.
func settled(err error) bool {
	made := (*toolcrib.ToolError)(nil)
	if errors.As(err, &made) {
		return true
	}
	for _, known := range []error{
		context.Canceled, context.DeadlineExceeded, fs.ErrPermission, os.ErrDeadlineExceeded,
		syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.ENAMETOOLONG, syscall.EFBIG, syscall.EIO,
		syscall.EMFILE, syscall.ENFILE,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// at opens the workspace of a call and calls do with the place that was planned, looked at again: if
// it or a folder above it has become a link, it is another place. at tries again while the path is
// being changed, and gives up after maxTries.
func (s *settings) at(ctx context.Context, call toolcrib.Call, planned place, do func(*workspace, place) error) error {
	w, err := s.open(call)
	if err != nil {
		return err
	}
	defer w.Close()
	for range maxTries {
		if err = ctx.Err(); err != nil {
			return err
		}
		p := planned
		if p.info, err = w.again(planned); err == nil {
			err = do(w, p)
		}
		if err == nil || settled(err) {
			return failure(err, p.shown)
		}
	}
	if errors.Is(err, errMoved) {
		return &toolcrib.ToolError{
			Kind: toolcrib.ExecutionFailed, Err: err,
			Message: planned.shown + ": the path is being changed by someone else; try again later",
		}
	}
	return failure(err, planned.shown)
}

// again returns the present file at a place, or nil if no file is there.
func (w *workspace) again(p place) (fs.FileInfo, error) {
	now, err := w.Resolve(p.real, beneath.Absent)
	if err == nil && now.Real != p.real || errors.Is(err, beneath.ErrOutside) {
		return nil, errMoved
	}
	return now.Info, err
}
