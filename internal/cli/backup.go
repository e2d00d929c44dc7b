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

func (a *app) backupCommand(cmd *cobra.Command) {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
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

func (a *app) restoreCommand(cmd *cobra.Command) {
	a.doing(cmd, nil, func(c call) error { return a.restore(c, c.arg()) })
}

func (a *app) restore(ctx context.Context, path string) (err error) {
	if a.service != nil && a.service.IsOpen() || a.asFlag != "" || a.tokenFlag != "" {
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
	a.says(s.DataDir, "as it was on "+at.Local().Format(time.DateTime))
	return a.tellChecked(viewsOfChecked(found), false, a.out)
}

func (a *app) runsExportCommand(cmd *cobra.Command) {
	a.doing(cmd, a.reading, func(c call) error {
		return noRun(c.at.ExportRun(c, c.who, c.arg(), a.out), c.arg())
	})
}

func (a *app) runsImportCommand(cmd *cobra.Command) {
	a.doing(cmd, nil, func(c call) error {
		in, err := a.input(c.arg())
		if err != nil {
			return fmt.Errorf("%s: %v", pathText(c.arg()), plainCause(err))
		}
		defer func() { _ = in.Close() }() // read only
		s, who, err := a.changing(c)
		if err != nil {
			return err
		}
		run, events, err := s.ImportRun(c, who, in)
		if err != nil {
			return ofFile(err, c.arg())
		}
		a.says(string(run), render.Count(events, "event"))
		return nil
	})
}
