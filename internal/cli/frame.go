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

// Code shared by most commands: they open the data folder, make one request to the service, and write
// its answer as JSON or text.

// knowing returns the service for a command that needs no data folder, and the acting principal.
func (a *app) knowing(ctx context.Context) (*service.Service, toolcrib.Principal, error) {
	who, err := a.principal(ctx)
	if err != nil {
		return nil, who, err
	}
	s, err := a.svc()
	return s, who, err
}

// reading opens the data folder for a command that only reads.
func (a *app) reading(ctx context.Context) (*service.Service, toolcrib.Principal, error) {
	s, who, err := a.knowing(ctx)
	if err == nil {
		err = s.Env.OpenToRead(ctx)
	}
	return s, who, err
}

// changing opens the data folder for a command that changes it.
func (a *app) changing(ctx context.Context) (*service.Service, toolcrib.Principal, error) {
	s, who, err := a.knowing(ctx)
	if err == nil {
		err = s.Env.OpenFor(ctx, who)
	}
	return s, who, err
}

// forAdministrators rejects other users before it opens the data folder.
func (a *app) forAdministrators(open opening) opening {
	return func(ctx context.Context) (*service.Service, toolcrib.Principal, error) {
		if who, err := a.administering(ctx); err != nil {
			return nil, who, err
		}
		return open(ctx)
	}
}

// call is one invocation of a command: the service that was opened for it, the acting principal, the
// arguments, and whether the output is JSON.
type call struct {
	context.Context
	*service.Service         // nil with a server
	at               backend // for commands that also work against a server
	who              toolcrib.Principal
	args             []string
	json             bool
}

// arg returns the first argument, or "".
func (c call) arg() string {
	if len(c.args) == 0 {
		return ""
	}
	return c.args[0]
}

// opening opens the service for a command: [app.reading], [app.changing]. If nil, the command opens it
// itself.
type opening func(context.Context) (*service.Service, toolcrib.Principal, error)

// doing sets the function that implements a command.
func (a *app) doing(cmd *cobra.Command, open opening, do func(c call) error) {
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		c := call{Context: cmd.Context(), args: args}
		c.json, _ = cmd.Flags().GetBool("json") // false without such a flag
		if open != nil {
			if c.at, c.who, err = a.opened(c, open); err != nil {
				return err
			}
			c.Service = a.service
		}
		return do(c)
	}
}

// answering sets the function that implements a command with --json. do returns the value to print as
// JSON, and a function that prints it for people; if that is nil, do has printed it. An [exitError] is
// returned after the answer, any other error in its place.
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

// says writes one line about a named item.
func (a *app) says(name, what string) {
	fmt.Fprintf(a.out, "%s: %s\n", guard.Visible(name), what)
}

// listing sets the function that writes a list, as JSON or as a table.
func listing[T any](
	a *app, cmd *cobra.Command, open opening, head string, list func(c call) ([]T, error), row func(*T) []string,
) {
	a.answering(cmd, open, func(c call) (any, func(), error) {
		all, err := list(c)
		return append([]T{}, all...), func() { table(a, head, all, row) }, err
	})
}

// table writes a list under a heading whose columns are separated by |. A narrow terminal omits columns
// whose heading begins with +.
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

// narrow reports whether standard output is a terminal that is too narrow for all columns of a list.
func (a *app) narrow() bool {
	const wide = 130
	return a.outTerminal && a.outStyle.Width < wide
}

// day formats a time of today as the time of day, and another one as its date.
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

// minute formats a date and time.
func minute(at time.Time) string { return at.Local().Format("2006-01-02 15:04") }

// fields writes one line for each nonempty field; rows are alternating names and values. A single word
// is not wrapped, because it may be copied.
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

// sure asks on a terminal before an action that cannot be undone. The answer no is an error.
func (a *app) sure(yes bool, question, no string) error {
	if !yes && a.inTerminal && a.errTerminal && !a.confirm(question) {
		return errors.New(no)
	}
	return nil
}

// listed returns the names of the elements of a list.
func listed[T any](list []T, name func(T) string, err error) ([]string, error) {
	names := make([]string, len(list))
	for i, one := range list {
		names[i] = name(one)
	}
	return names, err
}

// input opens an input file; - is standard input.
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

// progressEvery is the interval at which progress is shown.
const progressEvery = 100 * time.Millisecond

// progress shows the progress of a long operation on a terminal.
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

// end removes the progress line.
func (p *progress) end() {
	if !p.shown.IsZero() {
		fmt.Fprint(p.a.err, "\r\x1b[K")
		p.shown = time.Time{}
	}
}

// output is standard output. It keeps the first error, which the command returns unless it has another
// one.
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

// failure returns the first error.
func (o *output) failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// unread returns an error if the output cannot have been read. If standard output is closed, the Go
// runtime opens the null device in its place.
func (o *output) unread() error {
	if f, ok := o.w.(*os.File); ok {
		null, err := os.Stat(os.DevNull)
		if at, statErr := f.Stat(); err == nil && statErr == nil && os.SameFile(null, at) {
			return errors.New("it is closed, or " + os.DevNull)
		}
	}
	return o.failure()
}

// printJSON writes one JSON value, indented for people or on one line. Control characters in it are
// escaped.
func printJSON(w io.Writer, v any, indent bool) error {
	if o, ok := w.(*output); ok {
		if t, ok := o.w.(terminal.ASCII); ok { // ASCII replacement would change the value
			w = &output{w: t.File}
		}
	}
	text, err := guard.EncodeJSON(v, indent)
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}

// short returns the short form of an ID for people.
func short[T ~string](id T) string { return guard.Visible(toolcrib.ShortID(id)) }

// wholeID matches the IDs that messages contain.
var wholeID = lazyregexp.New(`\b(?:apr|run|ses)_[0-9A-Z]{26}\b`)

// shortIDs shortens the IDs in a message, except in an indented list, from which the user chooses one.
func shortIDs(message string) string {
	lines := strings.Split(message, "\n")
	for i, line := range lines {
		if strings.Contains(line, "_") && !strings.HasPrefix(line, "  ") {
			lines[i] = wholeID.ReplaceAllStringFunc(line, toolcrib.ShortID[string])
		}
	}
	return strings.Join(lines, "\n")
}

// paged writes a text with write. If standard output is a terminal and the text is longer than the
// screen, it is shown in $PAGER (less -R if unset).
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
		_, _ = a.out.Write(text.Bytes()) // output keeps the error and reports it
	}
	return failed
}

// page shows a text in the pager. It returns false if there is no pager; then nothing was shown.
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
	// While the pager has the screen, ctrl-c is for the pager.
	nobody := make(chan os.Signal, 1)
	signal.Notify(nobody, os.Interrupt, syscall.SIGQUIT)
	defer signal.Stop(nobody)
	if cmd.Start() != nil {
		return false
	}
	_ = cmd.Wait() // leaving a pager early is not an error
	return true
}

// alwaysJSON accepts --json for a command that only writes JSON.
func alwaysJSON(cmd *cobra.Command) {
	cmd.Flags().Bool("json", true, "")
	_ = cmd.Flags().MarkHidden("json") // the flag exists, so this cannot fail
}
