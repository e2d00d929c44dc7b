package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
	"github.com/toolcrib/toolcrib/internal/terminal"
	"github.com/toolcrib/toolcrib/service"
)

// What most commands have in common: they open the data folder, ask the service for one
// thing, and write its answer as JSON or as text.

// knowing is the service for a command that needs no data folder, and who acts.
func (a *app) knowing(ctx context.Context) (*service.Service, toolcrib.Principal, error) {
	who, err := a.principal(ctx)
	if err != nil {
		return nil, who, err
	}
	s, err := a.svc()
	return s, who, err
}

// reading opens the data folder for a command that only looks.
func (a *app) reading(ctx context.Context) (*service.Service, toolcrib.Principal, error) {
	s, who, err := a.knowing(ctx)
	if err == nil {
		err = s.OpenToRead(ctx)
	}
	return s, who, err
}

// changing opens the data folder for a command that changes something.
func (a *app) changing(ctx context.Context) (*service.Service, toolcrib.Principal, error) {
	s, who, err := a.knowing(ctx)
	if err == nil {
		err = s.OpenFor(ctx, who)
	}
	return s, who, err
}

// forAdministrators refuses others before it opens the data folder.
func (a *app) forAdministrators(open opening) opening {
	return func(ctx context.Context) (*service.Service, toolcrib.Principal, error) {
		if who, err := a.administering(ctx); err != nil {
			return nil, who, err
		}
		return open(ctx)
	}
}

// call is one use of a command: the service that was opened for it, who acts, the
// arguments, and whether the answer is wanted as JSON.
type call struct {
	context.Context
	*service.Service     // nil if a server is asked
	at               api // of a command that also works against one
	who              toolcrib.Principal
	args             []string
	json             bool
}

// arg is the first argument; "" if none.
func (c call) arg() string {
	if len(c.args) == 0 {
		return ""
	}
	return c.args[0]
}

// opening opens the service for a command: [app.reading], [app.changing]; if nil, the
// command does it itself.
type opening func(context.Context) (*service.Service, toolcrib.Principal, error)

// doing makes a command do something.
func (a *app) doing(cmd *cobra.Command, open opening, do func(c call) error) {
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		c := call{Context: cmd.Context(), args: args}
		c.json, _ = cmd.Flags().GetBool("json") // no if there is no such flag
		if open != nil {
			if c.at, c.who, err = a.opened(c, open); err != nil {
				return err
			}
			c.Service = a.service
		}
		return do(c)
	}
}

// answering makes a command with --json do something: do returns the value for that, and
// what writes it for people; if nil, that is written already. An [exitError] comes after
// the answer, any other in its place.
func (a *app) answering(cmd *cobra.Command, open opening, do func(c call) (value any, text func(), err error)) {
	cmd.Flags().Bool("json", false, "")
	a.doing(cmd, open, func(c call) error {
		value, text, err := do(c)
		var exit *exitError
		switch {
		case err != nil && (value == nil || !errors.As(err, &exit)):
		case c.json:
			return errors.Join(printJSON(a.out, value, true), err)
		case text != nil:
			text()
		}
		return err
	})
}

// says writes one line about something that has a name.
func (a *app) says(name, what string) {
	fmt.Fprintf(a.out, "%s: %s\n", guard.Visible(name), what)
}

// listing makes a command write a list: as JSON, or as a table.
func listing[T any](
	a *app, cmd *cobra.Command, open opening, head string, list func(c call) ([]T, error), row func(*T) []string,
) {
	a.answering(cmd, open, func(c call) (any, func(), error) {
		all, err := list(c)
		return append([]T{}, all...), func() { table(a, head, all, row) }, err
	})
}

// table writes a list under a head, whose columns | separates; a narrow terminal shows none that begins with +.
func table[T any](a *app, head string, list []T, row func(*T) []string) {
	columns := strings.Split(head, "|")
	extra := make([]bool, len(columns))
	for i, name := range columns {
		columns[i], extra[i] = strings.CutPrefix(name, "+")
	}
	rows := [][]string{columns}
	for i := range list {
		rows = append(rows, row(&list[i]))
	}
	if a.narrow() {
		for i, cells := range rows {
			column := -1
			rows[i] = slices.DeleteFunc(cells, func(string) bool { column++; return extra[column] })
		}
	}
	a.outStyle.Table(a.out, rows)
}

// narrow reports whether standard output is a terminal that has no room for all columns of a list.
func (a *app) narrow() bool {
	const wide = 130
	return a.outTerminal && a.outStyle.Width < wide
}

// day is the time of today, or the day before.
func day(at time.Time) string {
	at = at.Local()
	switch now := time.Now(); {
	case at.YearDay() == now.YearDay() && at.Year() == now.Year():
		return at.Format("15:04")
	case at.Year() == now.Year():
		return at.Format("Jan _2")
	}
	return at.Format("2006-01")
}

// minute is a time in full.
func minute(at time.Time) string { return at.Local().Format("2006-01-02 15:04") }

// fields writes one line for each field that has a value: names and values in turn. A single word is not broken: it
// may be copied.
func (a *app) fields(width int, rows ...string) {
	for row := range slices.Chunk(rows, 2) {
		head := a.outStyle.Dim(fmt.Sprintf("%-*s", width, row[0]))
		switch {
		case row[1] == "":
		case strings.Contains(row[1], " "):
			fmt.Fprint(a.out, a.outStyle.Hanging(head, row[1]))
		default:
			fmt.Fprintf(a.out, "%s %s\n", head, guard.Visible(row[1]))
		}
	}
}

