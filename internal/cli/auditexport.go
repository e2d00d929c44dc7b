package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// exportFlags are the flags of audit export.
type exportFlags struct {
	since, output  string
	content, force bool
}

func (a *app) auditExportCommand() *cobra.Command {
	var f exportFlags
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write the audit log as JSON, one value a line, with the hashes of all chains",
		Long: "Write the audit log as it is at one moment as JSON, one value a line: the whole system journal, the events of all runs with their hashes and the content of " +
			"those that the log shows, and a sealed end. audit verify FILE checks it anywhere, without the database. Answers and results are in it with " +
			"--content only; prompts, too, but for those of runs under --as, whose first event says who really asked. For administrators.",
		Example: `toolcrib audit export -o audit.ndjson
toolcrib audit export --since 30d -o month.ndjson
toolcrib audit export --content | gzip > all.ndjson.gz`,
		Args: positional,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("output") && f.output == "" {
				return usagef("--output: must name a file, or - for standard output")
			}
			return a.exportAudit(cmd.Context(), &f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.since, "since", "", "leave out the runs that ended before: a span such as 30d, a date, or a time (RFC 3339)")
	flags.BoolVar(&f.content, "content", false, "with everything that was said and done, prompts and results too")
	flags.StringVarP(&f.output, "output", "o", "-", "the file to write; - = standard output")
	flags.BoolVar(&f.force, "force", false, "write over a file that is there")
	return cmd
}

func (a *app) exportAudit(ctx context.Context, f *exportFlags) error {
	by, err := a.administrator(ctx)
	if err != nil {
		return err
	}
	since, err := timeFlag("since", f.since, time.Now())
	if err != nil {
		return err
	}
	o := store.ExportOptions{Since: since, Content: f.content}
	toFile := f.output != "-" && f.output != ""
	if _, err := os.Lstat(f.output); toFile && !f.force && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is there already; --force writes over it", pathText(f.output))
	}
	s, err := a.databaseToRead(ctx)
	if err != nil {
		return err
	}
	ctx, stop := a.interruptible(ctx, by, a.err)
	defer stop()
	if !toFile {
		out := bufio.NewWriterSize(a.out, exportBuffer)
		if err = s.ExportAudit(ctx, out, o); err == nil {
			err = out.Flush()
		}
	} else {
		err = a.exportTo(ctx, s, f.output, o)
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// exportBuffer is how many bytes are written at once.
const exportBuffer = 256 << 10

// exportTo writes the export whole or not at all.
func (a *app) exportTo(ctx context.Context, s *sqlite.Store, path string, o store.ExportOptions) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), ".toolcrib-*") // 0600
	if err != nil {
		return fmt.Errorf("--output: %v", err)
	}
	defer func() {
		if err != nil {
			_ = file.Close()
			_ = os.Remove(file.Name())
		}
	}()
	out := &counted{w: file, tell: a.exported}
	buffered := bufio.NewWriterSize(out, exportBuffer)
	if err = s.ExportAudit(ctx, buffered, o); err != nil {
		return err
	}
	if err = buffered.Flush(); err != nil {
		return fmt.Errorf("--output: %v", err)
	}
	a.exported(0)
	if err = errors.Join(file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("--output: %v", err)
	}
	if err = os.Rename(file.Name(), path); err != nil {
		return fmt.Errorf("--output: %v", err)
	}
	a.notice("%s bytes are in %s; toolcrib audit verify %s checks them", render.Number(out.bytes), pathText(path), pathText(path))
	return nil
}

// counted counts what is written, and tells of it now and then.
type counted struct {
	w     io.Writer
	bytes int64
	told  time.Time
	tell  func(bytes int64)
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.bytes += int64(n)
	if now := time.Now(); now.Sub(c.told) >= progressEvery {
		c.told = now
		c.tell(c.bytes)
	}
	return n, err
}

// exported shows on a terminal how far an export is; 0 takes it away.
func (a *app) exported(bytes int64) {
	switch {
	case !a.errTerminal:
	case bytes == 0:
		fmt.Fprint(a.err, "\r\x1b[K")
	default:
		fmt.Fprintf(a.err, "\r\x1b[K%s", a.style.Dim("· "+render.Number(bytes)+" bytes"))
	}
}
