package sqlite_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
	"github.com/toolcrib/toolcrib/toolcribtest/journaltest"
)

// childEnv makes the test binary play another process: a role, its name and the
// database.
const childEnv = "TOOLCRIB_STORE_TEST_CHILD"

func TestMain(m *testing.M) {
	if what := os.Getenv(childEnv); what != "" {
		f := strings.SplitN(what, "|", 3)
		if err := play(context.Background(), f[0], f[1], f[2]); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const childEvents = 40

// joinSession reports whether a run of its own became one of the session: name is RUN:SESSION.
func joinSession(ctx context.Context, s *sqlite.Store, name string) error {
	who, id, _ := strings.Cut(name, ":")
	err := s.Append(ctx, toolcrib.RunID("run_"+who), 0, journaltest.Events(started("ann", "default", toolcrib.SessionID(id), ""))...)
	var busy *store.SessionBusyError
	switch {
	case err == nil:
		fmt.Println("stored", 1)
	case errors.As(err, &busy) && busy.Run != "":
		fmt.Println("stored", 0)
	default:
		return err
	}
	return nil
}

// play begins at the first line of input, prints a line for each success, and ends with the input.
func play(ctx context.Context, role, name, path string) (err error) {
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	switch role {
	case "write":
		return tryToWrite(ctx, name, path)
	case "limited":
		return playLimited(ctx, path)
	case "upgrade":
		return upgradeForLong(ctx, path)
	}
	s, err := sqlite.Open(ctx, path, sqlite.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	switch role {
	case "own":
		for i := range childEvents {
			if err := s.Append(ctx, toolcrib.RunID("run_"+name), toolcrib.Seq(i), note(name)...); err != nil {
				return err
			}
		}
		fmt.Println("stored", childEvents)
	case "reserve":
		if err := reserveOne(ctx, s, "run_dead", noon()); err != nil {
			return err
		}
		fmt.Println("stored", 1)
		_, err = io.Copy(io.Discard, in) // until it is killed
	case "take":
		taken, err := takeCalls(ctx, s)
		if err != nil {
			return err
		}
		fmt.Println("stored", taken)
	case "budget":
		sent, err := drive(ctx, s, name)
		if err != nil {
			return err
		}
		fmt.Println("stored", sent)
	case "same":
		won, err := compete(ctx, s, name)
		if err != nil {
			return err
		}
		fmt.Println("stored", won)
	case "die":
		if err := s.Append(ctx, "run_a", 0, note(name)...); err != nil {
			return err
		}
		fmt.Println("stored", 1)
		_, err = io.Copy(io.Discard, in) // until it is killed
	case "die later":
		for i := range childEvents {
			if err := s.Append(ctx, "run_a", toolcrib.Seq(i), note(name)...); err != nil {
				return err
			}
		}
		fmt.Println("stored", childEvents)
		_, err = io.Copy(io.Discard, in) // until it is killed
	case "session":
		return joinSession(ctx, s, name)
	case "override":
		if _, err := s.SetOverride(ctx, store.Override{Kind: store.OverrideTool, Name: "exec_shell", By: name}); err != nil {
			return err
		}
		fmt.Println("stored", 1)
	}
	return err
}

func note(code string) []toolcrib.Event {
	return journaltest.Events(&journal.Notice{Notice: toolcrib.Notice{Code: code}})
}

// compete appends to one run until it has childEvents events, and returns how many of them are its
// own.
func compete(ctx context.Context, s *sqlite.Store, name string) (won int, err error) {
	for after := toolcrib.Seq(0); after < childEvents; {
		switch err := s.Append(ctx, "run_same", after, note(name)...); {
		case err == nil:
			won++
			after++
		case !errors.Is(err, toolcrib.ErrConflict):
			return won, err
		default:
			rec, err := s.Run(ctx, "run_same")
			if err != nil {
				return won, err
			}
			after = rec.LastSeq
		}
	}
	return won, nil
}

// tryToWrite succeeds if the store says what the name says.
func tryToWrite(ctx context.Context, name, path string) error {
	want := map[string]error{"read-only": store.ErrReadOnly, "unavailable": store.ErrUnavailable}[name]
	s, err := sqlite.Open(ctx, path, sqlite.Options{})
	if err == nil {
		err = errors.Join(s.Append(ctx, "run_new", 0, note("x")...), s.Close())
	}
	if !errors.Is(err, want) {
		return fmt.Errorf("want %s: %w", name, err)
	}
	fmt.Println("stored", 0)
	return nil
}

// child is another process.
type child struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Scanner
}

// newChild starts a process that waits for begin.
func newChild(t *testing.T, role, name, path string, change ...func(*exec.Cmd)) *child {
	t.Helper()
	c := &child{t: t, name: name, cmd: exec.CommandContext(t.Context(), os.Args[0])}
	c.cmd.Env = append(os.Environ(), childEnv+"="+role+"|"+name+"|"+path)
	c.cmd.Stderr = os.Stderr
	for _, f := range change {
		f(c.cmd)
	}
	in, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.in, c.out = in, bufio.NewScanner(out)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *child) begin() {
	c.t.Helper()
	if _, err := io.WriteString(c.in, "go\n"); err != nil {
		c.t.Fatal(err)
	}
}

// stored waits for the process to report how many events it has stored.
func (c *child) stored() int {
	c.t.Helper()
	for c.out.Scan() {
		word, rest, _ := strings.Cut(c.out.Text(), " ")
		if n, err := strconv.Atoi(rest); word == "stored" && err == nil {
			return n
		}
		c.t.Fatalf("process %s: %s", c.name, c.out.Text())
	}
	c.t.Fatalf("process %s said nothing (%v)", c.name, c.out.Err())
	return 0
}

// end waits for the end of the process.
func (c *child) end() {
	c.t.Helper()
	if err := errors.Join(c.in.Close(), c.cmd.Wait()); err != nil {
		c.t.Errorf("process %s: %v", c.name, err)
	}
}

const processes = 4

// Processes that all begin with no database make one, and do not lose an event.
func TestProcessesOwnRuns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data", "toolcrib.db")
	var children []*child
	for i := range processes {
		children = append(children, newChild(t, "own", fmt.Sprint("p", i), path))
	}
	for _, c := range children {
		c.begin()
	}
	for _, c := range children {
		c.stored()
		c.end()
	}
	s := openAt(t, path, sqlite.Options{})
	for _, c := range children {
		if v, err := s.Verify(t.Context(), toolcrib.RunID("run_"+c.name)); err != nil || v.Events != childEvents {
			t.Errorf("%s: %+v, error %v; want %d events", c.name, v, err, childEvents)
		}
	}
}

// Of the processes that append to one run after the same event, one wins.
func TestProcessesSameRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "toolcrib.db")
	children := make(map[string]*child)
	for i := range processes {
		name := fmt.Sprint("p", i)
		children[name] = newChild(t, "same", name, path)
	}
	for _, c := range children {
		c.begin()
	}
	claimed := make(map[string]int)
	for name, c := range children {
		claimed[name] = c.stored()
		c.end()
	}
	s := openAt(t, path, sqlite.Options{})
	found, n := make(map[string]int), 0
	for e, err := range s.Read(t.Context(), "run_same", 0) {
		if err != nil {
			t.Fatal(err)
		}
		found[e.Body.(*journal.Notice).Code]++
		n++
	}
	if n != childEvents {
		t.Errorf("%d events, want %d", n, childEvents)
	}
	for name := range children {
		if claimed[name] != found[name] {
			t.Errorf("%s believes that it stored %d events; it stored %d", name, claimed[name], found[name])
		}
	}
	if _, err := s.Verify(t.Context(), "run_same"); err != nil {
		t.Error(err)
	}
}

