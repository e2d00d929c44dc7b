package tui

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
)

// Options are what a conversation stands on.
type Options struct {
	Talk    Talk
	In      *os.File // a terminal
	Out     *os.File // a terminal
	Environ []string
	Look    Look
	History *History // nil = none is kept
}

// Conversation is a conversation on a terminal.
type Conversation struct {
	options Options
	feed    *feed
}

// New makes a conversation. Its Screen takes what is to be shown from then on.
func New(o Options) *Conversation { return &Conversation{options: o, feed: newFeed()} }

// Screen is the terminal of the conversation.
func (c *Conversation) Screen() *Screen { return &Screen{feed: c.feed} }

// Run carries the conversation to its end: when the person leaves, or when ctx
// ends, which ends a turn that continues the cause of ctx. It returns when
// everything that it began has ended.
func (c *Conversation) Run(ctx context.Context) error {
	m := newModel(c.options, c.feed)
	inner, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	m.ctx = inner
	var begun group
	defer begun.wait()
	defer stop(nil)
	m.start = begun.in
	out := &drawing{File: c.options.Out, drawn: make(chan struct{})}
	m.drawn = out.drawn
	p := tea.NewProgram(m,
		tea.WithInput(c.options.In), tea.WithOutput(out), tea.WithEnvironment(c.options.Environ),
		tea.WithoutSignalHandler(), tea.WithFPS(fps), tea.WithColorProfile(c.options.Look.profile()),
	)
	unhook := context.AfterFunc(ctx, func() { p.Send(leaveMsg{}) })
	defer unhook()
	if _, err := p.Run(); err != nil && !errors.Is(err, tea.ErrInterrupted) {
		return fmt.Errorf("the terminal: %w", err)
	}
	return nil
}

// banner is the first thing that is drawn.
const banner = "toolcrib"

// drawing is the terminal's output. It tells when the live region was drawn for the
// first time: what is printed above it earlier would be put in the wrong place.
type drawing struct {
	*os.File
	once  sync.Once
	drawn chan struct{}
}

// Write implements [io.Writer].
func (d *drawing) Write(p []byte) (int, error) {
	n, err := d.File.Write(p)
	if bytes.Contains(p, []byte(banner)) {
		d.once.Do(func() { close(d.drawn) })
	}
	return n, err
}

// fps bounds how often the screen is drawn.
const fps = 30

// group is what was begun and has not ended yet.
type group struct {
	mu     sync.Mutex
	closed bool
	all    sync.WaitGroup
}

// in makes do a part of the group. After wait nothing begins any more.
func (g *group) in(do tea.Cmd) tea.Cmd {
	return func() tea.Msg {
		g.mu.Lock()
		if g.closed {
			g.mu.Unlock()
			return nil
		}
		g.all.Add(1)
		g.mu.Unlock()
		defer g.all.Done()
		return do()
	}
}

// wait waits for everything that has begun.
func (g *group) wait() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.all.Wait()
}

func (l Look) profile() colorprofile.Profile {
	if !l.Color {
		return colorprofile.ASCII
	}
	return colorprofile.ANSI
}
