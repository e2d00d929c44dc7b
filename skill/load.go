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

// Dir is a folder of skills, each of which is a folder with a SKILL.md.
type Dir struct {
	Path   string // absolute
	Source string // for people: workspace, user, configured
	// Links permits links to folders that belong to the user of this process or to root. Any other link
	// is not a skill.
	Links bool
	// Files are the folder's files as they were read before, by path with slashes (see trust.Folder).
	// The skills are then made from these bytes, so that trusted content and used content are the same.
	// If nil, the folder is read.
	Files map[string][]byte
}

// maxDirEntries bounds the entries of a folder of skills.
const maxDirEntries = 10_000

// Load reads the skills of folders, which the caller must have found to be trusted. The first folder that has a
// skill of some name owns the name: a skill in a later folder is shadowed, even if the first is broken or disabled,
// so that a failed replacement of a skill never silently falls back to another. all contains the skills in the
// order in which they were found; one that is broken or shadowed has only its name, path and reason. problems are
// the errors that are not about a single skill. Missing folders, files next to the skills, folders without a
// SKILL.md and folders whose name begins with a dot are skipped. aliases maps other programs' tool names to ours.
func Load(dirs []Dir, aliases map[string]string) (all []*Skill, problems []string) {
	l := &loader{first: map[string]*Skill{}, aliases: aliases}
	for i, dir := range dirs {
		if i == MaxDirs {
			l.problem(dir.Path, "more than %d folders hold skills; this one and the rest are skipped", MaxDirs)
			break
		}
		if dir.Files != nil {
			l.fromFiles(dir)
		} else if err := l.fromDisk(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			l.problem(dir.Path, "cannot be read: %s", guard.Visible(safefile.Cause(err).Error()))
		}
	}
	return l.all, l.problems
}

type loader struct {
	all      []*Skill
	first    map[string]*Skill // owner of each name
	problems []string
	aliases  map[string]string
	bytes    int64
	full     bool
}

func (l *loader) problem(path, format string, args ...any) {
	l.problems = append(l.problems, path+": "+fmt.Sprintf(format, args...))
}

func (l *loader) fromDisk(dir Dir) error {
	root, err := os.OpenRoot(dir.Path)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // only read
	entries, err := list(root)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink != 0 {
			l.link(dir, e.Name())
		} else {
			l.below(dir, e.Name(), root, e.Name())
		}
	}
	return nil
}

// link loads a skill that is a link to a folder elsewhere.
func (l *loader) link(dir Dir, name string) {
	real, why := leadsTo(dir, name)
	if why != "" {
		if s := l.begin(dir, name); s != nil {
			s.broken("no skill: it is a link%s", why)
		}
		return
	}
	root, err := os.OpenRoot(filepath.Dir(real))
	if err != nil {
		l.problem(real, "cannot be read: %s", guard.Visible(safefile.Cause(err).Error()))
		return
	}
	defer root.Close() //nolint:errcheck // only read
	l.below(dir, name, root, filepath.Base(real))
}

// below loads the skill in a folder below root.
func (l *loader) below(dir Dir, name string, root *os.Root, base string) {
	real := filepath.Join(root.Name(), base)
	l.one(dir, name, real, topNames(root, base), func(c *content) error { return c.folder(root, base, "") })
}

// topNames returns the names in a skill's folder that can be read, to determine whether it is a skill.
func topNames(root *os.Root, name string) []string {
	d, err := root.OpenFile(name, os.O_RDONLY|safefile.NonBlock, 0)
	if err != nil {
		return []string{FileName} // reading the folder reports the error
	}
	defer d.Close() //nolint:errcheck // only read
	names, err := d.Readdirnames(MaxFolderFiles + 1)
	if err != nil && !errors.Is(err, io.EOF) || len(names) > MaxFolderFiles {
		return []string{FileName}
	}
	return names
}

// leadsTo returns the target folder of a link, or why it is not followed.
func leadsTo(dir Dir, name string) (real, why string) {
	if !dir.Links {
		return "", "; a skill must be a folder, so copy it here"
	}
	real, err := filepath.EvalSymlinks(filepath.Join(dir.Path, name))
	top, err2 := filepath.EvalSymlinks(dir.Path)
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

// list returns the folders and links that may be skills, sorted.
func list(root *os.Root) (found []fs.DirEntry, err error) {
	d, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer d.Close() //nolint:errcheck // only read
	entries, err := d.ReadDir(maxDirEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(entries) > maxDirEntries {
		return nil, fmt.Errorf("it holds more than %d entries", maxDirEntries)
	}
	found = slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
		isLink := e.Type()&fs.ModeSymlink != 0 && ValidName(e.Name())
		return strings.HasPrefix(e.Name(), ".") || !e.IsDir() && !isLink
	})
	slices.SortFunc(found, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return found, nil
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
		files := folders[name]
		l.one(dir, name, filepath.Join(dir.Path, name), slices.Collect(maps.Keys(files)),
			func(c *content) error { return c.memory(files) })
	}
}

// begin adds a skill with a name. It returns nil if an earlier folder has the name.
func (l *loader) begin(dir Dir, name string) *Skill {
	s := &Skill{Name: name, Source: dir.Source, Path: filepath.Join(dir.Path, name)}
	l.all = append(l.all, s)
	if first := l.first[name]; first != nil {
		s.Reason, s.Detail = ReasonShadowed, "it is not used: the skill of this name is "+guard.Visible(first.Path)
		return nil
	}
	l.first[name] = s
	return s
}

// broken sets the reason why a skill cannot be used.
func (s *Skill) broken(format string, args ...any) {
	s.Reason, s.Detail = ReasonBroken, fmt.Sprintf(format, args...)
}

// one loads one skill. real is its folder without links, and top are the names in it.
func (l *loader) one(dir Dir, name, real string, top []string, read func(*content) error) {
	named := meaning(top)
	if named == "" {
		return // not meant as a skill
	}
	if !ValidName(name) {
		l.problem(filepath.Join(dir.Path, short(name)), "no skill: a skill's folder is called by "+nameRule)
		return
	}
	s := l.begin(dir, name)
	switch {
	case s == nil:
		return
	case l.full || len(l.first) > MaxSkills:
		l.tooMany(s, fmt.Sprintf("%d skills", MaxSkills))
		return
	}
	var c content
	err := read(&c)
	if l.bytes += c.bytes; err == nil && l.bytes > MaxLibraryBytes {
		l.tooMany(s, fmt.Sprintf("%d bytes of skills", MaxLibraryBytes))
		return
	}
	if err == nil && c.main == nil {
		err = folderErrorf("its %s must be a file called %s", quote(named), FileName)
	}
	var parsed *Skill
	if err == nil {
		parsed, err = Parse(name, c.main, l.aliases)
	}
	var known *Error
	switch {
	case errors.As(err, &known):
		s.broken("%v", known)
	case err != nil:
		s.broken("cannot be read: %s", guard.Visible(safefile.Cause(err).Error()))
	default:
		slices.SortFunc(c.files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
		parsed.Source, parsed.Path, parsed.Hash, parsed.Files, parsed.real = s.Source, s.Path, c.hash(), c.files, real
		*s = *parsed
	}
}

// tooMany reports once that no more skills are loaded.
func (l *loader) tooMany(s *Skill, what string) {
	s.broken("it is not loaded: there are more than %s", what)
	if !l.full {
		s.Detail += "; those after it are not loaded either"
	}
	l.full = true
}
