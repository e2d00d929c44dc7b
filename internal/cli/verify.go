package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/internal/safefile"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/policy"
	"github.com/toolcrib/toolcrib/store"
)

// tellChecked prints which checks passed and returns the exit code.
func (a *app) tellChecked(views []api.Checked, asJSON bool, out io.Writer) error {
	broken := 0
	for _, v := range views {
		if !v.OK {
			broken++
		}
		switch {
		case asJSON:
		case v.OK:
			name := cmp.Or(short(v.Run), policy.PathText(v.File), "everything")
			fmt.Fprintf(out, "%s %s: %s\n", a.outStyle.Green("✓"), name, v.Detail)
		default:
			a.complain(v.Detail)
		}
	}
	if asJSON {
		if err := printJSON(a.out, append([]api.Checked{}, views...), true); err != nil {
			return err
		}
	}
	if broken > 0 {
		return silent(exitFailed)
	}
	return nil
}

func (a *app) runsReplayCommand(cmd *cobra.Command) {
	all := cmd.Flags().Bool("all", false, "")
	cmd.Flags().Bool("json", false, "")
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if *all == (len(args) == 1) || len(args) > 1 {
			return usagef("give one run, or --all")
		}
		return nil
	}
	a.doing(cmd, a.reading, func(c call) error {
		if a.remote != nil && *all {
			return usagef("--all: name a run; everything that is stored is replayed where the server runs")
		}
		found, err := c.at.Replay(c, c.who, c.arg())
		if err != nil {
			return noSuch("runs", err, c.arg())
		}
		return a.tellChecked(found, c.json, a.out)
	})
}

// verifyFlags are the flags of runs verify and audit verify. A head is the state of the system journal
// at a time, which the user keeps elsewhere.
type verifyFlags struct {
	all, adopt, yes  bool
	head, exportHead string
}

func (f *verifyFlags) register(cmd *cobra.Command) {
	cmd.Flags().Func("head", "", filled(&f.head))
	cmd.Flags().Bool("json", false, "")
}

func (a *app) runsVerifyCommand(cmd *cobra.Command) {
	var f verifyFlags
	f.register(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&f.all, "all", false, "")
	flags.Func("export-head", "", filled(&f.exportHead))
	flags.BoolVar(&f.adopt, "adopt", false, "")
	flags.BoolVar(&f.yes, "yes", false, "")
	a.doing(cmd, nil, func(c call) error {
		if len(c.args) == 1 && (f.all || f.adopt || f.head != "" || f.exportHead != "") {
			return usagef("--all, --adopt, --head and --export-head are about everything that is stored; leave RUN out")
		}
		return a.verify(c, &f)
	})
}

// verify checks a run, or everything; then it stores or compares the head.
func (a *app) verify(c call, f *verifyFlags) error {
	if a.remote != nil && len(c.args) == 0 {
		return usagef("name a run; everything that is stored is verified where the server runs")
	}
	if len(c.args) == 0 {
		if _, err := a.administering(c); err != nil {
			return err
		}
	}
	if c.json && f.exportHead == "-" {
		return usagef("--export-head -: cannot be combined with --json, which writes to standard output too")
	}
	if f.exportHead != "-" && f.exportHead != "" &&
		(f.head == "" || filepath.Clean(f.exportHead) != filepath.Clean(f.head)) {
		if _, err := os.Lstat(f.exportHead); !errors.Is(err, fs.ErrNotExist) {
			return usagef("--export-head: %s already exists, and may cover more than the new head; compare with "+
				"it first: --head %s --export-head %s", f.exportHead, f.exportHead, f.exportHead)
		}
	}
	kept, err := readHead(f.head)
	if err != nil {
		return err
	}
	if f.adopt {
		if err := a.adopt(c, f.yes); err != nil {
			return err
		}
	}
	if c.at, c.who, err = a.opened(c, a.reading); err != nil {
		return err
	}
	c.Service = a.service
	found, err := c.at.Verify(c, c.who, c.arg(), kept)
	if err != nil {
		return noSuch("runs", err, c.arg())
	}
	var out io.Writer = a.out
	if f.exportHead == "-" { // the head is the output
		out = a.err
	}
	if err := a.tellChecked(found, c.json, out); err != nil || f.exportHead == "" {
		return err
	}
	return a.exportHead(c, f.exportHead)
}

