// Package tui shows a conversation on a terminal: finished text is printed above and scrolls like any
// output, only a few lines at the bottom are redrawn. It knows events in the form in which clients see
// them and makes no decisions: a [Talk] receives the user's input.
//
// Text of models, tools and files reaches the terminal only through guard.Visible and through a filter
// that removes all escape sequences but colors.
package tui

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/ansi"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/journal"
)

// Options configure a conversation.
type Options struct {
	Talk    Talk
	In      *os.File // a terminal
	Out     Terminal
	Environ []string
	Color   bool // the terminal's sixteen colors
	History *History
	Stopped error // cause of a turn that the user stops
}

// Terminal is the output of a conversation.
type Terminal interface {
	io.ReadWriteCloser
	Fd() uintptr
}

// Screen is a conversation on a terminal, as seen by a [Talk]. Its methods may be called by any
// goroutine except the one that calls Mode and NextMode.
type Screen struct {
	model   *model
	program *tea.Program
	send    func(tea.Msg) // has no effect once the conversation is over
}

// New returns a conversation. Text that is shown before Run is called is printed once it runs.
func New(o Options) *Screen {
	m := newModel(o)
	profile := colorprofile.ASCII
	if o.Color {
		profile = colorprofile.ANSI
	}
	out := &drawing{Terminal: o.Out, drawn: make(chan struct{})}
	m.drawn = out.drawn
	p := tea.NewProgram(m, tea.WithInput(&keyboard{File: o.In}), tea.WithOutput(out), tea.WithEnvironment(o.Environ),
		tea.WithoutSignalHandler(), tea.WithFPS(fps), tea.WithColorProfile(profile),
	)
	return &Screen{model: m, program: p, send: p.Send}
}

// Run runs the conversation until the user leaves or ctx ends. The end of ctx also ends the current
// turn, with the cause of ctx. Run returns once everything that it started has ended.
func (s *Screen) Run(ctx context.Context) error {
	inner, stop := context.WithCancelCause(ctx)
	s.model.ctx = inner
	unhook := context.AfterFunc(ctx, func() { s.send(leaveMsg{}) })
	defer unhook()
	_, err := s.program.Run()
	stop(nil)
	s.model.busy <- struct{}{} // waits for the current operation and prevents others
	if err != nil && !errors.Is(err, tea.ErrInterrupted) {
		return fmt.Errorf("the terminal: %w", err)
	}
	return nil
}

// banner is the first text that is drawn.
const banner = "toolcrib"

// drawing is the output of the terminal. It signals the first drawing of the live region: text printed
// above it earlier would be misplaced.
type drawing struct {
	Terminal
	once  sync.Once
	drawn chan struct{}
}

// Write implements [io.Writer].
func (d *drawing) Write(p []byte) (int, error) {
	n, err := d.Terminal.Write(p)
	if bytes.Contains(p, []byte(banner)) {
		d.once.Do(func() { close(d.drawn) })
	}
	return n, err
}

// fps bounds the frames drawn per second.
const fps = 30

// Talk handles the user's input.
type Talk interface {
	// Begin is called once before any input, to show earlier messages.
	Begin(ctx context.Context)
	// Do handles a line that the user sent: a message, or a command that begins with a slash. Calls are
	// made one at a time, on a goroutine of their own. If the user stops the operation, ctx ends with
	// the cause [Options.Stopped]. leave ends the conversation.
	Do(ctx context.Context, line string) (leave bool)
	// Complete returns the completions of a line as whole lines. It may take a moment.
	Complete(line string) []string
	// Mode names the mode of the turns for the status line. NextMode changes it. Both return quickly,
	// and are called during operations.
	Mode() string
	NextMode()
}

// Question is a question of a run to a person, and Answer the person's answer.
type (
	Question = render.Question
	Answer   = render.Answer
)

// Frame shows an event of the run.
func (s *Screen) Frame(f journal.Frame) {
	s.show(func(m *model) { m.frame(f) })
}

func (s *Screen) show(do func(m *model)) { s.send(showMsg(do)) }

// Note writes a dimmed line, Warn a warning, and Text the output of a command. The text passes
// guard.Visible.
func (s *Screen) Note(text string) { s.show(func(m *model) { m.note(text) }) }

// Warn writes a warning or an error.
func (s *Screen) Warn(text string) { s.show(func(m *model) { m.warn(text) }) }

// Text writes lines.
func (s *Screen) Text(text string) { s.show(func(m *model) { m.text(text) }) }

// Said shows a message of the user.
func (s *Screen) Said(text string) { s.show(func(m *model) { m.said(text) }) }

// Next removes and shows the oldest message that the user sent during the current operation, if fit
// returns true for it. Otherwise it returns "".
func (s *Screen) Next(ctx context.Context, fit func(line string) bool) (line string) {
	reply := make(chan string, 1)
	s.show(func(m *model) { reply <- m.next(fit) })
	select {
	case line = <-reply:
	case <-ctx.Done():
	}
	return line
}

// Status sets the parts of the status line, the most important first. Parts that do not fit are
// omitted.
func (s *Screen) Status(parts []string) { s.show(func(m *model) { m.status = parts }) }

// Write writes lines of a log. It implements [io.Writer].
func (s *Screen) Write(p []byte) (int, error) {
	if text := strings.TrimRight(string(p), "\n"); text != "" {
		s.Note(strings.TrimPrefix(visible(ansi.Strip(text)), "· "))
	}
	return len(p), nil
}

// Ask asks a question and waits for the answer. ok is false if ctx ended first.
func (s *Screen) Ask(ctx context.Context, q Question) (answer Answer, ok bool) {
	reply := make(chan Answer, 1)
	s.show(func(m *model) { m.ask(q, reply) })
	select {
	case answer = <-reply:
		return answer, true
	case <-ctx.Done():
		s.show(func(m *model) {
			if m.asking != nil && m.asking.reply == reply {
				m.asking = m.dropQuestion()
			}
		})
		return Answer{}, false
	}
}