// A process that has released a run learns that another one drives it now,
// though it remembers where the run stood.
func TestProcessesFence(t *testing.T) {
	s := open(t)
	add(t, s, "run_p1", 0, &journal.Notice{})
	other := openAt(t, s.Path(), sqlite.Options{})
	add(t, other, "run_p1", 1, &journal.Notice{})
	if err := s.Append(t.Context(), "run_p1", 1, note("late")...); !errors.Is(err, toolcrib.ErrConflict) {
		t.Errorf("error %v, want ErrConflict", err)
	}
	add(t, s, "run_p1", 2, &journal.Notice{})
	if v, err := s.Verify(t.Context(), "run_p1"); err != nil || v.Events != 3 {
		t.Errorf("%+v, error %v", v, err)
	}
}

// What Append has returned for survives kill -9, also if it was no barrier.
func TestKilledProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "toolcrib.db")
	c := newChild(t, "die", "p", path)
	c.begin()
	c.stored()
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.cmd.Wait() // tells that it was killed
	s := openAt(t, path, sqlite.Options{})
	if v, err := s.Verify(t.Context(), "run_a"); err != nil || v.Events != 1 {
		t.Errorf("%+v, error %v; want one event", v, err)
	}
}

// A9: what another process switches off is off at the next look.
func TestA9_OverrideOfAnotherProcess(t *testing.T) {
	s := open(t)
	if list := overrides(t, s); len(list) != 0 {
		t.Fatalf("overrides %+v", list)
	}
	c := newChild(t, "override", "ann", s.Path())
	c.begin()
	c.stored()
	if list := overrides(t, s); len(list) != 1 || list[0].By != "ann" || list[0].Enabled {
		t.Errorf("overrides %+v, want the other process's one", list)
	}
	c.end()
}