// adopt opens the store and accepts its current state once the administrator agrees.
func (a *app) adopt(ctx context.Context, yes bool) error {
	if a.service != nil && a.service.Env.IsOpen() { // it was opened to determine the principal
		return usagef("--adopt: cannot be combined with --as")
	}
	who, err := a.administering(ctx)
	if err == nil {
		_, err = a.svc()
	}
	if err == nil {
		err = a.sure(yes, "Accept what is stored as it is? What it was before cannot be checked.", "nothing was accepted")
	}
	if err == nil {
		err = a.service.Env.Adopt(ctx, who)
	}
	if err == nil {
		err = a.service.People.AcceptDamage(ctx, who)
	}
	return err
}

// readHead reads an exported head. It returns nil if path is empty.
func readHead(path string) (*store.Head, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path) // may be a pipe
	if err != nil {
		return nil, fmt.Errorf("--head: %w", err)
	}
	defer func() { _ = f.Close() }() // read only
	data, err := io.ReadAll(io.LimitReader(f, 4<<10))
	if err != nil {
		return nil, fmt.Errorf("--head: %w", err)
	}
	var h store.Head
	if json.Unmarshal(data, &h) != nil || h.MAC == "" {
		return nil, usagef("--head: %s is not a head; --export-head writes one", path)
	}
	return &h, nil
}

// exportHead writes the head of the system journal.
func (a *app) exportHead(c call, path string) error {
	h, err := c.People.Head(c, c.who)
	if err != nil {
		return err
	}
	if path == "-" {
		return printJSON(a.out, h, true)
	}
	text, err := json.MarshalIndent(h, "", "  ")
	if err != nil {
		return err
	}
	if err := safefile.Replace(path, ".toolcrib-", append(text, '\n')); err != nil {
		return fmt.Errorf("--export-head: %v", err)
	}
	a.notice("the head (event %d) is in %s; keep it where nobody who can write to the data folder can change it", h.Seq, path)
	return nil
}

func (a *app) auditVerifyCommand(cmd *cobra.Command) {
	var f verifyFlags
	f.register(cmd)
	hashesOnly := cmd.Flags().Bool("hashes-only", false, "")
	a.doing(cmd, nil, func(c call) error {
		switch {
		case len(c.args) == 1:
			return a.verifyExport(c, &f, *hashesOnly)
		case *hashesOnly:
			return usagef("--hashes-only: is for an export; give its file")
		}
		return a.verify(c, &f)
	})
}

// verifyExport checks an exported audit log.
func (a *app) verifyExport(c call, f *verifyFlags, hashesOnly bool) error {
	path := c.arg()
	kept, err := readHead(f.head)
	if err != nil {
		return err
	}
	var keys *store.Keys
	if !hashesOnly {
		if keys, err = a.keysIfAny(); err != nil {
			return err
		}
	}
	in, err := a.input(path)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // only read
	head := store.Head{}
	if kept != nil {
		head = *kept
	}
	v, err := store.VerifyExport(in, keys, head)
	view := api.Checked{OK: true, File: path, Found: v, Detail: service.FoundText(v)}
	var broken *store.ChainError
	switch {
	case errors.As(err, &broken):
		view = api.Checked{Run: broken.Run, File: path, Found: broken}
		view.Detail = policy.PathText(path) + ": " + broken.Error()
	case err != nil:
		return fmt.Errorf("%s: %v", policy.PathText(path), err)
	case kept != nil:
		view.Detail += "; " + service.FoundText(head)
	}
	return a.tellChecked([]api.Checked{view}, c.json, a.out)
}

// keysIfAny returns the keys of the data folder, or nil if it has none. It creates nothing.
func (a *app) keysIfAny() (*store.Keys, error) {
	if _, err := a.svc(); err != nil && a.configFlag != "" {
		return nil, err
	} else if err != nil {
		a.notice("the configuration is not used here: %v", err)
		return nil, nil
	}
	path, err := a.service.Env.KeysFile()
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return a.service.Env.Keys()
}

