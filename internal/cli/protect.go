package cli

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/internal/config"
)

// protection is what no tool may touch (contract §11): what steers toolcrib or its
// neighbours is never written, the data folder neither read nor written.
func (a *app) protection(workspace string) (gate.Protected, error) {
	c, err := a.configuration()
	if err != nil {
		return gate.Protected{}, err
	}
	data, err := a.dataDir()
	if err != nil {
		return gate.Protected{}, err
	}
	p := gate.Protected{
		Names:  []string{".git", ".githooks", ".husky", ".mcp.json", config.FileName},
		Touch:  []string{data},
		Except: []string{filepath.Join(data, "workspaces")},
		Write:  []string{filepath.Join(workspace, "skills")},
	}
	if c.File() != "" {
		abs, err := filepath.Abs(c.File())
		if err != nil {
			return gate.Protected{}, err
		}
		p.Write = append(p.Write, abs)
	}
	if folder := config.UserFolder(os.Getenv); folder != "" {
		p.Write = append(p.Write, folder)
	}
	if store, err := a.trustStore(); err == nil {
		p.Write = append(p.Write, filepath.Dir(store.Path()))
	}
	for _, dir := range c.Skills.Dirs {
		abs, err := dir.Resolve(a.resolver())
		if err != nil {
			return gate.Protected{}, err
		}
		p.Write = append(p.Write, abs)
	}
	if inside(workspace, data) && !inside(workspace, filepath.Join(data, "workspaces")) {
		return gate.Protected{}, usagef("the workspace %s lies in the data folder %s, which no tool may touch; choose another of the two", workspace, data)
	}
	return p, nil
}

// inside tells whether path is dir or lies below it; links are resolved as far as
// they exist.
func inside(path, dir string) bool {
	rel, err := filepath.Rel(resolved(dir), resolved(path))
	return err == nil && filepath.IsLocal(rel)
}

func resolved(path string) string {
	rest := ""
	for at := filepath.Clean(path); ; at = filepath.Dir(at) {
		if real, err := filepath.EvalSymlinks(at); err == nil {
			return filepath.Join(real, rest)
		}
		if filepath.Dir(at) == at {
			return filepath.Clean(path)
		}
		rest = filepath.Join(filepath.Base(at), rest)
	}
}

// pathRules answers the file tools, which ask once more about what is really
// open: the gate asks about what a call names, a search also meets what lies
// below that.
type pathRules struct {
	write, touch, except []string // folded
	names                map[string]bool
}

func newPathRules(p gate.Protected) *pathRules {
	r := &pathRules{names: map[string]bool{}}
	for _, name := range p.Names {
		r.names[foldPath(name)] = true
	}
	for _, list := range []struct {
		from []string
		to   *[]string
	}{{p.Write, &r.write}, {p.Touch, &r.touch}, {p.Except, &r.except}} {
		for _, path := range list.from {
			*list.to = append(*list.to, foldPath(filepath.Clean(path)), foldPath(resolved(path)))
		}
	}
	return r
}

// foldPath maps the spellings that a file system may take for one name.
func foldPath(path string) string { return strings.ToLower(path) }

// protected tells which paths may be read and never written.
func (r *pathRules) protected(abs string) bool {
	abs = foldPath(filepath.Clean(abs))
	if within(r.write, abs) {
		return true
	}
	for _, name := range strings.Split(filepath.ToSlash(abs), "/") {
		if r.names[strings.TrimRight(name, ". ")] {
			return true
		}
	}
	return false
}

// hidden tells which paths may be neither read nor written.
func (r *pathRules) hidden(abs string) bool {
	abs = foldPath(filepath.Clean(abs))
	return within(r.touch, abs) && !within(r.except, abs)
}

func within(dirs []string, path string) bool {
	for _, dir := range dirs {
		rest, ok := strings.CutPrefix(path, dir)
		if ok && (rest == "" || rest[0] == filepath.Separator || strings.HasSuffix(dir, string(filepath.Separator))) {
			return true
		}
	}
	return false
}
