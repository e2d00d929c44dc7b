package trust

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/safefile"
)

const (
	recordVersion  = 1
	maxRecordBytes = 16 << 20
	maxFolders     = 10_000
	lockPatience   = 5 * time.Second
)

// Store is the record of what one user trusts, one JSON file. Several processes may
// use it at once. Its zero value has no place: it trusts nothing, and each use is an error.
type Store struct {
	path   string
	skills bool // it is about single skills, whose record is in the same file
}

// NewStore returns the record in that file, which need not exist yet; "" = no place for one.
func NewStore(path string) Store { return Store{path: path} }

// Skills returns the record of single skills, by the folder that holds them and their
// name. The trust in a folder has no part in it, and ends without it.
func (s Store) Skills() Store { return Store{path: s.path, skills: true} }

// DefaultPath returns $XDG_STATE_HOME/toolcrib/trust.json, or that under
// ~/.local/state; "" if neither is known.
func DefaultPath(getenv func(string) string) string {
	if folder := getenv("XDG_STATE_HOME"); filepath.IsAbs(folder) {
		return filepath.Join(folder, "toolcrib", "trust.json")
	}
	if home := getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "state", "toolcrib", "trust.json")
	}
	return ""
}

var errNoPlace = toolcrib.Errorf(toolcrib.CodeBadRequest,
	"neither XDG_STATE_HOME nor HOME names a folder: there is no place for the record of trusted folders")

// Path returns the file of the record.
func (s Store) Path() string { return s.path }

// record is the file's content.
type record struct {
	Version int     `json:"version"`
	Folders entries `json:"folders"`
	Skills  entries `json:"skills,omitempty"`
}

// entries are the hashes of what is trusted: real path -> name -> hash.
type entries map[string]map[string]string

// state compares a hash with the record. If e is nil, it trusts nothing.
func (e entries) state(dir, name, hash string) State {
	known := e[dir][name]
	switch {
	case known == "" || hash == "":
		return Untrusted
	case known != hash:
		return Changed
	}
	return Trusted
}

// Folders returns the folders in which something is trusted, sorted.
func (s Store) Folders() ([]string, error) {
	known, err := s.entries()
	return slices.Sorted(maps.Keys(known)), err
}

// entries returns what the record says of folders, or of skills. With an error it is nil,
// which trusts nothing.
func (s Store) entries() (entries, error) {
	rec, err := s.read()
	if err != nil {
		return nil, err
	}
	return rec.of(s), nil
}

func (r *record) of(s Store) entries {
	if s.skills {
		return r.Skills
	}
	return r.Folders
}

// read returns the record, an empty one if there is no file. A record that cannot
// be read, is broken, or could have been written by others trusts nothing: it is
// nil, with an error.
func (s Store) read() (*record, error) {
	empty := &record{Version: recordVersion, Folders: entries{}, Skills: entries{}}
	if s.path == "" {
		return nil, errNoPlace
	}
	data, err := safefile.Read(s.path, maxRecordBytes, func(info fs.FileInfo) error {
		// Another user could have trusted something. Windows has no such bits.
		if runtime.GOOS != "windows" && info.Mode().Perm()&0o022 != 0 {
			return errors.New("can be written by other users; review it, then run: chmod 600 " + ShellWord(s.path))
		}
		if os.Geteuid() != 0 && !safefile.Owned(info) { // root may act in another user's home
			return errors.New("belongs to another user; remove it and trust your folders again")
		}
		return nil
	})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return empty, nil
	case err != nil:
		return nil, s.broken(err.Error())
	}
	rec := record{}
	if err := json.Unmarshal(data, &rec); err != nil {
		return nil, s.broken("is damaged; remove it and trust your folders again")
	}
	if rec.Version != recordVersion {
		return nil, s.broken(fmt.Sprintf("has version %d, and this toolcrib knows %d only", rec.Version, recordVersion))
	}
	if rec.Folders == nil {
		rec.Folders = entries{}
	}
	if rec.Skills == nil {
		rec.Skills = entries{}
	}
	return &rec, nil
}

func (s Store) broken(why string) error {
	return fmt.Errorf("nothing is trusted: the record %s %s", s.path, why)
}

// update changes the record: under a lock, so that no process undoes what another
// has just trusted or revoked, and by replacing the file, so that none ever reads
// half of it.
func (s Store) update(change func(entries) error) error {
	if s.path == "" {
		return errNoPlace
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
	if err := change(rec.of(s)); err != nil {
		return err
	}
	if len(rec.of(s)) > maxFolders {
		return fmt.Errorf("more than %d folders are trusted; revoke some, or remove %s", maxFolders, s.path)
	}
	data, err := json.MarshalIndent(rec, "", "  ")
	if err != nil {
		return err
	}
	return safefile.Replace(s.path, ".trust-", append(data, '\n'))
}

// maxCopy bounds the file of a copy. What would be larger is not kept.
const maxCopy = 8 << 20

// Copy is what was trusted of a name in a folder. It is there to show a person what has
// changed since; nothing is decided by it.
type Copy struct {
	Hash  string            `json:"hash"`
	Files map[string][]byte `json:"files"`
}

// Keep keeps a copy of what is trusted under a name of a folder, in place of the one
// before. Where that cannot be done all of it is shown when it changes.
func (s Store) Keep(dir, name string, c Copy) {
	root, err := realPath(dir)
	if err != nil || s.path == "" {
		return
	}
	path := s.copyPath(root, name)
	if data, err := json.Marshal(c); err == nil && len(data) <= maxCopy && os.MkdirAll(filepath.Dir(path), 0o700) == nil {
		_ = safefile.Replace(path, ".trust-", data) // without a copy, no differences are shown
	}
}

// LastTrusted returns what was trusted last under a name of a folder. ok is false if
// no copy is kept.
func (s Store) LastTrusted(dir, name string) (c Copy, ok bool) {
	root, err := realPath(dir)
	known, knownErr := s.entries()
	if err != nil || knownErr != nil {
		return Copy{}, false
	}
	data, err := safefile.Read(s.copyPath(root, name), maxCopy)
	if err != nil || json.Unmarshal(data, &c) != nil || known[root][name] != c.Hash {
		return Copy{}, false
	}
	return c, c.Hash != ""
}

// copyPath is the file of a copy, in a folder beside the record.
func (s Store) copyPath(root, name string) string {
	if s.skills {
		root = "skills:" + root
	}
	sum := sha256.Sum256([]byte(filepath.Join(root, name)))
	return filepath.Join(s.path+".d", hex.EncodeToString(sum[:16])+".json")
}