func (a *app) backupCommand(cmd *cobra.Command) {
	a.answering(cmd, nil, func(c call) (any, func(), error) {
		if c.arg() == "-" {
			return nil, nil, usagef("a backup is written to a file, not to standard output; ./- is a file named -")
		}
		ctx, stop := signal.NotifyContext(c, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		defer stop()
		s, who, err := a.reading(ctx)
		if err != nil {
			return nil, nil, err
		}
		size, unread, err := s.Backup(ctx, who, c.arg())
		switch {
		case ctx.Err() != nil:
			return nil, nil, ctx.Err()
		case err != nil:
			return nil, nil, ofFile(err, c.arg())
		}
		for _, name := range unread {
			a.notice("%s cannot be read, so the backup lacks it",
				policy.PathText(filepath.Join(s.Env.DataDir, filepath.FromSlash(name))))
		}
		return map[string]any{"file": c.arg(), "bytes": size, "unread": append([]string{}, unread...)}, func() {
			a.says(c.arg(), render.Number(size)+" bytes; whoever has this file has the keys")
		}, nil
	})
}

// ofFile adds the name of a file to an error about it, unless the error contains it.
func ofFile(err error, path string) error {
	if code := toolcrib.CodeOf(err); code != toolcrib.CodeBadRequest && code != toolcrib.CodeInternal || storeFailed(err) {
		return err
	}
	return fmt.Errorf("%s: %v", policy.PathText(path), plainCause(err))
}

// plainCause returns the cause of an error about a file, without the path.
func plainCause(err error) error {
	var of *fs.PathError
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}

func (a *app) restoreCommand(cmd *cobra.Command) {
	cmd.Flags().Bool("json", false, "")
	a.doing(cmd, nil, func(c call) error { return a.restore(c, c.arg(), c.json) })
}

func (a *app) migrateCommand(cmd *cobra.Command) {
	var m env.Migration
	for name, value := range map[string]*string{"database": &m.Owner, "to": &m.To, "from": &m.From, "keys": &m.Keys} {
		cmd.Flags().Func(name, "", filled(value))
	}
	a.answering(cmd, a.knowing, func(c call) (any, func(), error) {
		if m.To != "" && m.From != "" {
			return nil, nil, usagef("migrate: give either --to or --from")
		}
		path, err := c.Env.Migrate(c, c.who, m)
		if err != nil {
			return nil, nil, err
		}
		did := "has the tables of toolcrib"
		if m.To != "" || m.From != "" {
			did = "has a copy of everything; nothing was written to the other database meanwhile"
		}
		return map[string]any{"database": path}, func() { a.says(path, did) }, nil
	})
}

func (a *app) restore(ctx context.Context, path string, asJSON bool) (err error) {
	if a.service != nil && a.service.Env.IsOpen() || a.asFlag != "" || a.tokenFlag != "" {
		return usagef("restore: cannot be combined with --as or --token-file; it is for the owner of the data folder")
	}
	s, err := a.svc()
	if err != nil {
		return err
	}
	at, err := s.Restore(ctx, path)
	if err != nil {
		return ofFile(err, path)
	}
	_, who, err := a.reading(ctx)
	if err != nil {
		return err
	}
	found, err := s.Verify(ctx, who, "", nil)
	if err != nil {
		return err
	}
	if asJSON {
		var failed error
		if slices.ContainsFunc(found, func(v api.Checked) bool { return !v.OK }) {
			failed = silent(exitFailed)
		}
		return cmp.Or(printJSON(a.out,
			map[string]any{"data_dir": s.Env.DataDir, "backup_at": at, "checks": found}, true), failed)
	}
	a.says(s.Env.DataDir, "as it was on "+at.Local().Format(time.DateTime))
	return a.tellChecked(found, false, a.out)
}

func (a *app) runsExportCommand(cmd *cobra.Command) {
	alwaysJSON(cmd)
	a.doing(cmd, a.reading, func(c call) error {
		return noSuch("runs", c.at.ExportRun(c, c.who, c.arg(), a.out), c.arg())
	})
}

func (a *app) runsImportCommand(cmd *cobra.Command) {
	a.answering(cmd, nil, func(c call) (any, func(), error) {
		in, err := a.input(c.arg())
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %v", policy.PathText(c.arg()), plainCause(err))
		}
		defer func() { _ = in.Close() }() // read only
		s, who, err := a.opened(c, a.changing)
		if err != nil {
			return nil, nil, err
		}
		run, events, err := s.ImportRun(c, who, in)
		if err != nil {
			return nil, nil, ofFile(err, c.arg())
		}
		return map[string]any{"run_id": run, "events": events},
			func() { a.says(string(run), render.Count(events, "event")) }, nil
	})
}
