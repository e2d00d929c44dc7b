package memory

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
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

// Note is one note of a user.
type Note struct {
	Key     string `json:"key"`
	Content string `json:"content"`
	// Untrusted reports whether a run wrote some of it after reading untrusted data.
	Untrusted bool      `json:"untrusted,omitempty"`
	Changed   time.Time `json:"changed"`
}

// Hash returns a hash of everything in the note except Changed, or "" if the note is empty, which
// means that it does not exist.
func (n Note) Hash() string {
	if n.Content == "" {
		return ""
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %t %s\x00%s", len(n.Key), n.Untrusted, n.Key, n.Content))
	return hex.EncodeToString(sum[:])
}

// Limits bound the notes of one user. For fields that are 0 the default applies.
type Limits struct {
	NoteBytes  int // bytes of the content of one note; default 65 536
	Notes      int // number of notes; default 256
	TotalBytes int // bytes of the contents of all notes; default 4 MiB
}

const (
	noteSuffix      = ".json"
	temporaryPrefix = ".tmp-"
	lockName        = ".lock"

	maxSlug     = 48      // bytes of the readable part of a file name
	maxFileSize = 8 << 20 // bytes of the file of a note; the JSON of a note is far smaller
	maxEntries  = 4096    // entries of the folder of a user that are read

	lockPatience = 10 * time.Second // for other writers of notes of the same user
)

// Files stores the notes of users in a folder: one folder for each user, one JSON file for each
// note. Files are replaced as a whole, and have mode 0600. It is safe for concurrent use, also by
// several processes.
type Files struct {
	dir    string
	limits Limits
}

// NewFiles returns a store in dir, an absolute path. The folder is created with the first note.
func NewFiles(dir string, limits Limits) *Files {
	return &Files{dir, Limits{
		NoteBytes: cmp.Or(limits.NoteBytes, 64<<10), Notes: cmp.Or(limits.Notes, 256),
		TotalBytes: cmp.Or(limits.TotalBytes, 4<<20),
	}}
}

// fileName returns a file name for any text: a readable part, and a hash that makes it unique. It is
// also unique on file systems that ignore case, and is not a reserved name of any system.
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

// open opens the folder of a user. It returns toolcrib.ErrNotFound if none exists.
func (f *Files) open(ctx context.Context, user string) (*os.Root, error) {
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case user == "":
		return nil, errors.New("memory: a user without a name")
	}
	dir, err := os.OpenRoot(filepath.Join(f.dir, fileName(user)))
	if errors.Is(err, fs.ErrNotExist) {
		err = toolcrib.ErrNotFound
	}
	return dir, err
}

// Get returns a note, or toolcrib.ErrNotFound.
func (f *Files) Get(ctx context.Context, user, key string) (Note, error) {
	dir, err := f.open(ctx, user)
	if err != nil {
		return Note{}, err
	}
	defer dir.Close() //nolint:errcheck // only read
	return get(dir, key)
}

func get(dir *os.Root, key string) (Note, error) {
	note, err := readNote(dir, fileName(key)+noteSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		err = toolcrib.ErrNotFound
	} else if err == nil && note.Key != key {
		err = fmt.Errorf("memory: the file of the note %q contains another one", key)
	}
	return note, err
}

func readNote(dir *os.Root, name string) (note Note, err error) {
	data, err := safefile.ReadIn(dir, name, maxFileSize)
	if err == nil {
		err = json.Unmarshal(data, &note)
	}
	if err != nil {
		return Note{}, fmt.Errorf("memory: %s: %w", name, err)
	}
	if note.Key == "" || note.Content == "" {
		return Note{}, fmt.Errorf("memory: %s is damaged: it has no key or no content", name)
	}
	return note, nil
}

