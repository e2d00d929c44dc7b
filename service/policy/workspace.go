package policy

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/service/env"
)

// Workspace returns the absolute root of the file tools for a folder. It must exist, or be that of a user of a server,
// which their first run makes. If dir is empty, it is the configured one.
func (p *Policy) Workspace(dir string, seen Paths) (string, error) {
	bad := func(format string, args ...any) (string, error) {
		return "", toolcrib.Errorf(toolcrib.CodeBadRequest, "workspace: "+format, args...)
	}
	if dir == "" {
		var err error
		if dir, err = p.env.Config.Workspace.Resolve(p.env.Resolver()); err != nil {
			return "", err
		}
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return bad("the current folder is unknown")
	}
	// Links are resolved once, here, so that every later check sees one path.
	real := abs
	if seen.at(abs) != there {
		real, err = filepath.EvalSymlinks(abs)
	}
	if err == nil {
		var info os.FileInfo
		if info, err = os.Stat(real); err == nil && !info.IsDir() {
			return bad("%s is not a folder", dir)
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && p.IsOwn(abs):
		return gate.Resolved(abs), nil
	case errors.Is(err, fs.ErrNotExist):
		return bad("%s does not exist; make it first, or name another folder", dir)
	case errors.Is(err, fs.ErrPermission):
		return bad("%s cannot be read by this user", dir)
	case err != nil:
		return bad("%s cannot be used", dir)
	}
	f, err := os.OpenRoot(real) // cheaper than os.Open
	if err != nil {
		return bad("%s cannot be read by this user", dir)
	}
	return real, f.Close()
}

// OnlyTable describes the programs that a server without a sandbox runs.
func OnlyTable(set config.Shell) string {
	return "programs that are not in its built-in table run only for " +
		strings.Join(append([]string{"administrators"}, set.Unconfined...), ", ")
}

// OwnWorkspace returns the folder for runs of a user that a server starts. The first of them makes it.
func (p *Policy) OwnWorkspace(who toolcrib.Principal) (string, error) {
	if err := env.RequireUser(who); err != nil {
		return "", err
	}
	name := who.User
	if !filepath.IsLocal(name) || filepath.Base(name) != name {
		return "", env.BadRequestf("user name cannot be used as a folder name: %s", name)
	}
	return filepath.Join(p.env.Workspaces(), name), nil
}

// IsOwn reports whether a folder is one of [Policy.OwnWorkspace], even if it does not exist.
func (p *Policy) IsOwn(dir string) bool {
	all := p.env.Workspaces()
	at := filepath.Dir(dir)
	return filepath.Base(at) == filepath.Base(all) && gate.Resolved(at) == gate.Resolved(all)
}
