package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/notify/address"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/tool/shell"
)

// Finding is one thing that was looked at.
type Finding struct {
	Check  string `json:"check"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"` // what to do where it is not ok, or is a choice
	// Choice is set if a person may leave it so: it is ok.
	Choice bool `json:"choice,omitempty"`
}

// check is one thing to look at: run returns what was found, and an error if it is not as
// it should be, with what to do about it; fix is what to do where run does not say.
type check struct {
	name, fix string
	run       func(ctx context.Context) (detail, fix string, err error)
}

// ExamineData looks at the data folder and its database, for administrators.
func (s *Service) ExamineData(ctx context.Context, who toolcrib.Principal) ([]Finding, error) {
	return examined(
		ctx, who,
		check{"data folder", "make the folder writable for this user, or use another with --data-dir", s.checkData},
		check{
			"database", "check the path, the rights and the disk",
			func(ctx context.Context) (string, string, error) { return s.checkDatabase(ctx, who) },
		},
	)
}

// Examine looks at what runs stand on besides, for administrators: workspace, shell,
// approvals, budgets.
func (s *Service) Examine(ctx context.Context, who toolcrib.Principal) ([]Finding, error) {
	checks := []check{
		{"workspace", "set workspace, or start toolcrib in another folder", s.checkWorkspace},
		{"shell", "install bubblewrap", s.checkShell},
		{"approvals", "correct approvals.notify; `toolcrib approvals notify test` sends a message to each", s.checkApprovals},
	}
	if len(s.Config.Budgets) > 0 && s.store != nil {
		checks = append(checks, check{"budgets", "write the name as it is; toolcrib users list", s.checkBudgets})
	}
	return examined(ctx, who, checks...)
}

func examined(ctx context.Context, who toolcrib.Principal, checks ...check) (found []Finding, err error) {
	if _, err := Administrator(who); err != nil {
		return nil, err
	}
	for _, c := range checks {
		f := Finding{Check: c.name}
		detail, fix, err := c.run(ctx)
		if f.OK, f.Detail = err == nil, detail; err != nil {
			f.Detail, f.Fix = err.Error(), cmp.Or(fix, c.fix)
		}
		found = append(found, f)
	}
	return found, nil
}

