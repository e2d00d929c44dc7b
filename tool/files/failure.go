package files

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"syscall"

	"github.com/toolcrib/toolcrib"
)

// failure turns an error of the file system into one that a model can read
// (C15): it names the path as the call did, and nothing outside. The end of a
// context and a path that moved go through as they are.
func (w *workspace) failure(err error, shown string) error {
	if err == nil || errors.Is(err, errMoved) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if made := (*toolcrib.ToolError)(nil); errors.As(err, &made) {
		return err
	}
	kind, message := toolcrib.ExecutionFailed, shown+": the file system reported an error"
	switch {
	case errors.Is(err, syscall.ENOTDIR):
		kind, message = toolcrib.InvalidPath, "a part of the path is not a folder: "+shown
	case errors.Is(err, syscall.ENAMETOOLONG):
		kind, message = toolcrib.InvalidPath, "a name in the path is too long: "+shown
	case errors.Is(err, syscall.EROFS):
		kind, message = toolcrib.PermissionDenied, "read-only file system: "+shown
	case errors.Is(err, fs.ErrNotExist):
		kind, message = toolcrib.NotFound, shown
	case errors.Is(err, fs.ErrPermission):
		kind, message = toolcrib.PermissionDenied, shown
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		message = "no space left on the disk: " + shown + " was not changed"
	case errors.Is(err, syscall.EFBIG):
		message = "file too large for the file system: " + shown + " was not changed"
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		message = "too many open files; try again: " + shown
	}
	return &toolcrib.ToolError{Kind: kind, Message: message, Err: err}
}

// settled reports whether trying again cannot help: a typed failure, the end of the
// context, or what the system says about a path that stands still. Everything
// else may come from a path that was changed under the tool.
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

// at finds the path of a call and does something with it, again if the path was
// changed under it. It gives up after maxTries.
func (w *workspace) at(ctx context.Context, name string, do func(place) error) error {
	var last error
	shown := name
	for range maxTries {
		if err := ctx.Err(); err != nil {
			return err
		}
		p, err := w.find(name)
		if err == nil {
			err = do(p)
		}
		if err == nil || settled(err) {
			return w.failure(err, p.shown)
		}
		last, shown = w.failure(err, p.shown), p.shown
	}
	if errors.Is(last, errMoved) {
		return &toolcrib.ToolError{
			Kind: toolcrib.ExecutionFailed, Err: last,
			Message: shown + ": the path is being changed by somebody else; try again later",
		}
	}
	return last
}
