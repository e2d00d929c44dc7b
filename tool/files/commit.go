package files

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/internal/beneath"
)

// version is what is known of a file's content at one moment.
type version struct {
	hash  string // SHA-256, hexadecimal; "" = there is no file
	bytes int64
	info  fs.FileInfo
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
	sum := sha256.New()
	size, err := io.Copy(sum, io.LimitReader(reader{ctx, f}, maxReplaced+1)) // it may grow meanwhile
	if err != nil {
		return version{}, err
	}
	return version{hash: hex.EncodeToString(sum.Sum(nil)), bytes: size, info: info}, nil
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
	dir, err := w.OpenFolder(path.Dir(p.real), makeFolder)
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
	if err := dir.Rename(temporary, path.Base(p.real)); err != nil {
		return errors.Join(err, discard(dir, temporary))
	}
	if err := beneath.SyncFolder(dir); err != nil {
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
	now, err := dir.Lstat(path.Base(p.real))
	if errors.Is(err, fs.ErrNotExist) && before.info == nil {
		return nil
	}
	if err != nil {
		return err
	}
	if err := regular(now, p.shown); err != nil {
		return err
	}
	if before.info == nil || !os.SameFile(now, before.info) || now.Size() != before.info.Size() ||
		!now.ModTime().Equal(before.info.ModTime()) {
		return errMoved
	}
	// A rename asks the folder for leave, not the file: so the file is asked here.
	f, err := dir.OpenFile(path.Base(p.real), os.O_WRONLY|syscall.O_NONBLOCK, 0)
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
	again, err := w.OpenFolder(path.Dir(p.real), nil)
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
	if _, err := io.Copy(f, reader{ctx, bytes.NewReader(content)}); err != nil {
		return err
	}
	if old != nil {
		keepOwner(f, old)
		if err := f.Chmod(old.Mode().Perm()); err != nil {
			return err
		}
	}
	return f.Sync()
}

// maxBoundBytes is how large a file may be for an approval to be bound to its content.
// A larger one is told by what it is in the file system, its size and when it was
// changed last: reading it would take too long for a question.
const maxBoundBytes = 64 << 20

// Bind reports what the file of the call is now. It refuses nothing: what cannot be
// written fails when it is tried.
func (t *writer) Bind(ctx context.Context, call toolcrib.Call) ([]toolcrib.FileState, error) {
	name, err := t.path(call)
	if err != nil {
		return nil, err
	}
	w, err := t.set.open(call)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	var state toolcrib.FileState
	err = w.at(ctx, name, func(p place) error {
		now := version{info: p.info}
		if p.info != nil && p.info.Mode().IsRegular() && p.info.Size() <= maxBoundBytes {
			if now, err = w.version(ctx, p); err != nil && settled(err) {
				now, err = version{info: p.info}, nil // it cannot be read
			}
		}
		state = toolcrib.FileState{Path: w.Abs(p.real), State: now.state()}
		return err
	})
	return []toolcrib.FileState{state}, err
}

// state is the same for the same content, as far as that is known.
func (v version) state() string {
	switch {
	case v.info == nil:
		return toolcrib.FileAbsent
	case v.hash == "" || v.info.Size() > maxBoundBytes:
		return fmt.Sprintf("%s %s %d %d", v.info.Mode(), fileID(v.info), v.info.Size(), v.info.ModTime().UnixNano())
	}
	return "sha256:" + v.hash
}

// approved refuses to write a file that is not what it was when a person approved the
// call, unless what differs is what this very run has written since: calls of a turn are
// approved together. planned is why the write cannot be made at all; nil = it can.
func (s *settings) approved(call toolcrib.Call, abs, shown string, now version, planned error) error {
	if len(call.Approved) == 0 || planned != nil && now.hash == "" {
		return planned
	}
	was := call.Approved[0]
	if was.Path == abs && (was.State == now.state() || s.followed(call.Run, abs, was.State, now.state())) {
		return planned
	}
	return toolcrib.Failf(toolcrib.ExecutionFailed, "%s was changed by someone else after the call was approved; nothing was written, read it again", shown)
}

// ownWrite is what a run has made of a file.
type ownWrite struct {
	from []string // the states that the run has replaced, each by the next
	to   string
}

// The bounds of what is known of own writes. What is forgotten is somebody else's.
const (
	maxOwnFiles  = 4096
	maxOwnStates = 64
)

type ownKey struct {
	run toolcrib.RunID
	abs string
}

// wrote notes that a run has replaced a state of a file by another.
func (s *settings) wrote(run toolcrib.RunID, abs, from, to string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.written == nil {
		s.written = make(map[ownKey]ownWrite)
	}
	key := ownKey{run, abs}
	own := s.written[key]
	if own.to != from || len(own.from) == maxOwnStates {
		own.from = nil
	}
	if len(s.written) >= maxOwnFiles {
		clear(s.written)
	}
	s.written[key] = ownWrite{from: append(own.from, from), to: to}
}

// followed reports whether a run itself has made of one state of a file the other.
func (s *settings) followed(run toolcrib.RunID, abs, from, to string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.written[ownKey{run, abs}]
	return own.to == to && slices.Contains(own.from, from)
}
