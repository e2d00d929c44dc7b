package trust

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/toolcrib/toolcrib/internal/safefile"
)

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
		_ = safefile.Replace(path, ".trust-", data)
	}
}

// LastTrusted returns what was trusted last under a name of a folder. ok is false if
// no copy is kept.
func (s Store) LastTrusted(dir, name string) (c Copy, ok bool) {
	root, err := realPath(dir)
	if err != nil {
		return Copy{}, false
	}
	rec, err := s.read()
	if err != nil {
		return Copy{}, false
	}
	c, ok = s.Kept(dir, name)
	return c, ok && c.Hash != "" && rec.Folders[root][name] == c.Hash
}

// Kept returns the copy that was kept last under a name of a folder, whether it was
// trusted in the end or not. ok is false if no copy is kept.
func (s Store) Kept(dir, name string) (c Copy, ok bool) {
	root, err := realPath(dir)
	if err != nil || s.path == "" {
		return Copy{}, false
	}
	data, err := safefile.Read(s.copyPath(root, name), maxCopy)
	if err != nil || json.Unmarshal(data, &c) != nil {
		return Copy{}, false
	}
	return c, true
}

// copyPath is the file of a copy, in a folder beside the record.
func (s Store) copyPath(root, name string) string {
	sum := sha256.Sum256([]byte(filepath.Join(root, name)))
	return filepath.Join(s.path+".d", hex.EncodeToString(sum[:16])+".json")
}
