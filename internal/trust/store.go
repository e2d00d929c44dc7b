package trust

import (
	"context"
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
	recordVersion = 1
	maxFolders    = 10_000
	lockPatience  = 5 * time.Second
	recordName    = "trust.json" // among shared files
)

// Store is the record of the files that are trusted. Several processes may use it at once. The zero value has no
// file: it trusts nothing, and each use is an error.
type Store struct {
	path   string // of the user's own record
	shared toolcrib.Files
	part   func(*record) entries // if nil, that of folders
}

// NewStore returns the record in the file path, which need not exist. If path is "", it returns the
// zero Store.
func NewStore(path string) Store { return Store{path: path} }

// Shared returns the record with a part that all users of files have in common. It decides about everything but
// what is read before the files are known, which the user's own record decides: see [early]. Trust is given in both.
func (s Store) Shared(files toolcrib.Files) Store {
	s.shared = files
	return s
}

// early reports whether a file of a folder is read before shared files are known, or only by a person's own
// conversation.
func early(name string) bool {
	return name == "toolcrib.yaml" || name == ".mcp.json" || slices.Contains(CommandFolders(), name)
}

// Skills returns the record of single skills, by the folder that contains them and their name. It
// is independent of the trust in the folder.
func (s Store) Skills() Store {
	s.part = func(r *record) entries { return r.Skills }
	return s
}

// declines returns the record of the files that the user has declined to trust.
func (s Store) declines() Store {
	return Store{path: s.path, part: func(r *record) entries { return r.Declined }}
}

// place is one of the records of a Store.
type place struct {
	files toolcrib.Files
	name  string
	shown string // names it in messages
}

// own returns the user's own record.
func (s Store) own() place {
	check := func(info fs.FileInfo) error {
		// Another user could have added entries. Windows has no permission bits.
		if runtime.GOOS != "windows" && info.Mode().Perm()&0o022 != 0 {
			return errors.New("can be written by other users; review it, then run: chmod 600 " + ShellWord(s.path))
		}
		if os.Geteuid() != 0 && !safefile.Owned(info) { // root may act in another user's home
			return errors.New("belongs to another user; remove it and trust your folders again")
		}
		return nil
	}
	folder := safefile.Folder{Dir: filepath.Dir(s.path), Patience: lockPatience, Check: check}
	return place{folder, filepath.Base(s.path), s.path}
}

// places returns all records, the user's own first.
func (s Store) places() (all []place) {
	if s.path != "" {
		all = append(all, s.own())
	}
	if s.shared != nil {
		all = append(all, place{s.shared, recordName, recordName})
	}
	return all
}

// of returns the record that decides about a name.
func (s Store) of(name string) (place, error) {
	all := s.places()
	switch own := early(name) && s.part == nil; {
	case len(all) == 0, own && s.path == "":
		return place{}, errNoPlace
	case own:
		return all[0], nil
	}
	return all[len(all)-1], nil
}

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
	// Declined has, with the name "", the digest of the files that the user has declined to trust.
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
	known, err := s.entries("")
	return slices.Sorted(maps.Keys(known)), err
}

// entries returns the entries that decide about a name. On an error they are nil, so that nothing is trusted.
func (s Store) entries(name string) (entries, error) {
	p, err := s.of(name)
	if err != nil {
		return nil, err
	}
	data, err := p.files.File(context.Background(), p.name)
	if err != nil && !errors.Is(err, toolcrib.ErrNotFound) {
		return nil, p.broken(err.Error())
	}
	rec, err := p.decode(data)
	if err != nil {
		return nil, err
	}
	return s.partOf(rec), nil
}

func (s Store) partOf(r *record) entries {
	if s.part == nil {
		return r.Folders
	}
	return s.part(r)
}

// decode decodes a record; nil is one that does not exist.
func (p place) decode(data []byte) (*record, error) {
	rec := record{Version: recordVersion}
	if data != nil {
		rec = record{}
		if err := json.Unmarshal(data, &rec); err != nil {
			return nil, p.broken("is damaged; remove it and trust your folders again")
		}
		if rec.Version != recordVersion {
			return nil, p.broken(fmt.Sprintf("has version %d, and this toolcrib knows %d only", rec.Version, recordVersion))
		}
	}
	for _, e := range []*entries{&rec.Folders, &rec.Skills, &rec.Declined} {
		if *e == nil {
			*e = entries{}
		}
	}
	return &rec, nil
}

// Decline records that the user does not trust files of a folder, by their [Digest], and need not be asked again.
func (s Store) Decline(dir, digest string) error {
	root, err := realPath(dir)
	if err != nil {
		return err
	}
	return s.declines().update(func(known entries) error {
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
	known, readErr := s.declines().entries("")
	return err == nil && readErr == nil && known[root][""] == digest
}

func (p place) broken(why string) error {
	return fmt.Errorf("nothing is trusted: the record %s %s", p.shown, why)
}

// update changes all records, each so that no concurrent change is lost.
func (s Store) update(change func(entries) error) error {
	all := s.places()
	if len(all) == 0 {
		return errNoPlace
	}
	var errs []error
	for _, p := range all {
		errs = append(errs, s.updateIn(p, change))
	}
	return errors.Join(errs...)
}

// errUnchanged is returned by a change that changes nothing.
var errUnchanged = errors.New("unchanged")

func (s Store) updateIn(p place, change func(entries) error) error {
	var refused error
	err := p.files.ChangeFile(context.Background(), p.name, func(before []byte) ([]byte, error) {
		rec, err := p.decode(before)
		if err == nil {
			err = change(s.partOf(rec))
		}
		if err == nil && len(s.partOf(rec)) > maxFolders {
			err = fmt.Errorf("more than %d folders are trusted; revoke some, or remove %s", maxFolders, p.shown)
		}
		if refused = err; err != nil {
			return nil, err
		}
		data, err := json.MarshalIndent(rec, "", "  ")
		return append(data, '\n'), err
	})
	switch {
	case errors.Is(refused, errUnchanged):
		return nil
	case err == nil || refused != nil:
		return refused
	}
	return fmt.Errorf("the record of trusted folders cannot be written: %w", err)
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
	if err != nil {
		return
	}
	if data, err := json.Marshal(c); err == nil && len(data) <= maxCopy {
		s.putCopy(root, name, data)
	}
}

// putCopy replaces or, if data is nil, removes a copy. Without one, no differences are shown.
func (s Store) putCopy(root, name string, data []byte) {
	p, err := s.of(name)
	if err != nil {
		return
	}
	name = s.copyName(p, root, name)
	_ = p.files.ChangeFile(context.Background(), name, func([]byte) ([]byte, error) { return data, nil })
}

// LastTrusted returns the content that was last trusted under a name in a folder. ok is false if
// there is no copy.
func (s Store) LastTrusted(dir, name string) (c Copy, ok bool) {
	root, err := realPath(dir)
	known, knownErr := s.entries(name)
	if err != nil || knownErr != nil {
		return Copy{}, false
	}
	p, err := s.of(name)
	if err != nil {
		return Copy{}, false
	}
	data, err := p.files.File(context.Background(), s.copyName(p, root, name))
	if err != nil || json.Unmarshal(data, &c) != nil || known[root][name] != c.Hash {
		return Copy{}, false
	}
	return c, c.Hash != ""
}

// copyName returns the name of the file of a copy, in a folder next to the record.
func (s Store) copyName(p place, root, name string) string {
	if s.part != nil {
		root = "skills:" + root
	}
	sum := sha256.Sum256([]byte(filepath.Join(root, name)))
	return p.name + ".d/" + hex.EncodeToString(sum[:16]) + ".json"
}
