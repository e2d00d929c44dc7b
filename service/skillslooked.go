package service

import (
	"path/filepath"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/skill"
)

// Looked remembers which content of a skill a person has looked at: its hash, by
// the folder that it lies in. It is kept beside the record of trusted folders, in
// the user's state folder, so that no configuration can move it.
type Looked struct {
	record trust.Store
	err    error // there is no such place: nothing is approved
	// tell writes down in the audit log that a content counts; it comes first.
	tell func(kind toolcrib.Kind, s *skill.Skill) error
}

// lookedName is the record's place, beside that of trusted folders.
const lookedName = "skills.json"

func newLooked(trusted trust.Store, tell func(toolcrib.Kind, *skill.Skill) error) *Looked {
	dir := filepath.Dir(trusted.Path())
	return &Looked{record: trust.NewStore(filepath.Join(dir, lookedName)), tell: tell}
}

// Standing reports what is known of the content of a skill: trust.Trusted = looked
// at, trust.Changed = another content was, trust.Untrusted = never seen.
func (l *Looked) Standing(s *skill.Skill) (trust.State, error) {
	if l.err != nil {
		return trust.Untrusted, l.err
	}
	return l.record.CheckFolder(s.Path, trust.Folder{Hash: s.Hash})
}

// Approve remembers the content of the skill as it was loaded: a person has looked at
// it, or it is used for the first time (kind).
func (l *Looked) Approve(s *skill.Skill, kind toolcrib.Kind) error {
	if l.err != nil {
		return l.err
	}
	if err := l.tell(kind, s); err != nil {
		return err
	}
	l.keep(s)
	return l.record.TrustFiles(filepath.Dir(s.Path), []trust.File{{Name: s.Name, State: trust.Trusted, Hash: s.Hash}})
}

// keep keeps a copy of the skill. Without one only what has changed cannot be shown.
func (l *Looked) keep(s *skill.Skill) {
	if l.err != nil {
		return
	}
	if old, ok := l.Kept(s); ok && old.Hash == s.Hash {
		return
	}
	if files, err := SkillFiles(s); err == nil {
		l.record.Keep(filepath.Dir(s.Path), s.Name, trust.Copy{Hash: s.Hash, Files: files})
	}
}

// Kept returns what was kept of the skill when it was approved.
func (l *Looked) Kept(s *skill.Skill) (trust.Copy, bool) {
	if l.err != nil {
		return trust.Copy{}, false
	}
	return l.record.Kept(filepath.Dir(s.Path), s.Name)
}

// Approved returns what a person has looked at last.
func (l *Looked) Approved(s *skill.Skill) (trust.Copy, bool) {
	if l.err != nil {
		return trust.Copy{}, false
	}
	return l.record.LastTrusted(filepath.Dir(s.Path), s.Name)
}

// SkillFiles are the files of a skill, as they were when it was loaded.
func SkillFiles(s *skill.Skill) (map[string][]byte, error) {
	files := make(map[string][]byte, len(s.Files))
	for _, f := range s.Files {
		data, err := s.ReadFile(f.Name)
		if err != nil {
			return nil, err
		}
		files[f.Name] = data
	}
	return files, nil
}
