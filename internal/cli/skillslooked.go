package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/skill"
)

// lookedAt remembers which content of a skill a person has looked at: its hash, by
// the folder that it lies in. It is kept beside the record of trusted folders, in
// the user's state folder, so that no configuration can move it.
type lookedAt struct {
	record trust.Store
	copies string // folder of what was approved, to show what has changed since
	err    error  // there is no such place: nothing is approved
	// tell writes down in the audit log that a content counts; it comes first.
	tell func(kind toolcrib.Kind, s *skill.Skill) error
}

// The places beside the record of trusted folders.
const (
	lookedName = "skills.json"
	copiesName = "skills"
)

func newLookedAt(trusted trust.Store, tell func(toolcrib.Kind, *skill.Skill) error) *lookedAt {
	dir := filepath.Dir(trusted.Path())
	return &lookedAt{record: trust.NewStore(filepath.Join(dir, lookedName)), copies: filepath.Join(dir, copiesName), tell: tell}
}

// standing tells what is known of the content of a skill: trust.Trusted = looked
// at, trust.Changed = another content was, trust.Untrusted = never seen.
func (l *lookedAt) standing(s *skill.Skill) (trust.State, error) {
	if l.err != nil {
		return trust.Untrusted, l.err
	}
	return l.record.CheckFolder(s.Path, trust.Folder{Hash: s.Hash})
}

// approve remembers the content of the skill as it was loaded: a person has looked at
// it, or it is used for the first time (kind).
func (l *lookedAt) approve(s *skill.Skill, kind toolcrib.Kind) error {
	if l.err != nil {
		return l.err
	}
	if err := l.tell(kind, s); err != nil {
		return err
	}
	l.keep(s)
	return l.record.TrustFiles(filepath.Dir(s.Path), []trust.File{{Name: s.Name, State: trust.Trusted, Hash: s.Hash}})
}

// skillCopy is what is kept of an approved skill. Nothing is decided by it.
type skillCopy struct {
	Path  string            `json:"path"`
	Hash  string            `json:"hash"`
	Files map[string]string `json:"files"` // name -> hash
	Text  string            `json:"text"`  // of its SKILL.md
}

// maxCopy bounds the file of a copy.
const maxCopy = 4 << 20

func (l *lookedAt) copyPath(s *skill.Skill) string {
	// Links are resolved as for the record, so that one skill has one copy.
	sum := sha256.Sum256([]byte(resolved(s.Path)))
	return filepath.Join(l.copies, hex.EncodeToString(sum[:16])+".json")
}

// keep keeps a copy of the skill. Without one only what has changed cannot be shown.
func (l *lookedAt) keep(s *skill.Skill) {
	if l.err != nil {
		return
	}
	if old, ok := l.kept(s); ok && old.Hash == s.Hash {
		return
	}
	text, err := s.ReadFile(skill.FileName)
	if err != nil {
		return
	}
	c := skillCopy{Path: s.Path, Hash: s.Hash, Text: string(text), Files: make(map[string]string, len(s.Files))}
	for _, f := range s.Files {
		c.Files[f.Name] = f.Hash
	}
	data, err := json.Marshal(c)
	if err == nil && len(data) <= maxCopy {
		_ = writeWhole(l.copyPath(s), data)
	}
}

// kept returns what was kept of the skill when it was approved.
func (l *lookedAt) kept(s *skill.Skill) (skillCopy, bool) {
	var c skillCopy
	if l.err != nil {
		return c, false
	}
	f, err := os.Open(l.copyPath(s))
	if err != nil {
		return c, false
	}
	defer f.Close() //nolint:errcheck // only read
	data, err := io.ReadAll(io.LimitReader(f, maxCopy+1))
	if err != nil || len(data) > maxCopy || json.Unmarshal(data, &c) != nil {
		return skillCopy{}, false
	}
	return c, true
}

// writeWhole writes a file of this user's whole or not at all.
func writeWhole(path string, data []byte) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".copy-*") // 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
