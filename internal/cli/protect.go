package cli

import (
	"os"
	"path/filepath"

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
	keys, err := a.keysFile()
	if err != nil {
		return gate.Protected{}, err
	}
	if keys != "" {
		p.Touch = append(p.Touch, keys)
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
