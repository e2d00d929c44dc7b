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

// version describes a file at one point in time.
type version struct {
	hash  string // SHA-256 of the content, in hex; "" if there is no file
	bytes int64
	info  fs.FileInfo
}

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// maxReplaced bounds the size of a file that is overwritten, since it must be hashed before.
const maxReplaced = 256 << 20 // bytes

// version hashes the current file at p. It fails at once for a file that is too large, even a sparse
// one.
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

// replace replaces the content of the file at p. It writes a new file in the same folder and renames
// it, so that readers and a loss of power see either the old or the new file, and other names of the
// old file (hard links) keep its content. If the file has changed since before was read, replace
// returns errMoved and writes nothing.
func (w *workspace) replace(ctx context.Context, p place, before version, content []byte) (err error) {
	if err := w.protected(p); err != nil {
		return err
	}
	dir, err := w.OpenFolder(path.Dir(p.real), makeFolder)
	if err != nil {
		return err
	}
	defer dir.Close() //nolint:errcheck // the file and the folder are synced
	if err := unchanged(dir, p, before); err != nil {
		return err
	}
	temporary := w.temporary
	// A killed driver may have left a file of the same call.
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

// discard removes a temporary file if it exists.
func discard(dir *os.Root, temporary string) error {
	if err := dir.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// unchanged returns errMoved unless the file at p in dir is still that of before, and an error if
// the file may not be written.
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
	// A rename checks the permissions of the folder only, so check those of the file here.
	return writable(dir, p)
}

// writable returns an error if the file at p in dir is read-only.
func writable(dir *os.Root, p place) error {
	f, err := dir.OpenFile(path.Base(p.real), os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return &toolcrib.ToolError{Kind: toolcrib.PermissionDenied, Message: "the file is read-only: " + p.shown, Err: err}
		}
		return nil // for example a running program, which can be replaced
	}
	return f.Close()
}

// last checks again, just before the rename, that the folder is still at its path, the path is not
// protected, and the file is the same.
func (w *workspace) last(ctx context.Context, dir *os.Root, p place, before version) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	again, err := w.OpenFolder(path.Dir(p.real), nil)
	if err != nil {
		return err
	}
	defer again.Close() //nolint:errcheck // only read
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

// writeTemporary writes content to a new file and syncs it. The file gets the mode and owner of old
// or, if old is nil, mode 0644 before umask.
func writeTemporary(ctx context.Context, dir *os.Root, name string, old fs.FileInfo, content []byte) (err error) {
	mode := fs.FileMode(0o644)
	if old != nil {
		mode = 0o600 // not readable for others until it has the mode of old
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

// maxBoundBytes is the maximum size of a file whose content an approval is bound to. A larger file is
// identified by its ID in the file system, its size and its modification time, because reading it
// would delay the question.
const maxBoundBytes = 64 << 20

// files returns the current state of the file. It does not check whether the file can be written; do
// does.
func (t *write) files(ctx context.Context, call toolcrib.Call) ([]toolcrib.FileState, error) {
	var state toolcrib.FileState
	err := t.set.at(ctx, call, t.at, func(w *workspace, p place) (err error) {
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

// state returns a text that identifies the content or, if that was not hashed, the file.
func (v version) state() string {
	switch {
	case v.info == nil:
		return toolcrib.FileAbsent
	case v.hash == "" || v.info.Size() > maxBoundBytes:
		return fmt.Sprintf("%s %s %d %d", v.info.Mode(), fileID(v.info), v.info.Size(), v.info.ModTime().UnixNano())
	}
	return "sha256:" + v.hash
}

// approved refuses to write a file that has changed since a person approved the call, unless only
// this run has written it since: the calls of a turn are approved together. planned is the error for
// a write that is not possible, or nil; approved returns it unless it refuses.
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

// ownWrite records the writes of a run to a file.
type ownWrite struct {
	from []string // states that the run has replaced, each by the next
	to   string   // last state
}

// The bounds of the record of own writes. A write that is no longer recorded counts as that of another.
const (
	maxOwnFiles  = 4096
	maxOwnStates = 64
)

type ownKey struct {
	run toolcrib.RunID
	abs string
}

// wrote records that a run has replaced one state of a file by another.
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

// followed reports whether the run itself has changed the file from one state to the other.
func (s *settings) followed(run toolcrib.RunID, abs, from, to string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.written[ownKey{run, abs}]
	return own.to == to && slices.Contains(own.from, from)
}
