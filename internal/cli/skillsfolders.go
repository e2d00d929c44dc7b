package cli

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/standin"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/skill"
)

// Where a folder of skills.dirs comes from.
const (
	sourceWorkspace  = "workspace"  // found in the current folder: counts once it is trusted
	sourceProject    = "project"    // named by a configuration of the current folder: each skill is approved first
	sourceConfigured = "configured" // named by a configuration that the user named
	sourceUser       = "user"       // in the user's own configuration folder
)

// skillFolder is a folder of skills.dirs.
type skillFolder struct {
	path, source string
	// passed says why nothing of it is used; "" = it is used.
	passed string
}

// shelf is the skills that there are, as they were read at one time.
type shelf struct {
	folders  []skillFolder
	library  *skill.Library
	problems []skill.Problem
	// What lies in folders that are not trusted. Nothing of it is used, but for
	// telling a name that is off from one that nobody has.
	aside         *skill.Library
	asideProblems []skill.Problem
	unread        string // why such a folder cannot be read: nobody knows what it has
	looked        *lookedAt
}

// readShelf reads the skills that the configuration names.
func (a *app) readShelf(c *config.Config) (*shelf, error) {
	s := &shelf{}
	store, err := a.trustStore()
	if err != nil {
		s.looked = &lookedAt{err: err} // then nothing is trusted and nothing approved
	} else {
		s.looked = newLookedAt(store, a.recordSkill)
	}
	named := c.IsSet("skills.dirs") && !config.Find(a.configFlag, os.Getenv).NeedsTrust()
	var used, aside []skill.Dir
	for _, v := range c.Skills.Dirs {
		path, err := v.Resolve(config.Resolver{}) // read by tools, too; secrets are known from protection
		if err != nil {
			return nil, err
		}
		f := skillFolder{path: path, source: sourceOf(path, named)}
		dir := skill.Dir{Path: path, Source: f.source}
		if f.source == sourceWorkspace {
			var there bool
			if dir.Files, there = s.workspace(&f, store); !there {
				continue
			}
		}
		s.folders = append(s.folders, f)
		switch {
		case f.passed == "":
			used = append(used, dir)
		case dir.Files != nil:
			aside = append(aside, dir)
		}
	}
	s.library, s.problems = skill.Load(used, skill.Options{})
	s.aside, s.asideProblems = skill.Load(aside, skill.Options{})
	return s, nil
}

// sourceOf tells where a folder comes from. named says that the user named the
// configuration that has it.
func sourceOf(path string, named bool) string {
	user := config.UserFolder(os.Getenv)
	switch {
	case user != "" && service.Inside(path, user):
		return sourceUser
	case named:
		return sourceConfigured
	case slices.Contains(trust.Names(), filepath.Base(path)):
		return sourceWorkspace
	}
	return sourceProject
}

// workspace reads a folder that must be trusted: what is used is what was hashed.
// Files that are not trusted are returned with the reason in f; false = there is no
// such folder.
func (s *shelf) workspace(f *skillFolder, store trust.Store) (files map[string][]byte, there bool) {
	if !standin.Exists(f.path) {
		return nil, false
	}
	dir, name := filepath.Split(f.path)
	dir = filepath.Clean(dir)
	content, err := trust.ReadFolder(f.path)
	if err != nil {
		file := trust.File{Name: name, Problem: "cannot be read whole"}
		if _, found, checkErr := store.Check(dir, name); checkErr == nil && found[0].Problem != "" {
			file = found[0]
		}
		f.passed = trust.PassedOver(dir, file)
		s.unread = f.passed
		return nil, true
	}
	state, err := store.CheckFolder(f.path, content)
	switch {
	case err != nil:
		f.passed = f.path + " is passed over: " + err.Error()
	case state != trust.Trusted:
		f.passed = trust.PassedOver(dir, trust.File{Name: name, State: state, Hash: content.Hash})
	}
	return content.Files, true
}

// folderOf is the folder that a path of a skill lies in.
func (s *shelf) folderOf(path string) skillFolder {
	dir := filepath.Dir(path)
	for _, f := range s.folders {
		if f.path == dir {
			return f
		}
	}
	return skillFolder{path: dir}
}

// passedOver says why a skill of a folder that is not trusted is off; "" = no such
// folder has it.
func (s *shelf) passedOver(name string) string {
	path := ""
	if one := s.aside.Skill(name); one != nil {
		path = one.Path
	} else if broken, ok := s.aside.Broken(name); ok {
		path = broken.Path
	}
	switch {
	case path != "":
		return s.folderOf(path).passed
	case skill.ValidName(name):
		return s.unread
	}
	return ""
}

// names are the names of all skills that can be asked for, sorted.
func (s *shelf) names() []string {
	var names []string
	for _, one := range s.library.Skills() {
		names = append(names, one.Name)
	}
	return names
}
