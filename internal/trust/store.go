package trust

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/toolcrib/toolcrib/internal/safefile"
)

const (
	recordVersion  = 1
	maxRecordBytes = 16 << 20
	maxFolders     = 10_000
	lockPatience   = 5 * time.Second
)

// Store is the record of what one user trusts, one JSON file. Several processes may
// use it at once. Its zero value trusts nothing and keeps nothing.
type Store struct{ path string }

// NewStore returns the record in that file, which need not exist yet.
func NewStore(path string) Store { return Store{path: path} }

// DefaultPath returns $XDG_STATE_HOME/toolcrib/trust.json, or that under
// ~/.local/state. getenv nil is os.Getenv.
func DefaultPath(getenv func(string) string) (string, error) {
	if getenv == nil {
		getenv = os.Getenv
	}
	if folder := getenv("XDG_STATE_HOME"); filepath.IsAbs(folder) {
		return filepath.Join(folder, "toolcrib", "trust.json"), nil
	}
	if home := getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "state", "toolcrib", "trust.json"), nil
	}
	return "", errors.New("neither XDG_STATE_HOME nor HOME names a folder: there is no place for the record of " +
		"trusted folders")
}

// Path returns the file of the record.
func (s Store) Path() string { return s.path }

// record is the file's content.
type record struct {
	Version int                          `json:"version"`
	Folders map[string]map[string]string `json:"folders"` // real path -> name -> hash
}

func (r *record) set(dir string, files map[string]string) {
	if len(files) == 0 {
		delete(r.Folders, dir)
		return
	}
	r.Folders[dir] = files
}

// state compares a hash with the record. A nil record trusts nothing.
func (r *record) state(dir, name, hash string) State {
	if r == nil || hash == "" {
		return Untrusted
	}
	known, ok := r.Folders[dir][name]
	switch {
	case !ok || known == "":
		return Untrusted
	case known != hash:
		return Changed
	}
	return Trusted
}

// Folders returns the folders in which something is trusted, sorted.
func (s Store) Folders() ([]string, error) {
	rec, err := s.read()
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(rec.Folders)), nil
}

// read returns the record, an empty one if there is no file. A record that cannot
// be read, is broken, or could have been written by others trusts nothing: it is
// nil, with an error.
func (s Store) read() (*record, error) {
	empty := &record{Version: recordVersion, Folders: map[string]map[string]string{}}
	if s.path == "" {
		return empty, nil
	}
	data, err := safefile.Read(s.path, maxRecordBytes, func(info fs.FileInfo) error {
		if writableByOthers(info) {
			return errors.New("can be written by other users; look at it, then run: chmod 600 " + ShellWord(s.path))
		}
		return nil
	})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return empty, nil
	case err != nil:
		return nil, s.broken(err.Error())
	}
	return s.decode(data)
}

func (s Store) decode(data []byte) (*record, error) {
	var rec record
	d := json.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(&rec); err != nil || d.More() {
		return nil, s.broken("is damaged; remove it and trust your folders again")
	}
	if rec.Version != recordVersion {
		return nil, s.broken(fmt.Sprintf("has version %d, and this toolcrib knows %d only", rec.Version, recordVersion))
	}
	if rec.Folders == nil {
		rec.Folders = map[string]map[string]string{}
	}
	return &rec, nil
}

func (s Store) broken(why string) error {
	return fmt.Errorf("nothing is trusted: the record %s %s", s.path, why)
}

// update changes the record: under a lock, so that no process undoes what another
// has just trusted or revoked, and by replacing the file, so that none ever reads
// half of it.
func (s Store) update(change func(*record) error) error {
	if s.path == "" {
		return errors.New("there is no place for the record of trusted folders")
	}
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
		return fmt.Errorf("the record of trusted folders cannot be written: %w", err)
	}
	unlock, err := safefile.Lock(s.path+".lock", lockPatience)
	if err != nil {
		return fmt.Errorf("the record of trusted folders cannot be locked: %w", err)
	}
	defer unlock()
	rec, err := s.read()
	if err != nil {
		return err
	}
	if err := change(rec); err != nil {
		return err
	}
	if len(rec.Folders) > maxFolders {
		return fmt.Errorf("more than %d folders are trusted; revoke some, or remove %s", maxFolders, s.path)
	}
	data, err := json.MarshalIndent(rec, "", "  ")
	if err != nil {
		return err
	}
	return safefile.Replace(s.path, ".trust-", append(data, '\n'))
}