// sure asks on a terminal before something that cannot be undone; no is an error.
func (a *app) sure(yes bool, question, no string) error {
	if !yes && a.inTerminal && a.errTerminal && !a.confirm(question) {
		return errors.New(no)
	}
	return nil
}

// listed are the names of what a list has.
func listed[T any](list []T, name func(T) string, err error) ([]string, error) {
	names := make([]string, len(list))
	for i, one := range list {
		names[i] = name(one)
	}
	return names, err
}

// input opens a file that a command reads; - is standard input.
func (a *app) input(path string) (io.ReadCloser, error) {
	if path == "-" {
		return io.NopCloser(a.in), nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// progressEvery is how often long work shows how far it is.
const progressEvery = 100 * time.Millisecond

// progress shows on a terminal how far long work is.
type progress struct {
	a     *app
	shown time.Time
}

func (p *progress) show(text string) {
	if now := time.Now(); p.a.errTerminal && now.Sub(p.shown) >= progressEvery {
		p.shown = now
		fmt.Fprintf(p.a.err, "\r\x1b[K%s", p.a.style.Dim("· "+text))
	}
}

// end takes it away.
func (p *progress) end() {
	if !p.shown.IsZero() {
		fmt.Fprint(p.a.err, "\r\x1b[K")
		p.shown = time.Time{}
	}
}

// output is standard output. It remembers the first error, which is that of the command if it has
// no other.
type output struct {
	w io.Writer

	mu  sync.Mutex
	err error
}

// Write drops everything after the first error; the command continues.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		_, o.err = o.w.Write(p)
	}
	return len(p), nil
}

// failure is the first error.
func (o *output) failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// unread returns why nobody can have read what was written. The null device is what the runtime of Go
// opens in place of a standard output that is closed.
func (o *output) unread() error {
	if f, ok := o.w.(*os.File); ok {
		null, err := os.Stat(os.DevNull)
		if at, statErr := f.Stat(); err == nil && statErr == nil && os.SameFile(null, at) {
			return errors.New("it is closed, or " + os.DevNull)
		}
	}
	return o.failure()
}

// printJSON writes one JSON value, indented for people or on one line. Nothing in it acts
// on a terminal.
func printJSON(w io.Writer, v any, indent bool) error {
	if o, ok := w.(*output); ok {
		if t, ok := o.w.(terminal.ASCII); ok { // a value stays what it is
			w = &output{w: t.File}
		}
	}
	text, err := guard.EncodeJSON(v, indent)
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}

// short is an ID as people read it.
func short[T ~string](id T) string { return guard.Visible(toolcrib.ShortID(id)) }

// wholeID is an ID in a text of this program.
var wholeID = lazyregexp.New(`\b(?:apr|run|ses)_[0-9A-Z]{26}\b`)

// shortIDs shortens the IDs in a message, but for those of an indented list: from it one is
// chosen.
func shortIDs(message string) string {
	lines := strings.Split(message, "\n")
	for i, line := range lines {
		if strings.Contains(line, "_") && !strings.HasPrefix(line, "  ") {
			lines[i] = wholeID.ReplaceAllStringFunc(line, toolcrib.ShortID[string])
		}
	}
	return strings.Join(lines, "\n")
}

// paged writes a text with write: on a terminal through $PAGER (less -R if that is
// not set) where it is longer than the screen, anywhere else as it is.
func (a *app) paged(write func(w io.Writer) error) error {
	screen, ok := a.out.w.(*os.File)
	ascii, plain := a.out.w.(terminal.ASCII)
	if plain {
		screen, ok = ascii.File, true
	}
	if !a.outTerminal || !ok {
		return write(a.out)
	}
	var text bytes.Buffer
	failed := write(&text)
	if plain {
		text = *bytes.NewBufferString(terminal.Signs(text.String()))
	}
	_, height, err := term.GetSize(int(screen.Fd()))
	if err != nil || height < 1 || bytes.Count(text.Bytes(), []byte("\n")) < height || !page(&text, screen, a.err) {
		_, _ = a.out.Write(text.Bytes()) // kept and told by output itself
	}
	return failed
}

// page shows a text in the pager; false = there is no pager, and nothing was shown.
func page(text io.Reader, screen *os.File, stderr io.Writer) bool {
	command, set := os.LookupEnv("PAGER")
	if !set {
		command = "less -R"
	}
	words := strings.Fields(command)
	if len(words) == 0 || words[0] == "cat" {
		return false
	}
	path, err := exec.LookPath(words[0])
	if err != nil {
		return false
	}
	cmd := exec.Command(path, words[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = text, screen, stderr
	if _, set := os.LookupEnv("LESS"); !set {
		cmd.Env = append(os.Environ(), "LESS=FRX")
	}
	// ctrl-c is for the pager while it has the screen.
	nobody := make(chan os.Signal, 1)
	signal.Notify(nobody, os.Interrupt, syscall.SIGQUIT)
	defer signal.Stop(nobody)
	if cmd.Start() != nil {
		return false
	}
	_ = cmd.Wait() // a pager that was left early has done its work
	return true
}

// alwaysJSON accepts --json where a command writes nothing else.
func alwaysJSON(cmd *cobra.Command) {
	cmd.Flags().Bool("json", true, "")
	_ = cmd.Flags().MarkHidden("json") // the flag was just made, so this cannot fail
}
