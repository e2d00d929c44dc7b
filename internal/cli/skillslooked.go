package cli

import (
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
	err    error // there is no such place: nothing is approved
	// tell writes down in the audit log that a content counts; it comes first.
	tell func(kind toolcrib.Kind, s *skill.Skill) error
}

// lookedName is the record's place, beside that of trusted folders.
const lookedName = "skills.json"

func newLookedAt(trusted trust.Store, tell func(toolcrib.Kind, *skill.Skill) error) *lookedAt {
	dir := filepath.Dir(trusted.Path())
	return &lookedAt{record: trust.NewStore(filepath.Join(dir, lookedName)), tell: tell}
}

// standing reports what is known of the content of a skill: trust.Trusted = looked
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

// keep keeps a copy of the skill. Without one only what has changed cannot be shown.
func (l *lookedAt) keep(s *skill.Skill) {
	if l.err != nil {
		return
	}
	if old, ok := l.kept(s); ok && old.Hash == s.Hash {
		return
	}
	if files, err := filesOf(s); err == nil {
		l.record.Keep(filepath.Dir(s.Path), s.Name, trust.Copy{Hash: s.Hash, Files: files})
	}
}

// kept returns what was kept of the skill when it was approved.
func (l *lookedAt) kept(s *skill.Skill) (trust.Copy, bool) {
	if l.err != nil {
		return trust.Copy{}, false
	}
	return l.record.Kept(filepath.Dir(s.Path), s.Name)
}

// approved returns what a person has looked at last.
func (l *lookedAt) approved(s *skill.Skill) (trust.Copy, bool) {
	if l.err != nil {
		return trust.Copy{}, false
	}
	return l.record.LastTrusted(filepath.Dir(s.Path), s.Name)
}

// filesOf are the files of a skill, as they were when it was loaded.
func filesOf(s *skill.Skill) (map[string][]byte, error) {
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
