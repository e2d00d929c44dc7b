// Package tui is the conversation on a terminal: what is finished is printed above
// and scrolls as everything on a terminal does, only a few lines at the bottom are
// drawn again. It knows events as clients see them (contract §8) and decides
// nothing: what a person says goes to a [Talk].
//
// Text of models, tools and files reaches the terminal only through guard.Visible
// and through a filter that lets nothing pass but colours.
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

// Options are what a conversation needs.
type Options struct {
	Talk    Talk
	In      *os.File // a terminal
	Out     Terminal
	Environ []string
	Color   bool // the sixteen colours
	History *History
	Stopped error // why a turn ends that the person stopped
}

// Terminal is where a conversation is drawn.
type Terminal interface {
	io.ReadWriteCloser
	Fd() uintptr
}

// Screen is a conversation on a terminal, as a [Talk] sees it. Its methods may be called by any
// goroutine but the one that calls Mode and NextMode.
type Screen struct {
	model   *model
	program *tea.Program
	send    func(tea.Msg) // nothing happens once the conversation is over
}

// New makes a conversation. What is to be shown before it runs waits until then.
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

// Run carries the conversation to its end: when the person leaves, or when ctx
// ends, which ends a turn that continues with the cause of ctx. It returns when
// everything that it began has ended.
func (s *Screen) Run(ctx context.Context) error {
	inner, stop := context.WithCancelCause(ctx)
	s.model.ctx = inner
	unhook := context.AfterFunc(ctx, func() { s.send(leaveMsg{}) })
	defer unhook()
	_, err := s.program.Run()
	stop(nil)
	s.model.busy <- struct{}{} // waits for what is carried out; nothing else will be
	if err != nil && !errors.Is(err, tea.ErrInterrupted) {
		return fmt.Errorf("the terminal: %w", err)
	}
	return nil
}

// banner is the first thing that is drawn.
const banner = "toolcrib"

// drawing is the terminal's output. It says when the live region was drawn for the
// first time: what is printed above it earlier would be put in the wrong place.
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

// fps bounds how often the screen is drawn.
const fps = 30

// Talk is who a person talks to.
type Talk interface {
	// Begin is called once, before anything was said: to show what was said before.
	Begin(ctx context.Context)
	// Do carries out what the person sent: a message, or a command that begins with
	// a slash. One is carried out at a time, on a goroutine of its own. ctx ends
	// with [Options.Stopped] as its cause when the person stops it. leave ends the
	// conversation.
	Do(ctx context.Context, line string) (leave bool)
	// Complete returns what a line may become, whole lines. It may take a moment.
	Complete(line string) []string
	// Mode names what the turns may do, for the line at the bottom. NextMode
	// changes it. Both are quick, and called while something is carried out.
	Mode() string
	NextMode()
}

// Question is what a run waits for a person to say, and Answer what they say.
type (
	Question = render.Question
	Answer   = render.Answer
)

// Frame shows an event of the run.
func (s *Screen) Frame(f journal.Frame) {
	s.show(func(m *model) { m.frame(f) })
}

func (s *Screen) show(do func(m *model)) { s.send(showMsg(do)) }

// Note writes a dimmed line, Warn one that should be read, and Text what a command
// has to say. They are made visible.
func (s *Screen) Note(text string) { s.show(func(m *model) { m.note(text) }) }

// Warn writes what went wrong.
func (s *Screen) Warn(text string) { s.show(func(m *model) { m.warn(text) }) }

// Text writes lines as they are.
func (s *Screen) Text(text string) { s.show(func(m *model) { m.text(text) }) }

// Said shows what the person sent.
func (s *Screen) Said(text string) { s.show(func(m *model) { m.said(text) }) }

// Next takes the oldest message that the person sent while something is carried out, if it
// is fit to be a part of that, and shows it; "" if it is not.
func (s *Screen) Next(ctx context.Context, fit func(line string) bool) (line string) {
	reply := make(chan string, 1)
	s.show(func(m *model) { reply <- m.next(fit) })
	select {
	case line = <-reply:
	case <-ctx.Done():
	}
	return line
}

// Status changes the line at the bottom: its parts, the most important first. What does
// not fit is left out.
func (s *Screen) Status(parts []string) { s.show(func(m *model) { m.status = parts }) }

// Write takes lines of a log.
func (s *Screen) Write(p []byte) (int, error) {
	if text := strings.TrimRight(string(p), "\n"); text != "" {
		s.Note(strings.TrimPrefix(visible(ansi.Strip(text)), "· "))
	}
	return len(p), nil
}

// Ask puts a question and waits for the answer. ok is false if ctx ended before
// there was one.
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
