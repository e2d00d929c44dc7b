package files

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/internal/beneath"
)

// version is what is known of a file's content at one moment.
type version struct {
	hash  string // SHA-256, hexadecimal; "" = there is no file
	bytes int64
	info  fs.FileInfo
}

// digest reads a file to its end.
func digest(ctx context.Context, r io.Reader) (string, int64, error) {
	sum := sha256.New()
	buffer := make([]byte, chunkBytes)
	var size int64
	for {
		if err := ctx.Err(); err != nil {
			return "", 0, err
		}
		n, err := r.Read(buffer)
		sum.Write(buffer[:n])
		size += int64(n)
		if err == io.EOF {
			return hex.EncodeToString(sum.Sum(nil)), size, nil
		}
		if err != nil {
			return "", 0, err
		}
	}
}

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// maxReplaced bounds a file that is written over: it is hashed as it was before.
const maxReplaced = 256 << 20 // bytes

// version hashes the file at p as it is now. One that is too large fails at once,
// however little of it there really is (a sparse file).
func (w *workspace) version(ctx context.Context, p place) (version, error) {
	if p.info == nil {
		return version{}, nil
	}
	f, info, err := w.openRead(p)
	if err != nil {
		return version{}, err
	}
	defer f.Close() //nolint:errcheck // only read
	if info.Size() > maxReplaced {
		return version{}, toolcrib.Failf(toolcrib.ExecutionFailed,
			"%s has %d bytes, and files of more than %d are not overwritten; nothing was written, use another name",
			p.shown, info.Size(), maxReplaced)
	}
	sum, size, err := digest(ctx, io.LimitReader(f, maxReplaced+1)) // it may grow meanwhile
	return version{hash: sum, bytes: size, info: info}, err
}

// replace makes content the content of the file at p: a new file beside it that
// takes its place by a rename, so that a reader sees the old or the new one, a
// power loss leaves one of them, and other names of the old file (hard links) keep
// theirs. before is what the file was when content was made; if it has changed
// since, errMoved is returned and nothing is written.
func (w *workspace) replace(ctx context.Context, p place, before version, content []byte) (err error) {
	if err := w.protected(p); err != nil {
		return err
	}
	dir, err := w.OpenFolder(p.dir(), makeFolder)
	if err != nil {
		return err
	}
	defer dir.Close() //nolint:errcheck // what matters was synced
	if err := unchanged(dir, p, before); err != nil {
		return err
	}
	temporary := w.temporary
	// What a driver that was killed has left of this very call.
	if err := discard(dir, temporary); err != nil {
		return err
	}
	if err := writeTemporary(ctx, dir, temporary, before.info, content); err != nil {
		return errors.Join(err, discard(dir, temporary))
	}
	if err := w.last(ctx, dir, p, before); err != nil {
		return errors.Join(err, discard(dir, temporary))
	}
	if err := dir.Rename(temporary, p.base()); err != nil {
		return errors.Join(err, discard(dir, temporary))
	}
	if err := syncFolder(dir); err != nil {
		return &toolcrib.ToolError{
			Kind: toolcrib.ExecutionFailed, Err: err,
			Message: p.shown + " was written, but the disk did not confirm it",
		}
	}
	return nil
}

// discard removes a temporary file, if it was made at all.
func discard(dir *os.Root, temporary string) error {
	if err := dir.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// unchanged returns errMoved unless name in dir is still the file of before, and
// an error if that file may not be written.
func unchanged(dir *os.Root, p place, before version) error {
	now, err := dir.Lstat(p.base())
	if errors.Is(err, fs.ErrNotExist) && before.info == nil {
		return nil
	}
	if err != nil {
		return err
	}
	if err := regular(now, p.shown); err != nil {
		return err
	}
	if before.info == nil || !os.SameFile(now, before.info) || now.Size() != before.info.Size() || !now.ModTime().Equal(before.info.ModTime()) {
		return errMoved
	}
	// A rename asks the folder for leave, not the file: so the file is asked here.
	f, err := dir.OpenFile(p.base(), os.O_WRONLY|beneath.NonBlocking, 0)
	if err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return &toolcrib.ToolError{Kind: toolcrib.PermissionDenied, Message: "the file is read-only: " + p.shown, Err: err}
		}
		return nil // such as a program that is running: it can be replaced
	}
	return f.Close()
}

// last looks once more, just before the rename: the folder is still where it was
// found, the path is not protected, the file is the same.
func (w *workspace) last(ctx context.Context, dir *os.Root, p place, before version) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	again, err := w.OpenFolder(p.dir(), nil)
	if err != nil {
		return err
	}
	defer again.Close() //nolint:errcheck // only looked at
	then, err := dir.Lstat(".")
	if err != nil {
		return err
	}
	now, err := again.Lstat(".")
	if err != nil {
		return err
	}
	if !os.SameFile(then, now) {
		return errMoved
	}
	if err := w.protected(p); err != nil {
		return err
	}
	return unchanged(dir, p, before)
}

// writeTemporary writes content to a new file and syncs it. It gets the mode and
// owner of old, else 0644 less the umask.
func writeTemporary(ctx context.Context, dir *os.Root, name string, old fs.FileInfo, content []byte) (err error) {
	mode := fs.FileMode(0o644)
	if old != nil {
		mode = 0o600 // nobody else reads it before it has the mode of old
	}
	f, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	defer func() {
		if closed := f.Close(); err == nil {
			err = closed
		}
	}()
	for rest := content; len(rest) > 0; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := f.Write(rest[:min(len(rest), chunkBytes)])
		if err != nil {
			return err
		}
		rest = rest[n:]
	}
	if old != nil {
		keepOwner(f, old)
		if err := f.Chmod(old.Mode().Perm()); err != nil {
			return err
		}
	}
	return f.Sync()
}
