package skill

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/safefile"
)

// Dir is a folder that holds skills, each a folder of its own with a SKILL.md.
type Dir struct {
	Path   string // absolute, or relative to the current folder
	Source string // for people: workspace, user, configured
	// Links are followed if they lead to a folder that belongs to the user of this process
	// or to root; else a link is no skill.
	Links bool
	// Files are the folder's files as they were read before, by path with slashes
	// (trust.Folder has them): the skills are then made of these very bytes, so that
	// what was trusted is what is used. nil = read the folder.
	Files map[string][]byte
}

// Library holds the skills that were found, as they were at one time. A nil
// library has none.
type Library struct {
	skills map[string]*Skill
	// broken are names whose first folder cannot be used, with the reason.
	broken map[string]Problem
}

// maxDirEntries bounds what lies in a folder that holds skills.
const maxDirEntries = 10_000

// Load reads the skills of some folders, which must be trusted by then (contract
// §2): that is the caller's to ask. The first folder that has a skill of a name
// has it for good: one in a later folder is shadowed, also if the first is broken
// or switched off, so that an attempt to replace a skill never falls back to
// another silently. The library is never nil. A folder that is not there is a
// problem of the harmless kind, and so is a folder without a SKILL.md. Files beside
// the skills and folders whose name begins with a dot are passed over. aliases are names
// that other programs have for tools, with the names here.
func Load(dirs []Dir, aliases map[string]string) (*Library, []Problem) {
	l := &loader{library: &Library{skills: map[string]*Skill{}, broken: map[string]Problem{}}, aliases: aliases}
	for i, dir := range dirs {
		l.source = dir.Source
		if i == MaxDirs {
			l.problem(Problem{
				Code: CodeTooMany, Path: dir.Path,
				Message: fmt.Sprintf("more than %d folders hold skills; this one and the rest are passed over", MaxDirs),
			})
			break
		}
		if dir.Files != nil {
			l.fromFiles(dir)
		} else {
			l.fromDisk(dir)
		}
	}
	return l.library, l.problems
}

type loader struct {
	library  *Library
	problems []Problem
	aliases  map[string]string
	source   string // of the folder that is read
	bytes    int64
	full     bool
}

func (l *loader) problem(p Problem) {
	p.Source = l.source
	l.problems = append(l.problems, p)
}

func (l *loader) unreadable(path string, err error) {
	l.problem(Problem{Code: CodeUnreadable, Path: path, Message: "cannot be read: " + plainCause(err)})
}

func (l *loader) fromDisk(dir Dir) {
	root, err := os.OpenRoot(dir.Path)
	if errors.Is(err, fs.ErrNotExist) {
		l.problem(Problem{Code: CodeNoFolder, Path: dir.Path, Message: "there is no such folder"})
		return
	}
	if err != nil {
		l.unreadable(dir.Path, err)
		return
	}
	defer root.Close() //nolint:errcheck // only read
	names, links, err := list(root)
	if err != nil {
		l.unreadable(dir.Path, err)
		return
	}
	for _, name := range names {
		l.one(dir, name, topNames(root, name), func() (content, error) { return readFolder(root, name) })
	}
	for _, name := range links {
		l.link(dir, name)
	}
}

// topNames returns the names in a skill's folder, as far as they can be read: it is
// only for telling whether it is one.
func topNames(root *os.Root, name string) []string {
	d, err := root.OpenFile(name, os.O_RDONLY|safefile.NonBlock, 0)
	if err != nil {
		return []string{FileName} // reading the folder says what is wrong
	}
	defer d.Close() //nolint:errcheck // only read
	names, err := d.Readdirnames(MaxFolderFiles + 1)
	if err != nil && !errors.Is(err, io.EOF) || len(names) > MaxFolderFiles {
		return []string{FileName}
	}
	return names
}

// link loads a skill that is a link to a folder elsewhere.
func (l *loader) link(dir Dir, name string) {
	real, why := leadsTo(dir, name)
	if why != "" {
		if !l.taken(dir, name) {
			l.refuse(Problem{
				Code: CodeInvalid, Skill: name, Path: filepath.Join(dir.Path, name), Message: "no skill: it is a link" + why,
			})
		}
		return
	}
	root, err := os.OpenRoot(filepath.Dir(real))
	if err != nil {
		l.unreadable(real, err)
		return
	}
	defer root.Close() //nolint:errcheck // only read
	l.one(dir, name, topNames(root, filepath.Base(real)), func() (content, error) {
		return readFolder(root, filepath.Base(real))
	})
	if s := l.library.skills[name]; s != nil && s.Path == filepath.Join(dir.Path, name) {
		s.real = real
	}
}

// leadsTo returns the folder that a link leads to, or why it is not followed.
func leadsTo(dir Dir, name string) (real, why string) {
	if !dir.Links {
		return "", "; a skill must be a folder, so copy it here"
	}
	real, err := filepath.EvalSymlinks(filepath.Join(dir.Path, name))
	if err == nil {
		real, err = filepath.Abs(real)
	}
	top, err2 := filepath.EvalSymlinks(dir.Path)
	if err2 == nil {
		top, err2 = filepath.Abs(top)
	}
	if err != nil || err2 != nil {
		return "", " to nothing, or to itself"
	}
	info, err := os.Lstat(real)
	above, err2 := filepath.Rel(real, top)
	switch {
	case err != nil || !info.IsDir():
		return "", ", and not to a folder"
	case err2 != nil || filepath.IsLocal(above):
		return "", " to a folder that it lies in"
	case !safefile.Owned(info):
		return "", " to a folder of another user"
	}
	return real, ""
}

