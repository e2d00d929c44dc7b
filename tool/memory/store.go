package memory

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/safefile"
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
	noteSuffix = ".json"
	maxSlug    = 48 // bytes of the readable part of a file name
)

// Files stores the notes of users: one folder for each user, one JSON file for each note. It is safe for
// concurrent use, also by several processes.
type Files struct {
	files  toolcrib.Files
	folder string
	limits Limits
}

// NewFiles returns the notes in a folder on disk, an absolute path, which is created with the first note.
func NewFiles(dir string, limits Limits) *Files {
	return In(safefile.Folder{Dir: filepath.Dir(dir)}, filepath.Base(dir), limits)
}

// In returns the notes in a folder among other files.
func In(files toolcrib.Files, folder string, limits Limits) *Files {
	return &Files{files, folder, Limits{
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

// of returns the folder of a user.
func (f *Files) of(user string) (string, error) {
	if user == "" {
		return "", errors.New("memory: a user without a name")
	}
	return f.folder + "/" + fileName(user), nil
}

// Get returns a note, or toolcrib.ErrNotFound.
func (f *Files) Get(ctx context.Context, user, key string) (Note, error) {
	folder, err := f.of(user)
	if err != nil {
		return Note{}, err
	}
	data, err := f.files.File(ctx, folder+"/"+fileName(key)+noteSuffix)
	if err != nil {
		return Note{}, err
	}
	return decodeNote(key, data)
}

// decodeNote decodes the note with a key. nil is a note that does not exist.
func decodeNote(key string, data []byte) (note Note, err error) {
	if data == nil {
		return Note{Key: key}, nil
	}
	err = json.Unmarshal(data, &note)
	if err == nil && (note.Key != key || note.Content == "") {
		err = errors.New("it has no content, or another key")
	}
	if err != nil {
		return Note{}, fmt.Errorf("memory: the note %q is damaged: %w", key, err)
	}
	return note, nil
}

// List returns the notes of a user, sorted by key, at most Limits.Notes. It skips damaged files, so
// that the other notes can be read.
func (f *Files) List(ctx context.Context, user string) ([]Note, error) {
	folder, err := f.of(user)
	if err != nil {
		return nil, err
	}
	files, err := f.files.FilesIn(ctx, folder)
	if err != nil {
		return nil, err
	}
	var notes []Note
	for _, name := range slices.Sorted(maps.Keys(files)) {
		var note Note
		damaged := json.Unmarshal(files[name], &note) != nil || note.Key == "" || note.Content == ""
		if !damaged && name == fileName(note.Key)+noteSuffix && len(notes) < f.limits.Notes {
			notes = append(notes, note)
		}
	}
	slices.SortFunc(notes, func(a, b Note) int { return strings.Compare(a.Key, b.Key) })
	return notes, nil
}

// Change atomically and durably replaces a note by the result of change, which is called again if other
// notes of the user were written at the same time. before has no content if there is no note; a result
// without content removes the note. If change returns an error, nothing is written. If a limit is exceeded,
// the error is a [*toolcrib.ToolError].
func (f *Files) Change(ctx context.Context, user, key string, change func(before Note) (Note, error)) error {
	folder, err := f.of(user)
	if err == nil {
		err = CheckKey(key)
	}
	if err != nil {
		return err
	}
	return f.files.ChangeFile(ctx, folder+"/"+fileName(key)+noteSuffix, func(data []byte) ([]byte, error) {
		before, err := decodeNote(key, data)
		if err != nil {
			return nil, err
		}
		after, err := change(before)
		if err == nil && after.Content != "" {
			err = f.fits(ctx, user, after)
		}
		if err != nil || after.Content == "" {
			return nil, err
		}
		return json.Marshal(after)
	})
}

// fits returns an error if a note exceeds a limit.
func (f *Files) fits(ctx context.Context, user string, note Note) error {
	others, err := f.List(ctx, user)
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
	return nil
}
