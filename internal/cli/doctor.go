package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/tool/shell"
)

// finding is one thing that doctor looked at.
type finding struct {
	Check  string `json:"check"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"` // what to do where it is not ok
}

func (a *app) doctorCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "doctor",
		Short:   "Test configuration, data folder, database and providers, and say how to mend what fails",
		Example: "toolcrib doctor\ntoolcrib doctor --json",
		Args:    positional,
		RunE: func(cmd *cobra.Command, _ []string) error {
			findings, broken := a.examine(cmd.Context())
			failed := 0
			for i, f := range findings {
				if f.OK {
					findings[i].Fix = ""
					continue
				}
				failed++
			}
			if asJSON {
				if err := printJSON(a.out, map[string]any{"ok": failed == 0, "checks": findings}, true); err != nil {
					return err
				}
			} else {
				a.tell(findings)
			}
			switch {
			case broken:
				return silent(exitUsage)
			case failed > 0:
				return silent(exitFailed)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON value")
	return cmd
}

func (a *app) tell(findings []finding) {
	s := a.outStyle
	for _, f := range findings {
		mark := s.Green("✓")
		if !f.OK {
			mark = s.Red("✗")
		}
		fmt.Fprintf(a.out, "%s %s %s\n", mark, s.Bold(fmt.Sprintf("%-14s", guard.Visible(f.Check))), guard.Visible(f.Detail))
		if !f.OK && f.Fix != "" {
			fmt.Fprintf(a.out, "  %14s %s\n", "", guard.Visible("→ "+f.Fix))
		}
	}
}

// examine looks at everything. Nothing of an untrusted configuration takes
// effect: it is only read. Of a broken one nothing is known: what would be tested
// then is not what runs would use.
func (a *app) examine(ctx context.Context) (findings []finding, broken bool) {
	c, source, err := a.configurationAnyway()
	if err == nil {
		_, err = a.about(c).CheckRules()
	}
	findings = []finding{a.configFinding(c, source, err)}
	broken = err != nil
	if broken {
		c = config.Default()
	}
	trusted, usable := a.trustFinding(source)
	findings = append(findings, trusted)
	if !usable {
		// What an untrusted file says is not acted upon: no folder made, no server asked.
		c = config.Default()
	}
	a.config = c
	if broken && a.dataFlag == "" {
		return append(findings, a.terminalFinding()), broken
	}
	findings = append(findings, a.dataFinding(), a.databaseFinding(ctx))
	if !broken {
		findings = append(findings, a.workspaceFinding(), shellFinding(c.Tools.Shell, shell.Probe()), a.skillsFinding(c), a.approvalsFinding(c))
		findings = append(findings, a.budgetFindings(ctx, c)...)
		findings = append(findings, a.providerFindings(ctx, c)...)
	}
	return append(findings, a.terminalFinding()), broken
}

func (a *app) configFinding(c *config.Config, source config.Source, err error) finding {
	f := finding{Check: "configuration", OK: err == nil, Detail: source.Path}
	switch {
	case err != nil:
		f.Detail, f.Fix = err.Error(), "correct it; `toolcrib config check` tells when it is right"
		return f
	case source.Origin == config.OriginNone:
		f.Detail = "none; every key has its default"
	}
	wrong, err := a.configErrors(c)
	if err != nil {
		return finding{Check: f.Check, Detail: err.Error(), Fix: "correct skills.dirs"}
	}
	if len(wrong) > 0 {
		f.OK, f.Detail, f.Fix = false, wrong.Error(), "correct it; `toolcrib config check` tells when it is right"
	}
	return f
}

func (a *app) trustFinding(source config.Source) (f finding, usable bool) {
	f = finding{Check: "trust", OK: true, Detail: "nothing in this folder needs trust"}
	store, err := a.trustStore()
	if err != nil {
		return finding{Check: "trust", Detail: err.Error(), Fix: "set HOME or XDG_STATE_HOME"}, !source.NeedsTrust()
	}
	_, files, err := store.Check(".")
	if err != nil {
		return finding{Check: "trust", Detail: err.Error(), Fix: "fix or remove " + store.Path()}, !source.NeedsTrust()
	}
	usable = true
	var parts []string
	for _, file := range files {
		switch file.State {
		case trust.Absent:
		case trust.Trusted:
			parts = append(parts, file.Name+" is trusted")
		default:
			if file.Name == config.FileName && !source.NeedsTrust() {
				continue // another file is used
			}
			if file.Name == config.FileName {
				usable = false
			}
			f.OK, f.Fix = false, "read what the folder brings before you trust it"
			parts = append(parts, trust.PassedOver(".", file))
		}
	}
	if len(parts) > 0 {
		f.Detail = strings.Join(parts, "\n")
	}
	if !usable {
		f.Detail += "\nuntil then run refuses to start here, unless another file is named with --config"
	}
	return f, usable
}

func (a *app) dataFinding() finding {
	f := finding{Check: "data folder", Fix: "make the folder writable for this user, or use another with --data-dir"}
	dir, err := a.dataDir()
	if err != nil {
		f.Detail = err.Error()
		return f
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		f.Detail = err.Error()
		return f
	}
	probe, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		f.Detail = fmt.Sprintf("%s cannot be written: %v", dir, errors.Unwrap(err))
		return f
	}
	if err := errors.Join(probe.Close(), os.Remove(probe.Name())); err != nil {
		f.Detail = err.Error()
		return f
	}
	f.OK, f.Detail = true, dir
	if free, ok := freeBytes(dir); ok {
		f.Detail += fmt.Sprintf(" (%s free)", sizeText(free))
		if free < minFree {
			f.OK, f.Fix = false, "make room on the disk"
		}
	}
	return f
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

// minFree is the free space under which a store may fail any time.
const minFree = 64 << 20

func (a *app) databaseFinding(ctx context.Context) finding {
	f := finding{Check: "database"}
	s, err := a.database(ctx)
	if err == nil {
		err = s.Check(ctx)
	}
	if err == nil {
		f.OK, f.Detail = true, s.Path()+": opens, and is whole"
		return f
	}
	f.Detail = err.Error()
	var broken *store.ChainError
	switch {
	case errors.Is(err, store.ErrOlder):
		f.Fix = "use the earlier version of toolcrib, or another --data-dir and `toolcrib runs import`"
	case errors.Is(err, store.ErrNewer):
		f.Fix = "use the later version of toolcrib, or another --data-dir and `toolcrib runs import`"
	case errors.Is(err, store.ErrCorrupt):
		f.Fix = "move the file away with its -wal and -shm files, and restore a copy"
	case errors.Is(err, store.ErrLost):
		f.Fix = "put a copy of the database in its place (docs/journal.md)"
	case errors.As(err, &broken), errors.Is(err, store.ErrDamaged):
		f.Fix = "restore a copy of the data folder, or look at what `toolcrib runs verify` reports, and accept it: toolcrib runs verify --adopt"
	case errors.Is(err, store.ErrKeys):
		f.Fix = "restore the key file from a backup, or accept the journal without it: toolcrib runs verify --adopt"
	case errors.Is(err, store.ErrLocked):
		f.Fix = "end the program that holds it"
	case errors.Is(err, store.ErrFull):
		f.Fix = "make room on the disk"
	default:
		f.Fix = "check the path, the rights and the disk"
	}
	return f
}

func (a *app) workspaceFinding() finding {
	f := finding{Check: "workspace", Fix: "set workspace, or start toolcrib in another folder"}
	svc := a.about(a.config)
	dir, err := a.workspace("", false)
	if err == nil {
		_, err = svc.Protection(dir)
	}
	if err != nil {
		f.Detail = err.Error()
		return f
	}
	f.OK, f.Detail = true, dir
	if why := svc.Unprotected(dir); why != "" {
		f.Detail += " (exec_shell: " + why + ")"
	}
	if probe, err := os.CreateTemp(dir, ".toolcrib-doctor-*"); err != nil {
		f.Detail += " (read only for this user: tools cannot write)"
	} else if err := errors.Join(probe.Close(), os.Remove(probe.Name())); err != nil {
		f.OK, f.Detail = false, err.Error()
	}
	return f
}

// shellFinding says what keeps in the programs that exec_shell runs.
func shellFinding(set config.Shell, r shell.Report) finding {
	f := finding{Check: "shell", OK: true}
	if set.Mode == string(shell.ModeOff) {
		f.Detail = "off: there is no exec_shell"
		return f
	}
	if r.Problem != "" {
		f.OK, f.Detail = false, fmt.Sprintf("mode %s, without a sandbox: %s", set.Mode, r.Problem)
		f.Fix = "install bubblewrap, or use a kernel with Landlock; until then exec_shell asks about every call, or set tools.shell.mode: off"
		if set.Sandbox == string(shell.SandboxRequired) {
			f.Fix = "install bubblewrap, or use a kernel with Landlock; until then exec_shell refuses every call (tools.shell.sandbox is required)"
		}
		return f
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
	f.Detail = fmt.Sprintf("mode %s, sandbox: %s", set.Mode, strings.Join(walls, ", "))
	if r.Bubblewrap == "" {
		f.OK, f.Fix = set.Sandbox != string(shell.SandboxRequired), "install bubblewrap"
		f.Detail += "; without bubblewrap protected files cannot be kept from other programs than those of the built-in table, so each such call " +
			map[bool]string{true: "asks", false: "is refused"}[f.OK]
	}
	return f
}

func (a *app) terminalFinding() finding {
	f := finding{Check: "terminal", OK: true}
	switch {
	case a.inTerminal && a.errTerminal:
		f.Detail = "yes: approvals can be asked for"
	default:
		f.Detail = "no: calls that need an approval park the run, unless --approve says otherwise"
	}
	return f
}
