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

// Store is the record of the files that one user trusts, a JSON file. Several processes may use it
// at once. The zero value has no file: it trusts nothing, and each use is an error.
type Store struct {
	path string
	// skills and declined say whether it is the record of single skills, or of what the user has declined to trust, in the
	// same file.
	skills, declined bool
}

// NewStore returns the record in the file path, which need not exist. If path is "", it returns the
// zero Store.
func NewStore(path string) Store { return Store{path: path} }

// Skills returns the record of single skills, by the folder that contains them and their name. It
// is independent of the trust in the folder.
func (s Store) Skills() Store { return Store{path: s.path, skills: true} }

// DefaultPath returns $XDG_STATE_HOME/toolcrib/trust.json, or the same under ~/.local/state, or ""
// if both are unknown.
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

// record is the content of the file.
type record struct {
	Version int     `json:"version"`
	Folders entries `json:"folders"`
	Skills  entries `json:"skills,omitempty"`
	// Declined has, with the name "", the digest of what the user has declined to trust.
	Declined entries `json:"declined,omitempty"`
}

// entries are the trusted hashes: real path of the folder -> name -> hash.
type entries map[string]map[string]string

// state compares a hash with the record. If e is nil, nothing is trusted.
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

// Folders returns the folders with trusted files, sorted.
func (s Store) Folders() ([]string, error) {
	known, err := s.entries()
	return slices.Sorted(maps.Keys(known)), err
}

// entries returns the entries for folders or for skills. On an error they are nil, so that nothing
// is trusted.
func (s Store) entries() (entries, error) {
	rec, err := s.read()
	if err != nil {
		return nil, err
	}
	return rec.of(s), nil
}

func (r *record) of(s Store) entries {
	switch {
	case s.skills:
		return r.Skills
	case s.declined:
		return r.Declined
	}
	return r.Folders
}

// read returns the record, or an empty one if there is no file. It returns an error if the record
// cannot be read, is damaged, or could have been written by other users.
func (s Store) read() (*record, error) {
	empty := &record{Version: recordVersion, Folders: entries{}, Skills: entries{}, Declined: entries{}}
	if s.path == "" {
		return nil, errNoPlace
	}
	data, err := safefile.Read(s.path, maxRecordBytes, func(info fs.FileInfo) error {
		// Another user could have added entries. Windows has no permission bits.
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
	if rec.Declined == nil {
		rec.Declined = entries{}
	}
	return &rec, nil
}

// Decline records that the user does not trust files of a folder, by their [Digest], and need not be asked again.
func (s Store) Decline(dir, digest string) error {
	root, err := realPath(dir)
	if err != nil {
		return err
	}
	return Store{path: s.path, declined: true}.update(func(known entries) error {
		for other := range known { // what is forgotten is asked about again
			if len(known) < maxFolders {
				break
			}
			delete(known, other)
		}
		known[root] = map[string]string{"": digest}
		return nil
	})
}

// Declined reports whether the user has declined to trust files of a folder with this digest.
func (s Store) Declined(dir, digest string) bool {
	root, err := realPath(dir)
	known, readErr := Store{path: s.path, declined: true}.entries()
	return err == nil && readErr == nil && known[root][""] == digest
}

func (s Store) broken(why string) error {
	return fmt.Errorf("nothing is trusted: the record %s %s", s.path, why)
}

// update changes the record. It holds a lock, so that concurrent changes are not lost, and replaces
// the file, so that a half-written one is never read.
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

// maxCopy bounds the file of a copy, in bytes. Larger copies are not kept.
const maxCopy = 8 << 20

// Copy is the content that was trusted under a name in a folder. It serves only to show a person
// what has changed; no decision depends on it.
type Copy struct {
	Hash  string            `json:"hash"`
	Files map[string][]byte `json:"files"`
}

// Keep replaces the copy of the content that is trusted under a name in a folder. If that fails,
// the whole content is shown after a change.
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

// LastTrusted returns the content that was last trusted under a name in a folder. ok is false if
// there is no copy.
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

// copyPath returns the file of a copy, in a folder next to the record.
func (s Store) copyPath(root, name string) string {
	if s.skills {
		root = "skills:" + root
	}
	sum := sha256.Sum256([]byte(filepath.Join(root, name)))
	return filepath.Join(s.path+".d", hex.EncodeToString(sum[:16])+".json")
}