// List returns the notes of a user, sorted by key, at most Limits.Notes. It skips damaged files, so
// that the other notes can be read.
func (f *Files) List(ctx context.Context, user string) ([]Note, error) {
	dir, err := f.open(ctx, user)
	if errors.Is(err, toolcrib.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close() //nolint:errcheck // only read
	return f.list(ctx, dir)
}

func (f *Files) list(ctx context.Context, dir *os.Root) ([]Note, error) {
	files, err := fs.ReadDir(dir.FS(), ".") // not fs.Glob, which hides errors
	if err != nil {
		return nil, err
	}
	files = slices.DeleteFunc(files, func(f fs.DirEntry) bool { return !strings.HasSuffix(f.Name(), noteSuffix) })
	var notes []Note
	for _, file := range files[:min(len(files), maxEntries)] {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		name := file.Name()
		note, err := readNote(dir, name)
		if err == nil && name == fileName(note.Key)+noteSuffix && len(notes) < f.limits.Notes {
			notes = append(notes, note)
		}
	}
	slices.SortFunc(notes, func(a, b Note) int { return strings.Compare(a.Key, b.Key) })
	return notes, nil
}

// Change atomically and durably replaces a note by the result of change, while no other notes of the
// user are written. before has no content if there is no note; a result without content removes the
// note. If change returns an error, nothing is written. If a limit is exceeded, the error is a
// [*toolcrib.ToolError].
func (f *Files) Change(ctx context.Context, user, key string, change func(before Note) (Note, error)) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	path := filepath.Join(f.dir, fileName(user))
	if ctx.Err() == nil && user != "" {
		if err := os.MkdirAll(path, 0o700); err != nil {
			return err
		}
	}
	dir, err := f.open(ctx, user)
	if err != nil {
		return err
	}
	defer dir.Close() //nolint:errcheck // the file and the folder are synced
	unlock, err := safefile.Lock(filepath.Join(path, lockName), lockPatience)
	if err != nil {
		return err
	}
	defer unlock()
	// Remove temporary files of killed processes.
	files, err := fs.ReadDir(dir.FS(), ".")
	for _, file := range files {
		if strings.HasPrefix(file.Name(), temporaryPrefix) {
			err = errors.Join(err, dir.Remove(file.Name()))
		}
	}
	if err != nil {
		return err
	}
	before, err := get(dir, key)
	if errors.Is(err, toolcrib.ErrNotFound) {
		before, err = Note{Key: key}, nil
	}
	if err != nil {
		return err
	}
	after, err := change(before)
	if err == nil {
		err = ctx.Err()
	}
	name := fileName(key) + noteSuffix
	switch {
	case err != nil:
		return err
	case after.Content != "":
		return f.put(ctx, dir, filepath.Join(path, name), after)
	case before.Content == "":
		return nil
	}
	return errors.Join(dir.Remove(name), beneath.SyncFolder(dir))
}

// put writes a note unless it exceeds a limit.
func (f *Files) put(ctx context.Context, dir *os.Root, path string, note Note) error {
	others, err := f.list(ctx, dir)
	if err != nil {
		return err
	}
	others = slices.DeleteFunc(others, func(o Note) bool { return o.Key == note.Key })
	total := len(note.Content)
	for _, other := range others {
		total += len(other.Content)
	}
	switch l := f.limits; {
	case len(note.Content) > l.NoteBytes:
		return toolcrib.Failf(toolcrib.ExecutionFailed, "the note would have %d bytes, at most %d are allowed; "+
			"make it shorter, or use another key", len(note.Content), l.NoteBytes)
	case len(others) >= l.Notes:
		return toolcrib.Failf(toolcrib.ExecutionFailed, "there are %d notes already, and there can be no more; "+
			"remove one by overwriting it with an empty content", len(others))
	case total > l.TotalBytes:
		return toolcrib.Failf(toolcrib.ExecutionFailed, "all notes together would have %d bytes, "+
			"at most %d are allowed; shorten or remove some", total, l.TotalBytes)
	}
	data, err := json.Marshal(note)
	if err != nil {
		return err
	}
	return safefile.Replace(path, temporaryPrefix, data)
}
