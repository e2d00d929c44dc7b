//go:build unix

package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
	"github.com/toolcrib/toolcrib/toolcribtest/journaltest"
)

// bigResult is a part of a run that does not fit together with many others.
func bigResult() []toolcrib.Event {
	return journaltest.Events(&journal.ToolResult{Name: "read_file", Content: strings.Repeat("x", 50<<10)}, &journal.ToolStarted{Write: true})
}

// fill appends to a run until that fails, and returns how many events it has.
func fill(ctx context.Context, s *sqlite.Store, run toolcrib.RunID) (toolcrib.Seq, error) {
	for after := toolcrib.Seq(0); ; after += 2 {
		if after > 10_000 {
			return after, errors.New("it never gets full")
		}
		if err := s.Append(ctx, run, after, bigResult()...); err != nil {
			return after, err
		}
	}
}

// healthy reports whether all that was stored is there and nothing else, and whether
// the next append is stored.
func healthy(ctx context.Context, s *sqlite.Store, run toolcrib.RunID, after toolcrib.Seq) error {
	if err := s.Append(ctx, run, after, bigResult()...); err != nil {
		return fmt.Errorf("with room: %w", err)
	}
	all, err := s.VerifyAll(ctx)
	if err == nil && (all.Runs != 1 || all.Events != int(after)+2) {
		err = fmt.Errorf("%+v, want one run with %d events", all, after+2)
	}
	return errors.Join(err, s.Check(ctx))
}

// playLimited fills a database up to the file size limit of the process, and reports the errors; with
// more room it continues.
func playLimited(ctx context.Context, path string) (err error) {
	signal.Ignore(syscall.SIGXFSZ)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	s, err := sqlite.Open(ctx, path, sqlite.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	roomy := limit.Cur
	if limit.Cur = 1 << 20; limit.Cur > roomy {
		return errors.New("there is hardly any room to begin with")
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	after, err := fill(ctx, s, "run_a")
	if !errors.Is(err, store.ErrFull) || !strings.Contains(err.Error(), path) || after == 0 {
		return fmt.Errorf("after %d events: want ErrFull that names the file: %w", after, err)
	}
	if rec, err := s.Run(ctx, "run_a"); err != nil || rec.LastSeq != after {
		return fmt.Errorf("the run is at event %d, want %d: %w", rec.LastSeq, after, err)
	}
	limit.Cur = roomy
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	if err := healthy(ctx, s, "run_a", after); err != nil {
		return err
	}
	fmt.Println("stored", after)
	return nil
}

// A file that may not grow (a limit of the process holds for root too) is a full
// database: nothing is stored by halves, and with room the same store goes on.
func TestFileSizeLimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "toolcrib.db")
	c := newChild(t, "limited", "p", path)
	c.begin()
	stored := c.stored()
	c.end()
	s := openAt(t, path, sqlite.Options{})
	if v, err := s.Verify(t.Context(), "run_a"); err != nil || v.Events != stored+2 {
		t.Errorf("%+v, error %v; want %d events", v, err, stored+2)
	}
}
