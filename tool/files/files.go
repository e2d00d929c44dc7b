// Package files has the tools that read, list, search, write and edit the files of
// a run's workspace (C9, C11; contract §11), show it as a tree, and tell what a file is.
//
// Every path is resolved inside the workspace, opened component by component
// without following a link, and checked after it was opened: somebody who changes
// links while a tool runs gains nothing. Only regular files are read or written,
// writes replace a file as a whole, and a file that has other names (hard links)
// is never written through.
//
// Paths are cleaned as text first ("a/../b" is "b"); an absolute path inside the
// workspace counts as the relative one. Error texts are those of C15.
package files

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"hash/maphash"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/internal/beneath"
	"github.com/toolcrib/toolcrib/tool/internal/pattern"
	"github.com/toolcrib/toolcrib/tool/internal/wire"
)

// Group is the group of the file tools.
const Group = toolcrib.GroupFiles

// Options for [New]. Both functions get absolute paths with symbolic links
// resolved as far as they exist, spelled as in the call: where the file system
// does not tell upper from lower case, they must not either. They are called
// often and by many calls at once.
//
// The gate asks the same questions first, about [toolcrib.Targeter]'s answers;
// the tools ask again at the last moment, about what is really open.
type Options struct {
	// Protected reports which paths may be read and never written; nil = none.
	Protected func(abs string) bool
	// Hidden reports which paths may be neither read, listed nor written; nil = none.
	Hidden func(abs string) bool
	// Own are files and folders of toolcrib itself, OwnExcept what is none below them:
	// a file there is hidden under its other names (hard links) as well. Absolute.
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
	return []toolcrib.Tool{
		&readFile{pathPolicy{set: s}},
		&listDirectory{pathPolicy{set: s, whole: true}},
		&searchFiles{pathPolicy{set: s, whole: true, tree: true}},
		newWriteFile(s), newEditFile(s),
		&getTree{pathPolicy{set: s, whole: true, tree: true}},
		&readMeta{pathPolicy{set: s}},
	}
}

// settings is what the tools of one [New] share.
type settings struct {
	protected, hidden func(abs string) bool
	own               beneath.Own
	now               func() time.Time

	// locks make a write to one file wait for another of this process; a path has
	// one of them by its hash.
	locks [64]chan struct{}
	seed  maphash.Seed

	seen wire.Seen

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

// temporaryName is the name under which a call writes before it renames: the same
// for the same call, so that what a killed driver has left is found again.
func temporaryName(call toolcrib.Call) string {
	name := rand.Text()
	if call.Run != "" && call.ID != "" {
		sum := sha256.Sum256([]byte(string(call.Run) + "\x00" + call.ID))
		name = hex.EncodeToString(sum[:13])
	}
	return ".toolcrib-" + name + ".tmp"
}

// pathPolicy is what the gate asks all tools of the package: whether the path of
// the call is inside the workspace, and which file it is.
type pathPolicy struct {
	set   *settings
	whole bool // no path means the whole workspace
	tree  bool // what lies below a folder is read, too
}

// path reads the one argument that the gate's questions are about.
func (p pathPolicy) path(call toolcrib.Call) (string, error) {
	var in struct {
		Path *string `json:"path"`
	}
	if err := json.Unmarshal(call.Arguments, &in); err != nil {
		return "", &toolcrib.ToolError{Kind: toolcrib.InvalidArguments, Message: err.Error(), Err: err}
	}
	switch {
	case in.Path != nil:
		return *in.Path, nil
	case p.whole:
		return ".", nil
	}
	return "", nil
}

// find finds the file of a call, for a look.
func (p pathPolicy) find(call toolcrib.Call) (found place, abs string, err error) {
	name, err := p.path(call)
	if err != nil {
		return found, "", err
	}
	w, err := p.set.open(call)
	if err != nil {
		return found, "", err
	}
	defer w.Close()
	found, err = w.find(name)
	return found, w.Abs(found.real), failure(err, found.shown)
}

// Admit refuses a path outside the workspace, as text or by its links, one that is
// empty or no path at all (C11), and another name of a file of toolcrib itself.
func (p pathPolicy) Admit(call toolcrib.Call) error {
	found, _, err := p.find(call)
	if err == nil && p.set.own.Is(found.info) {
		err = protectedPath(found.shown)
	}
	return err
}

// targets names the file of the call, links resolved as far as it exists. A call
// that Admit refuses has none.
func (p pathPolicy) targets(call toolcrib.Call, write bool) []toolcrib.Target {
	_, abs, err := p.find(call)
	if err != nil {
		return nil
	}
	return []toolcrib.Target{{Kind: toolcrib.TargetFile, Name: abs, Write: write, Tree: p.tree}}
}

// Targets names the file that is read.
func (p pathPolicy) Targets(call toolcrib.Call) []toolcrib.Target { return p.targets(call, false) }

// AllowedBy reports whether patterns of the skills allow the path of a call.
func (p pathPolicy) AllowedBy(patterns []string, call toolcrib.Call, targets []toolcrib.Target) (bool, error) {
	name, err := p.path(call)
	return err == nil && pattern.Path(patterns, name, call.Workspace, targets, p.tree), err
}

// BadPattern says why a pattern can match no path; "" if it can.
func (p pathPolicy) BadPattern(text string) string { return pattern.BadPath(text, p.tree) }
