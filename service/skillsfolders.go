package service

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/standin"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/skill"
)

// Where a folder of skills.dirs comes from.
const (
	SourceWorkspace  = "workspace"  // found in the current folder: counts once it is trusted
	SourceProject    = "project"    // named by a configuration of the current folder: each skill is approved first
	SourceConfigured = "configured" // named by a configuration that the user named
	SourceUser       = "user"       // in the user's own configuration folder
)

// SkillFolder is a folder of skills.dirs.
type SkillFolder struct {
	Path, Source string
	// Passed says why nothing of it is used; "" = it is used.
	Passed string
}

// Shelf is the skills that there are, as they were read at one time.
type Shelf struct {
	Folders  []SkillFolder
	Library  *skill.Library
	Problems []skill.Problem
	// What lies in folders that are not trusted. Nothing of it is used, but for
	// telling a name that is off from one that nobody has.
	Aside         *skill.Library
	AsideProblems []skill.Problem
	Unread        string // why such a folder cannot be read: nobody knows what it has
	Looked        *Looked
}

// ReadShelf reads the skills that the configuration names. What is approved there is
// written down as the word of who.
func (svc *Service) ReadShelf(who toolcrib.Principal) (*Shelf, error) {
	c, s := svc.Config, &Shelf{}
	store, err := TrustStore()
	if err != nil {
		s.Looked = &Looked{err: err} // then nothing is trusted and nothing approved
	} else {
		s.Looked = newLooked(store, func(kind toolcrib.Kind, one *skill.Skill) error { return svc.recordSkill(who, kind, one) })
	}
	named := c.IsSet("skills.dirs") && !svc.Source.NeedsTrust()
	var used, aside []skill.Dir
	for _, v := range c.Skills.Dirs {
		path, err := v.Resolve(config.Resolver{}) // read by tools, too; secrets are known from protection
		if err != nil {
			return nil, err
		}
		f := SkillFolder{Path: path, Source: sourceOf(path, named)}
		dir := skill.Dir{Path: path, Source: f.Source}
		if f.Source == SourceWorkspace {
			var there bool
			if dir.Files, there = s.workspace(&f, store); !there {
				continue
			}
		}
		s.Folders = append(s.Folders, f)
		switch {
		case f.Passed == "":
			used = append(used, dir)
		case dir.Files != nil:
			aside = append(aside, dir)
		}
	}
	s.Library, s.Problems = skill.Load(used, skill.Options{})
	s.Aside, s.AsideProblems = skill.Load(aside, skill.Options{})
	return s, nil
}

// sourceOf returns where a folder comes from. named says that the user named the
// configuration that has it.
func sourceOf(path string, named bool) string {
	user := config.UserFolder(os.Getenv)
	switch {
	case user != "" && Inside(path, user):
		return SourceUser
	case named:
		return SourceConfigured
	case slices.Contains(trust.Names(), filepath.Base(path)):
		return SourceWorkspace
	}
	return SourceProject
}

// workspace reads a folder that must be trusted: what is used is what was hashed.
// Files that are not trusted are returned with the reason in f; false = there is no
// such folder.
func (s *Shelf) workspace(f *SkillFolder, store trust.Store) (files map[string][]byte, there bool) {
	if !standin.Exists(f.Path) {
		return nil, false
	}
	dir, name := filepath.Split(f.Path)
	dir = filepath.Clean(dir)
	content, err := trust.ReadFolder(f.Path)
	if err != nil {
		file := trust.File{Name: name, Problem: "cannot be read whole"}
		if _, found, checkErr := store.Check(dir, name); checkErr == nil && found[0].Problem != "" {
			file = found[0]
		}
		f.Passed = trust.PassedOver(dir, file)
		s.Unread = f.Passed
		return nil, true
	}
	state, err := store.CheckFolder(f.Path, content)
	switch {
	case err != nil:
		f.Passed = f.Path + " is passed over: " + err.Error()
	case state != trust.Trusted:
		f.Passed = trust.PassedOver(dir, trust.File{Name: name, State: state, Hash: content.Hash})
	}
	return content.Files, true
}

// FolderOf is the folder that a path of a skill lies in.
func (s *Shelf) FolderOf(path string) SkillFolder {
	dir := filepath.Dir(path)
	for _, f := range s.Folders {
		if f.Path == dir {
			return f
		}
	}
	return SkillFolder{Path: dir}
}

// passedOver says why a skill of a folder that is not trusted is off; "" = no such
// folder has it.
func (s *Shelf) passedOver(name string) string {
	path := ""
	if one := s.Aside.Skill(name); one != nil {
		path = one.Path
	} else if broken, ok := s.Aside.Broken(name); ok {
		path = broken.Path
	}
	switch {
	case path != "":
		return s.FolderOf(path).Passed
	case skill.ValidName(name):
		return s.Unread
	}
	return ""
}

// Names are the names of all skills that can be asked for, sorted.
func (s *Shelf) Names() []string {
	var names []string
	for _, one := range s.Library.Skills() {
		names = append(names, one.Name)
	}
	return names
}
