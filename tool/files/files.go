// Package files implements the tools that read, list, search, write, edit and describe the files of
// a run's workspace, and show it as a tree.
//
// Every path is resolved inside the workspace, opened component by component without following
// links, and checked after it was opened, so that changing links while a tool runs has no effect.
// Only regular files are read or written. Writes replace a file as a whole, so that other names of
// the file (hard links) keep the old content.
//
// Paths are first cleaned as text ("a/../b" is "b"). An absolute path inside the workspace is
// treated as the relative one. Errors for the model are of type [toolcrib.ToolError].
package files

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"hash/maphash"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/internal/beneath"
)

// Group is the group of the file tools.
const Group = toolcrib.GroupFiles

// Options for [New]. Both functions get absolute paths with symbolic links resolved as far as they
// exist, spelled as in the call: if the file system ignores case, so must they. They are called
// often and concurrently.
//
// The gate asks the same questions first, about the targets of a plan; the tools ask again at the last
// moment, about the files that are open.
type Options struct {
	// Protected reports whether a path may be read but not written. If nil, no path is protected.
	Protected func(abs string) bool
	// Hidden reports whether a path may not be read, listed or written. If nil, no path is hidden.
	Hidden func(abs string) bool
	// Own are files and folders of toolcrib itself, and OwnExcept folders below them that are
	// not. These files are also hidden under other names (hard links). All paths are absolute.
	Own, OwnExcept []string
}

// New returns read_file, list_directory, search_files, write_file, edit_file, get_tree and
// read_asset_meta.
func New(options Options) []toolcrib.Tool {
	s := &settings{protected: options.Protected, now: time.Now, seed: maphash.MakeSeed()}
	if s.protected == nil {
		s.protected = func(string) bool { return false }
	}
	s.own = beneath.Own{Paths: options.Own, Except: options.OwnExcept}
	s.hidden = func(abs string) bool {
		return beneath.Machine(abs) || options.Hidden != nil && options.Hidden(abs)
	}
	for i := range s.locks {
		s.locks[i] = make(chan struct{}, 1)
	}
	here := pathOf{"."}
	return []toolcrib.Tool{
		newReadTool(s, nameReadFile, "Read a text file of the workspace, whole or some lines of it; or look at an image.", readFileParameters,
			false, readFileInput{}, readFile),
		newReadTool(s, nameListDirectory, "List one folder of the workspace.", listDirectoryParameters,
			false, here, listDirectory),
		newReadTool(s, nameSearchFiles, "Find lines that match a regular expression, or files by name.", searchFilesParameters,
			true, searchFilesInput{pathOf: here}, searchFiles),
		newWriteFile(s), newEditFile(s),
		newReadTool(s, nameGetTree, "Show the folders and files of the workspace as a tree.", getTreeParameters,
			true, treeInput{pathOf: here}, getTree),
		newReadMeta(s),
	}
}

// settings are shared by the tools of one [New].
type settings struct {
	protected, hidden func(abs string) bool
	own               beneath.Own
	now               func() time.Time

	// locks serialize writes of this process to the same file. The hash of a path selects its lock.
	locks [64]chan struct{}
	seed  maphash.Seed

	mu      sync.Mutex
	written map[ownKey]ownWrite
}

// lock waits until no other call writes the file, or ctx ends.
func (s *settings) lock(ctx context.Context, abs string) (unlock func(), err error) {
	lock := s.locks[maphash.String(s.seed, abs)%uint64(len(s.locks))]
	select {
	case lock <- struct{}{}:
		return func() { <-lock }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// temporaryName returns the name of the temporary file of a call. It is always the same for a call,
// so that a file left by a killed driver is found.
func temporaryName(call toolcrib.Call) string {
	name := rand.Text()
	if call.Run != "" && call.ID != "" {
		sum := sha256.Sum256([]byte(string(call.Run) + "\x00" + call.ID))
		name = hex.EncodeToString(sum[:13])
	}
	return ".toolcrib-" + name + ".tmp"
}
