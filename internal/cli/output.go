package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/term"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
)

// output is standard output. It remembers the first error, so that a full disk is
// told and a reader that has gone is not.
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

// failure is an error that somebody should know about.
func (o *output) failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if errors.Is(o.err, syscall.EPIPE) {
		return nil
	}
	return o.err
}

// printJSON writes one JSON value, indented for people or on one line. Nothing in it acts
// on a terminal.
func printJSON(w io.Writer, v any, indent bool) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if indent {
		enc.SetIndent("", "  ")
	}
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(guard.EscapeJSON(b.Bytes()))
	return err
}

// short is an ID as people read it.
func short[T ~string](id T) string { return guard.Visible(toolcrib.ShortID(id)) }

// wholeID is an ID in a text of this program.
var wholeID = regexp.MustCompile(`\b(?:apr|run|ses)_[0-9A-Z]{26}\b`)

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
	if !a.outTerminal || !ok {
		return write(a.out)
	}
	var text bytes.Buffer
	failed := write(&text)
	_, height, err := term.GetSize(int(screen.Fd()))
	if err != nil || height < 1 || bytes.Count(text.Bytes(), []byte("\n")) < height || !page(&text, screen, a.err) {
		_, _ = a.out.Write(text.Bytes()) // kept and told by output itself
	}
	return failed
}

// page shows a text in the pager; false = there is none, and nothing was shown.
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
