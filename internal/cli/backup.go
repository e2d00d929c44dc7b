package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/render"
)

func (a *app) backupCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "backup FILE",
		Short: "Write the database, its keys and the stored secrets to one file",
		Long: "Write the database, its keys and the stored secrets, as they are at one moment, to one new file. Runs " +
			"continue meanwhile. Whoever has the file has the keys: keep it where only you can read it. For administrators.",
		Example: "toolcrib backup ~/backups/toolcrib-2026-01-31.tar",
		Args:    positional,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			s, who, err := a.reading(ctx)
			if err != nil {
				return err
			}
			size, err := s.Backup(ctx, who, args[0])
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil:
				return ofFile(err, args[0])
			}
			a.says(args[0], render.Number(size)+" bytes; whoever has this file has the keys")
			return nil
		},
	}
}

// ofFile names the file that a command was given in an error about it, once.
func ofFile(err error, path string) error {
	if code := toolcrib.CodeOf(err); code != toolcrib.CodeBadRequest && code != toolcrib.CodeInternal || storeFailed(err) {
		return err
	}
	return fmt.Errorf("%s: %v", pathText(path), plainCause(err))
}

// plainCause is the cause of an error of a file without its path.
func plainCause(err error) error {
	var of *fs.PathError
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}

func (a *app) restoreCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "restore FILE",
		Short: "Restore a backup into an empty data folder",
		Long: "Restore a file that toolcrib backup wrote into the data folder, which must be empty or not exist, and " +
			"verify everything.",
		Example: "toolcrib --data-dir ~/restored restore ~/backups/toolcrib-2026-01-31.tar",
		Args:    positional,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.restore(cmd.Context(), args[0])
		},
	}
}

func (a *app) restore(ctx context.Context, path string) (err error) {
	if a.service != nil && a.service.IsOpen() || a.asFlag != "" || a.tokenFlag != "" {
		return usagef("restore: takes neither --as nor --token-file; it is for who owns the data folder")
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
	a.says(s.DataDir, "as it was on "+at.Local().Format(time.DateTime))
	return a.tellChecked(viewsOfChecked(found), false, a.out)
}

func (a *app) runsExportCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "export RUN",
		Short: "Write the whole journal of a run, with hashes and kept contents",
		Long: "Write the whole journal of a run as JSON, one value a line: a header, every event with its hashes, the " +
			"results that were kept whole, and an end. RUN is an ID, the beginning of one, or last.",
		Example: "toolcrib runs export last > run.ndjson",
		Args:    positional,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, who, err := a.reading(cmd.Context())
			if err != nil {
				return err
			}
			return a.noRun(s.ExportRun(cmd.Context(), who, args[0], a.out), args)
		},
	}
}

func (a *app) runsImportCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "import FILE",
		Short: "Import a run that runs export wrote",
		Long: "Import a run that runs export wrote, under the same ID and with the same hashes. It must have ended, must " +
			"not have been here before, and must not belong to a run tree. What it used counts here too. The hashes show " +
			"that the file is whole, not who wrote it: import only what you trust. For administrators.",
		Example: "toolcrib runs import run.ndjson",
		Args:    positional,
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := a.input(args[0])
			if err != nil {
				return fmt.Errorf("%s: %v", pathText(args[0]), plainCause(err))
			}
			defer func() { _ = in.Close() }() // read only
			s, who, err := a.changing(cmd.Context())
			if err != nil {
				return err
			}
			run, events, err := s.ImportRun(cmd.Context(), who, in)
			if err != nil {
				return ofFile(err, args[0])
			}
			a.says(string(run), render.Count(events, "event"))
			return nil
		},
	}
}
