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
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
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
	p := tea.NewProgram(m, tea.WithInput(c.options.In), tea.WithOutput(out), tea.WithEnvironment(c.options.Environ),
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

// drawing is the terminal's output. It says when the live region was drawn for the
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

// in makes do a part of the group. After wait nothing more begins.
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

// Talk is who a person talks to.
type Talk interface {
	// Begin is called once, before anything was said: to show what was said before.
	Begin(ctx context.Context, s *Screen)
	// Do carries out what the person sent: a message, or a command that begins with
	// a slash. One is carried out at a time, on a goroutine of its own. ctx ends
	// with [ErrStopped] as its cause when the person stops it. leave ends the
	// conversation.
	Do(ctx context.Context, line string, s *Screen) (leave bool)
	// Complete returns what a line may become, whole lines. It is quick.
	Complete(line string) []string
	// Mode names what the turns may do, for the line at the bottom. NextMode
	// changes it. Both are quick, and called while something is carried out.
	Mode() string
	NextMode()
}

// ErrStopped is why a turn ends that a person stopped.
var ErrStopped = errors.New("stopped by the user")

// Question is what a run waits for a person to say, and Answer what they say.
type (
	Question = render.Question
	Answer   = render.Answer
)

// Screen is the person's terminal, as a [Talk] sees it. Its methods may be called
// by any goroutine; but for Ask none of them blocks.
type Screen struct{ feed *feed }

// Frame shows an event of the run.
func (s *Screen) Frame(f journal.Frame) {
	if d, ok := f.Data.(journal.TextView); ok {
		s.feed.put(&streamItem{thought: f.Event == journal.FrameThinking, text: []byte(d.Text)})
		return
	}
	s.show(func(m *model) { m.frame(f.Data) })
}

func (s *Screen) show(do itemFunc) { s.feed.put(do) }

// Note writes a dimmed line, Warn one that should be read, and Text what a command
// has to say. They are made visible.
func (s *Screen) Note(text string) { s.show(func(m *model) { m.note(text) }) }

// Warn writes what went wrong.
func (s *Screen) Warn(text string) { s.show(func(m *model) { m.warn(text) }) }

// Text writes lines as they are.
func (s *Screen) Text(text string) { s.show(func(m *model) { m.text(text) }) }

// Said, Answer and Recall show what was said before.
func (s *Screen) Said(text string) { s.show(func(m *model) { m.said(text) }) }

// Answer shows an answer of the model, which is Markdown.
func (s *Screen) Answer(text string) { s.show(func(m *model) { m.whole(text) }) }

// Recall shows a call of a turn before, with its result.
func (s *Screen) Recall(arguments json.RawMessage, r journal.ResultView) {
	s.show(func(m *model) { m.call(arguments, r, false) })
}

// Next takes the oldest message that the person sent while something is carried out, if it
// is fit to be a part of that, and shows it; "" if it is not.
func (s *Screen) Next(fit func(line string) bool) string {
	line := s.feed.queue.next(fit)
	if line != "" {
		s.show(func(m *model) {
			m.endReply()
			m.said(line)
		})
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

// questionItem is a question that waits for its reply.
type questionItem struct {
	question Question
	reply    chan Answer
}

func (q questionItem) show(m *model) { m.ask(q) }

// Ask puts a question and waits for the answer. ok is false if ctx ended before
// there was one.
func (s *Screen) Ask(ctx context.Context, q Question) (answer Answer, ok bool) {
	reply := make(chan Answer, 1)
	s.feed.put(questionItem{q, reply})
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

// Bounds of what waits to be shown.
const (
	maxWaiting      = 20_000  // items; more of a run than limits allow
	maxWaitingBytes = 8 << 20 // of text that streams; the whole reply follows as one event anyway
)

// showable is something to show.
type showable interface{ show(m *model) }

type itemFunc func(m *model)

func (f itemFunc) show(m *model) { f(m) }

// streamItem is text that streams: an answer, or a thought.
type streamItem struct {
	thought bool
	text    []byte
}

func (s *streamItem) show(m *model) {
	if s.thought {
		m.think(string(s.text))
	} else {
		m.token(string(s.text))
	}
}

// queue holds messages of the person until they can be sent.
type queue struct {
	mu    sync.Mutex
	lines []string
}

func (q *queue) all() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.lines)
}

// add is false if too many wait already.
func (q *queue) add(line string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.lines) >= maxQueued {
		return false
	}
	q.lines = append(q.lines, line)
	return true
}

// next takes the oldest message if it is fit; "" if it is not.
func (q *queue) next(fit func(line string) bool) (line string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.lines) == 0 || !fit(q.lines[0]) {
		return ""
	}
	line, q.lines = q.lines[0], q.lines[1:]
	return line
}

// clear takes all of them.
func (q *queue) clear() (lines []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	lines, q.lines = q.lines, nil
	return lines
}

// feed is a queue between those who do something and the screen. Putting never
// blocks: text that streams is joined while it waits, and dropped where it would
// outgrow its bounds.
type feed struct {
	mu    sync.Mutex
	items []showable
	bytes int
	queue queue         // of the person, the other way round
	ready chan struct{} // has one element while there are items
}

func newFeed() *feed { return &feed{ready: make(chan struct{}, 1)} }

func (f *feed) put(it showable) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if one, ok := it.(*streamItem); ok {
		if f.bytes += len(one.text); f.bytes > maxWaitingBytes {
			return
		}
		if n := len(f.items); n > 0 {
			if last, ok := f.items[n-1].(*streamItem); ok && last.thought == one.thought {
				last.text = append(last.text, one.text...)
				return
			}
		}
	} else if _, must := it.(questionItem); !must && len(f.items) >= maxWaiting {
		return
	}
	f.items = append(f.items, it)
	select {
	case f.ready <- struct{}{}:
	default:
	}
}

// take returns what waits, in its order.
func (f *feed) take() []showable {
	f.mu.Lock()
	defer f.mu.Unlock()
	items := f.items
	f.items, f.bytes = nil, 0
	select {
	case <-f.ready:
	default:
	}
	return items
}