// writable returns an error unless this user can write in a folder.
func writable(dir string) error {
	probe, err := os.CreateTemp(dir, ".toolcrib-doctor-*")
	if err != nil {
		return fmt.Errorf("%s cannot be written: %v", dir, errors.Unwrap(err))
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

func (s *Service) checkData(context.Context) (detail, fix string, err error) {
	if err := os.MkdirAll(s.DataDir, 0o700); err != nil {
		return "", "", err
	}
	if err := writable(s.DataDir); err != nil {
		return "", "", err
	}
	free, ok := freeBytes(s.DataDir)
	if !ok {
		return s.DataDir, "", nil
	}
	const least = 64 << 20 // under it a store may fail any time
	detail = fmt.Sprintf("%s (%s free)", s.DataDir, sizeText(free))
	if free < least {
		return "", "make room on the disk", errors.New(detail)
	}
	return detail, "", nil
}

// sizeText writes a size in the units that disks are sold in, as everywhere here.
func sizeText(bytes uint64) string {
	switch {
	case bytes >= 10e9:
		return fmt.Sprintf("%d GB", bytes/1e9)
	case bytes >= 1e9:
		return fmt.Sprintf("%.1f GB", float64(bytes)/1e9)
	}
	return fmt.Sprintf("%d MB", bytes/1e6)
}

func (s *Service) checkDatabase(ctx context.Context, who toolcrib.Principal) (detail, fix string, err error) {
	err = s.OpenFor(ctx, who)
	if err == nil {
		err = s.store.Check(ctx)
	}
	if err == nil {
		return s.store.Path() + ": opens, and is whole", "", nil
	}
	var broken *store.ChainError
	for _, known := range []struct {
		is  bool
		fix string
	}{
		{errors.Is(err, store.ErrOlder), "use the earlier version of toolcrib, or another --data-dir and `toolcrib runs " +
			"import`"},
		{errors.Is(err, store.ErrNewer), "use the later version of toolcrib, or another --data-dir and `toolcrib runs " +
			"import`"},
		{errors.Is(err, store.ErrCorrupt), "move the file away with its -wal and -shm files, and restore a copy"},
		{errors.Is(err, store.ErrLost), "put a copy of the database in its place (docs/journal.md)"},
		{errors.Is(err, store.ErrIncomplete), "put its -wal file back, or restore a backup (docs/journal.md)"},
		{
			errors.As(err, &broken) || errors.Is(err, store.ErrDamaged),
			"restore a copy of the data folder, or look at what `toolcrib runs verify` reports, and accept it: toolcrib runs " +
				"verify --adopt",
		},
		{errors.Is(err, store.ErrKeys), "restore the key file, or accept what is stored: toolcrib runs verify --adopt"},
		{errors.Is(err, store.ErrLocked), "end the program that holds it"},
		{errors.Is(err, store.ErrFull), "make room on the disk"},
	} {
		if known.is {
			return "", known.fix, err
		}
	}
	return "", "", err
}

func (s *Service) checkWorkspace(context.Context) (detail, fix string, err error) {
	dir, err := s.Workspace("")
	if err != nil {
		return "", "", err
	}
	if _, err := s.Protection(dir); err != nil {
		return "", "", err
	}
	detail = dir
	if why := s.Unprotected(dir); why != "" {
		detail += " (exec_shell: " + why + ")"
	}
	if writable(dir) != nil {
		detail += " (read only for this user: tools cannot write)"
	}
	return detail, "", nil
}

// Workspace returns the root of the file tools: absolute, an existing folder. If dir is
// empty, it is the one of the configuration.
func (s *Service) Workspace(dir string) (string, error) {
	bad := func(format string, args ...any) (string, error) {
		return "", toolcrib.Errorf(toolcrib.CodeBadRequest, "workspace: "+format, args...)
	}
	if dir == "" {
		var err error
		if dir, err = s.Config.Workspace.Resolve(s.Resolver()); err != nil {
			return "", err
		}
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return bad("the current folder is unknown")
	}
	// Links are resolved once, here, so that every later check sees one name.
	real, err := filepath.EvalSymlinks(abs)
	if err == nil {
		var info os.FileInfo
		if info, err = os.Stat(real); err == nil && !info.IsDir() {
			return bad("%s is not a folder", dir)
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return bad("%s does not exist; make it first, or name another folder", dir)
	case errors.Is(err, fs.ErrPermission):
		return bad("%s cannot be read by this user", dir)
	case err != nil:
		return bad("%s cannot be used", dir)
	}
	f, err := os.Open(real)
	if err != nil {
		return bad("%s cannot be read by this user", dir)
	}
	return real, f.Close()
}

func (s *Service) checkShell(context.Context) (detail, fix string, err error) {
	detail, fix, err = shellFound(s.Config.Tools.Shell, shell.Probe())
	if err != nil || s.Config.Tools.Shell.Mode == string(shell.ModeOff) {
		return detail, fix, err
	}
	path, _, err := s.programs()
	if err != nil {
		return "", "", err
	}
	workspace, _ := s.Workspace("") // the check of the workspace says what is wrong with it
	use, out := shell.SearchPath(path, workspace)
	detail += "; programs of " + strings.Join(use, ":")
	if len(out) > 0 {
		detail += "; left out: " + strings.Join(out, ", ")
	}
	if missing := shell.Missing(s.Config.Tools.Shell.Allow, use); len(missing) > 0 {
		detail += "; allowed, but not installed: " + strings.Join(missing, ", ")
	}
	return detail, "", nil
}

// shellFound says what keeps in the programs that exec_shell runs.
func shellFound(set config.Shell, r shell.Report) (detail, fix string, err error) {
	if set.Mode == string(shell.ModeOff) {
		return "off: there is no exec_shell", "", nil
	}
	does, required := "asks about every call, or set tools.shell.mode: off", set.Sandbox == string(shell.SandboxRequired)
	if required {
		does = "refuses every call (tools.shell.sandbox is required)"
	}
	if r.Problem != "" {
		return "", "install bubblewrap, or use a kernel with Landlock; until then exec_shell " + does,
			fmt.Errorf("mode %s, without a sandbox: %s", set.Mode, r.Problem)
	}
	var walls []string
	if r.Bubblewrap != "" {
		walls = append(walls, "bubblewrap ("+r.Bubblewrap+")")
	}
	if r.LandlockABI > 0 {
		walls = append(walls, fmt.Sprintf("Landlock ABI %d", r.LandlockABI))
	}
	if r.Seccomp {
		walls = append(walls, "seccomp")
	}
	detail = fmt.Sprintf("mode %s, sandbox: %s", set.Mode, strings.Join(walls, ", "))
	if r.Bubblewrap != "" {
		return detail, "", nil
	}
	detail += "; without bubblewrap protected files cannot be kept from other programs than those of the built-in " +
		"table, so each such call "
	if required {
		return "", "", errors.New(detail + "is refused (tools.shell.sandbox is required)")
	}
	return detail + "asks", "", nil
}

// checkApprovals reports whether the addresses of approvals.notify can be tried. None is
// sent anything.
func (s *Service) checkApprovals(context.Context) (detail, fix string, err error) {
	set := s.Config.Approvals
	detail = "expire after " + set.Expire.String()
	if set.Expire <= 0 {
		detail = "never expire"
	}
	if set.FourEyes {
		detail += "; four eyes: nobody approves calls of a run of their own"
	}
	if len(set.Notify) == 0 {
		return detail + "; nobody is notified of them", "", nil
	}
	wrong := false
	for i := range set.Notify {
		t, err := s.target(&set.Notify[i])
		if err != nil {
			wrong = true
			detail += "\n" + err.Error()
			continue
		}
		detail += fmt.Sprintf("\n%s is notified, by %s", address.Where(t.Address), address.Scheme(t.Address))
		if address.IsClear(t.Address) {
			detail += "; " + inTheClear
		}
	}
	if wrong {
		return "", "", errors.New(detail)
	}
	return detail, "", nil
}

// checkBudgets looks for budgets whose user is spelt unlike a user that there is.
func (s *Service) checkBudgets(ctx context.Context) (detail, fix string, err error) {
	for i, b := range s.Config.Budgets {
		like, err := s.store.Access().Alike(ctx, b.User)
		if err == nil && !like.Removed && like.Name != b.User {
			return "", "", fmt.Errorf("budgets[%d].user: %q is not the user %s, so this budget does not apply to them",
				i, b.User,
				like.Name)
		}
	}
	return "each name is as its user is called", "", nil
}
