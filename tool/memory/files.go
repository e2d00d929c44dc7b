package memory

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/safefile"
	"github.com/toolcrib/toolcrib/tool/internal/beneath"
)

const (
	noteSuffix      = ".json"
	temporaryPrefix = ".tmp-"
	lockName        = ".lock"

	maxSlug     = 48      // bytes of a name that people can read
	maxFileSize = 8 << 20 // of a note's file; a note as JSON is far smaller
	maxEntries  = 4096    // of a user's folder that are looked at

	lockPatience = 10 * time.Second // with others who write notes of the same user
)

// Files is a [Store] in a folder: one folder a user, one JSON file a note. Files
// are replaced as a whole; they are the user's own of this process (mode 0600).
type Files struct {
	dir    string
	limits Limits
}

// NewFiles makes a store in dir, an absolute path. The folder is made with the first
// note.
func NewFiles(dir string, limits Limits) *Files {
	return &Files{dir: dir, limits: limits.OrDefault()}
}

// fileName makes a file's name of any text: a part that people can read, and a hash
// that distinguishes texts. It is the same on systems that do not tell upper from
// lower case, and none that a system gives a meaning to.
func fileName(text string) string {
	sum := sha256.Sum256([]byte(text))
	slug := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '_':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, text)
	return slug[:min(len(slug), maxSlug)] + "~" + hex.EncodeToString(sum[:16])
}

// folder opens the folder of a user; without one the error is fs.ErrNotExist.
func (f *Files) folder(user string, create bool) (*os.Root, error) {
	if user == "" {
		return nil, errors.New("memory: a user without a name")
	}
	if create {
		if err := os.MkdirAll(f.dir, 0o700); err != nil {
			return nil, err
		}
	}
	top, err := os.OpenRoot(f.dir)
	if err != nil {
		return nil, err
	}
	defer top.Close() //nolint:errcheck // only a way to the folder below
	name := fileName(user)
	if create {
		if err := top.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	return top.OpenRoot(name)
}

// Get implements [Store].
func (f *Files) Get(ctx context.Context, user, key string) (Note, error) {
	if err := ctx.Err(); err != nil {
		return Note{}, err
	}
	dir, err := f.folder(user, false)
	if errors.Is(err, fs.ErrNotExist) {
		return Note{}, toolcrib.ErrNotFound
	}
	if err != nil {
		return Note{}, err
	}
	defer dir.Close() //nolint:errcheck // only read
	return get(dir, key)
}

func get(dir *os.Root, key string) (Note, error) {
	note, err := readNote(dir, fileName(key)+noteSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return Note{}, toolcrib.ErrNotFound
	}
	if err == nil && note.Key != key {
		err = fmt.Errorf("memory: the file of the note %q contains another one", key)
	}
	return note, err
}

func readNote(dir *os.Root, name string) (Note, error) {
	file, err := dir.OpenFile(name, os.O_RDONLY|safefile.NonBlock, 0)
	if err != nil {
		return Note{}, err
	}
	defer file.Close() //nolint:errcheck // only read
	info, err := file.Stat()
	if err != nil {
		return Note{}, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFileSize {
		return Note{}, fmt.Errorf("memory: %s is not a note: not a regular file, or larger than %d bytes", name, maxFileSize)
	}
	data, err := io.ReadAll(io.LimitReader(file, maxFileSize))
	if err != nil {
		return Note{}, err
	}
	var note Note
	if err := json.Unmarshal(data, &note); err != nil {
		return Note{}, fmt.Errorf("memory: %s is damaged: %w", name, err)
	}
	if note.Key == "" || note.Content == "" {
		return Note{}, fmt.Errorf("memory: %s is damaged: it has no key or no content", name)
	}
	return note, nil
}

// List implements [Store]. A file that is no whole note is passed over: the others
// can still be read.
func (f *Files) List(ctx context.Context, user string) ([]Note, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	dir, err := f.folder(user, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close() //nolint:errcheck // only read
	return f.list(ctx, dir)
}

func (f *Files) list(ctx context.Context, dir *os.Root) ([]Note, error) {
	names, err := entries(dir)
	if err != nil {
		return nil, err
	}
	var notes []Note
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if !strings.HasSuffix(name, noteSuffix) || len(notes) >= f.limits.Notes {
			continue
		}
		if note, err := readNote(dir, name); err == nil && name == fileName(note.Key)+noteSuffix {
			notes = append(notes, note)
		}
	}
	slices.SortFunc(notes, func(a, b Note) int { return strings.Compare(a.Key, b.Key) })
	return notes, nil
}

// entries lists the names in a folder, at most maxEntries of them, sorted.
func entries(dir *os.Root) ([]string, error) {
	file, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // only read
	names, err := file.Readdirnames(maxEntries)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	slices.Sort(names)
	return names, nil
}

// Put implements [Store].
func (f *Files) Put(ctx context.Context, user string, note Note, before string) error {
	if err := CheckKey(note.Key); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	dir, err := f.folder(user, true)
	if err != nil {
		return err
	}
	defer dir.Close() //nolint:errcheck // what matters was synced
	path := filepath.Join(f.dir, fileName(user))
	unlock, err := safefile.Lock(filepath.Join(path, lockName), lockPatience)
	if err != nil {
		return err
	}
	defer unlock()
	return f.put(ctx, dir, path, note, before)
}

// put writes the note; nobody else writes in the folder, which is at path, meanwhile.
func (f *Files) put(ctx context.Context, dir *os.Root, path string, note Note, before string) error {
	if err := sweep(dir); err != nil {
		return err
	}
	now, err := get(dir, note.Key)
	if err != nil && !errors.Is(err, toolcrib.ErrNotFound) {
		return err
	}
	if now.Hash() != before {
		return ErrChanged
	}
	name := fileName(note.Key) + noteSuffix
	if note.Content == "" {
		if before == "" {
			return nil
		}
		if err := dir.Remove(name); err != nil {
			return err
		}
		return beneath.SyncFolder(dir)
	}
	others, err := f.list(ctx, dir)
	if err != nil {
		return err
	}
	others = slices.DeleteFunc(others, func(o Note) bool { return o.Key == note.Key })
	if err := f.limits.Allow(note, others); err != nil {
		return err
	}
	data, err := json.Marshal(note)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return safefile.Replace(filepath.Join(path, name), temporaryPrefix, data)
}

// sweep removes what a process has left that was killed while it wrote.
func sweep(dir *os.Root) error {
	names, err := entries(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasPrefix(name, temporaryPrefix) {
			if err := dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}