// list returns the names of the folders and links that may be skills, sorted.
func list(root *os.Root) (names, links []string, err error) {
	d, err := root.Open(".")
	if err != nil {
		return nil, nil, err
	}
	defer d.Close() //nolint:errcheck // only read
	entries, err := d.ReadDir(maxDirEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	if len(entries) > maxDirEntries {
		return nil, nil, fmt.Errorf("it holds more than %d entries", maxDirEntries)
	}
	for _, e := range entries {
		name := e.Name()
		switch {
		case strings.HasPrefix(name, "."):
		case e.IsDir():
			names = append(names, name)
		case e.Type()&fs.ModeSymlink != 0 && ValidName(name):
			links = append(links, name)
		}
	}
	slices.Sort(names)
	slices.Sort(links)
	return names, links, nil
}

// fromFiles loads the skills of a folder that was read before.
func (l *loader) fromFiles(dir Dir) {
	folders := map[string]map[string][]byte{}
	for name, data := range dir.Files {
		folder, rest, ok := strings.Cut(name, "/")
		if !ok || strings.HasPrefix(folder, ".") {
			continue
		}
		if folders[folder] == nil {
			folders[folder] = map[string][]byte{}
		}
		folders[folder][rest] = data
	}
	for _, name := range slices.Sorted(maps.Keys(folders)) {
		l.one(dir, name, slices.Collect(maps.Keys(folders[name])),
			func() (content, error) { return fromMemory(folders[name]) })
	}
}

// taken reports whether a folder before has this name.
func (l *loader) taken(dir Dir, name string) bool {
	where := l.library.broken[name].Path
	if s := l.library.skills[name]; s != nil {
		where = s.Path
	}
	if where == "" {
		return false
	}
	l.problem(Problem{
		Code: CodeShadowed, Skill: name, Path: filepath.Join(dir.Path, name),
		Message: "it is not used: the skill of this name is " + guard.Visible(where),
	})
	return true
}

// refuse notes that the name belongs to a folder that cannot be used.
func (l *loader) refuse(p Problem) {
	l.library.broken[p.Skill] = p
	l.problem(p)
}

// one loads one skill. top are the names in its folder.
func (l *loader) one(dir Dir, name string, top []string, read func() (content, error)) {
	p := Problem{Code: CodeInvalid, Skill: name, Path: filepath.Join(dir.Path, name)}
	named := meaning(top)
	switch {
	case !ValidName(name) && named == "":
		return // nothing can ask for it, and it does not mean to be a skill
	case !ValidName(name):
		p.Skill, p.Path = "", filepath.Join(dir.Path, short(name))
		p.Message = "no skill: a skill's folder is called by " + nameRule
		l.problem(p)
		return
	case named == "":
		p.Skill, p.Code, p.Message = "", CodeNotice, errNoSkill.Message
		l.problem(p)
		return
	case l.taken(dir, name):
		return
	case l.full || len(l.library.skills)+len(l.library.broken) >= MaxSkills:
		l.tooMany(p, fmt.Sprintf("more than %d skills", MaxSkills))
		return
	}
	c, err := read()
	if l.bytes += c.bytes; err == nil && l.bytes > MaxLibraryBytes {
		l.tooMany(p, fmt.Sprintf("more than %d bytes of skills", MaxLibraryBytes))
		return
	}
	var s *Skill
	if err == nil {
		s, err = Parse(name, c.main, l.aliases)
	}
	var known *Error
	switch {
	case errors.Is(err, errNoSkill):
		p.Message = fmt.Sprintf("no skill: its %s must be a file called %s", quote(named), FileName)
	case errors.As(err, &known):
		p.Line, p.Message = known.Line, known.Message
	case err != nil:
		p.Code, p.Message = CodeUnreadable, "cannot be read: "+plainCause(err)
	default:
		l.add(dir, s, c)
		return
	}
	l.refuse(p)
}

// tooMany says once that the library is full.
func (l *loader) tooMany(p Problem, what string) {
	p.Code, p.Message = CodeTooMany, "it is not loaded: there are "+what
	if l.full {
		l.library.broken[p.Skill] = p
		return
	}
	l.full = true
	p.Message += "; those after it are not loaded either"
	l.refuse(p)
}

func (l *loader) add(dir Dir, s *Skill, c content) {
	s.Source, s.Path, s.Hash, s.Files = dir.Source, filepath.Join(dir.Path, s.Name), c.hash(), c.files
	// Where it is not known, its files cannot be read later, only its text.
	s.real, _ = filepath.Abs(s.Path)
	l.library.skills[s.Name] = s
	for _, n := range s.Notices {
		l.problem(Problem{Code: CodeNotice, Skill: s.Name, Path: s.Path, Message: n})
	}
}

// Skills returns the skills that can be used, switched off ones too, sorted by
// name.
func (l *Library) Skills() []*Skill {
	if l == nil {
		return nil
	}
	return slices.SortedFunc(maps.Values(l.skills), func(a, b *Skill) int { return strings.Compare(a.Name, b.Name) })
}

// Skill returns the usable skill of a name, or nil.
func (l *Library) Skill(name string) *Skill {
	if l == nil {
		return nil
	}
	return l.skills[name]
}

// Broken says why the skill of a name cannot be used; false = none of
// that name, or it can.
func (l *Library) Broken(name string) (Problem, bool) {
	if l == nil {
		return Problem{}, false
	}
	p, ok := l.broken[name]
	return p, ok
}
