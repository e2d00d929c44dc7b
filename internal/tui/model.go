package tui

import (
	"context"
	"strings"
	"time"

	"charm.land/bubbles/v2/textarea"
	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/internal/terminal"
)

// Bounds of the live region and of what is kept.
const (
	maxInput      = 1 << 16 // bytes of a message
	maxInputRows  = 8       // that are shown
	maxInputLines = 2000    // rows of the whole input
	maxTailRows   = 12      // of an answer that streams
	maxQueued     = 8       // messages that wait for the turn to end
	frameEvery    = time.Second / fps
	spinEvery     = time.Second / 8
)

// model is the state of the screen. Only Update changes it.
type model struct {
	look    Look
	talk    Talk
	screen  *Screen
	history *History
	start   func(tea.Cmd) tea.Cmd // marks what a Talk carries out, so that it is waited for
	ctx     context.Context       // of everything that is carried out
	now     func() time.Time
	calm    time.Duration // see terminal.Calm; 0 = a key answers at once

	width, height int
	input         textarea.Model
	recall        int    // index into the history while looking at it; its length = not
	draft         string // what was typed before that
	hint          string // a line under the input, until the next key
	leaving       bool   // ctrl-c was pressed at an empty prompt
	after         bool   // leave when the turn has ended
	status        []string
	queued        *queue  // messages that wait
	search        *search // nil = the history is not searched
	md            markdown

	working bool
	began   time.Time
	cancel  context.CancelCauseFunc // of what is carried out
	stopped bool
	spin    int

	turn   turn
	asking *asking
	shelf  shelf

	drawn    chan struct{} // closed when the live region is drawn; nil = it is
	prints   []string      // lines that are to be printed
	printing bool
	quit     bool
	spoken   bool // something was printed, so an empty line comes before the next
	aside    bool // what was printed last is a note
	noticed  map[string]bool
}

// The messages of the model.
type (
	feedMsg    struct{}
	pollMsg    struct{}
	spinMsg    struct{}
	printedMsg struct{}
	doneMsg    struct{ leave bool }
	leaveMsg   struct{}
	drawnMsg   struct{}
)

func newModel(o Options, feed *feed) *model {
	m := &model{
		look: o.Look, talk: o.Talk, screen: &Screen{feed: feed}, queued: &feed.queue, history: o.History, now: time.Now,
		calm: terminal.Calm, width: 80, height: 24, ctx: context.Background(), md: markdown{look: o.Look},
		start: func(c tea.Cmd) tea.Cmd { return c }, noticed: map[string]bool{},
	}
	m.input = newInput(o.Look)
	m.recall = len(m.history.Lines())
	m.resize(m.width, m.height)
	return m
}

func newInput(look Look) textarea.Model {
	in := textarea.New()
	in.ShowLineNumbers, in.DynamicHeight = false, true
	in.MinHeight, in.MaxHeight, in.MaxContentHeight, in.CharLimit = 1, maxInputRows, maxInputLines, maxInput
	prompt := look.signs("❯ ")
	in.SetPromptFunc(2, func(p textarea.PromptInfo) string {
		if p.LineNumber == 0 {
			return prompt
		}
		return "  "
	})
	plain := textarea.StyleState{}
	if look.Color {
		plain.Prompt = lipgloss.NewStyle().Foreground(lipgloss.Cyan).Bold(true)
	}
	in.SetStyles(textarea.Styles{Focused: plain, Blurred: plain})
	in.SetVirtualCursor(false)
	in.KeyMap.InsertNewline.SetKeys("alt+enter", "shift+enter", "ctrl+j")
	in.KeyMap.Paste.SetEnabled(false) // terminals paste by themselves
	in.Focus()
	return in
}

// Init implements [tea.Model].
func (m *model) Init() tea.Cmd {
	return tea.Batch(m.wait(), m.poll(), m.carry(func(ctx context.Context) bool {
		m.talk.Begin(ctx, m.screen)
		return false
	}))
}

// maxDraw is how long the first drawing is waited for.
const maxDraw = 2 * time.Second

// wait waits until the live region is drawn.
func (m *model) wait() tea.Cmd {
	drawn, ctx := m.drawn, m.ctx
	if drawn == nil {
		return nil
	}
	return func() tea.Msg {
		late := time.NewTimer(maxDraw)
		defer late.Stop()
		select {
		case <-drawn:
		case <-late.C:
		case <-ctx.Done():
		}
		return drawnMsg{}
	}
}

// poll waits for something to show.
func (m *model) poll() tea.Cmd {
	feed, ctx := m.screen.feed, m.ctx
	return func() tea.Msg {
		select {
		case <-feed.ready:
			return feedMsg{} // taken by Update, so that what ends a turn does not come before it
		case <-ctx.Done():
			return nil
		}
	}
}

// carry carries something out on a goroutine of its own.
func (m *model) carry(do func(ctx context.Context) bool) tea.Cmd {
	ctx, cancel := context.WithCancelCause(m.ctx)
	m.working, m.stopped, m.cancel, m.began, m.hint = true, false, cancel, m.now(), ""
	m.turn = turn{}
	return tea.Batch(m.start(func() tea.Msg {
		defer cancel(nil)
		return doneMsg{leave: do(ctx)}
	}), m.tick())
}

func (m *model) tick() tea.Cmd {
	return tea.Tick(spinEvery, func(time.Time) tea.Msg { return spinMsg{} })
}

// Update implements [tea.Model].
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var cmd tea.Cmd
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.resize(msg.Width, msg.Height)
	case feedMsg:
		for _, item := range m.screen.feed.take() {
			item.show(m)
		}
		cmd = tea.Tick(frameEvery, func(time.Time) tea.Msg { return pollMsg{} })
	case pollMsg:
		cmd = m.poll()
	case spinMsg:
		if m.working {
			m.spin++
			cmd = m.tick()
		}
	case doneMsg:
		cmd = m.done(msg)
	case printedMsg:
		m.printing = false
		if m.asking != nil && m.asking.Problem == "" {
			m.asking.touched = m.now() // it is shown from now on
		}
	case leaveMsg:
		m.quit = true
	case drawnMsg:
		m.drawn = nil
	case tea.PasteMsg:
		m.hint, m.leaving = "", false
		m.paste(msg.Content)
	case tea.KeyPressMsg:
		cmd = m.key(msg)
	}
	return m, tea.Batch(cmd, m.flush())
}

// done is the end of what was carried out; what it had to say comes first.
func (m *model) done(msg doneMsg) tea.Cmd {
	for _, item := range m.screen.feed.take() {
		item.show(m)
	}
	m.endReply()
	m.working, m.cancel, m.asking = false, nil, m.dropQuestion()
	if msg.leave {
		m.quit = true
		return nil
	}
	if next := m.queued.next(func(string) bool { return true }); next != "" {
		return m.send(next)
	}
	m.quit = m.quit || m.after
	return nil
}

// send carries out what the person sent.
func (m *model) send(line string) tea.Cmd {
	m.said(line)
	if m.ownCommand(line) {
		return nil
	}
	return m.carry(func(ctx context.Context) bool { return m.talk.Do(ctx, line, m.screen) })
}

// said shows what the person sent.
func (m *model) said(text string) {
	s := m.style()
	m.gap()
	m.marked(s.Bold(s.Cyan("❯"))+" ", strings.TrimRight(text, "\n"),
		func(mark, row string) string { return mark + s.Bold(row) })
}

func (m *model) resize(width, height int) {
	m.width, m.height = max(width, 1), max(height, 1)
	m.input.MaxHeight = max(min(maxInputRows, m.height/3), 1)
	m.input.SetWidth(max(m.width-1, 4))
}

// print prints lines above the live region. They must be visible already.
func (m *model) print(lines ...string) {
	for _, l := range lines {
		m.prints = append(m.prints, fit([]string{m.look.signs(l)}, m.width-1)...)
	}
	m.spoken = m.spoken || len(lines) > 0
	m.aside = false
}

// gap prints an empty line, unless it would be the first, or the second in a row.
func (m *model) gap() {
	if !m.spoken {
		return
	}
	m.prints = append(m.prints, "")
	m.spoken = false
}

// flush hands over what is to be printed, one piece at a time and in order. A piece
// has to fit on the terminal together with the live region, which may be one that
// was drawn a moment ago, or rows of that would be left behind in what was scrolled
// away. So a piece has a third of the rows at most, and the live region the rest.
func (m *model) flush() tea.Cmd {
	if m.printing || m.drawn != nil || len(m.prints) == 0 && !m.quit {
		return nil
	}
	var steps []tea.Cmd
	for _, piece := range pieces(m.prints, m.height/3) {
		steps = append(steps, tea.Println(piece))
	}
	m.prints, m.printing = nil, true
	last := func() tea.Msg { return printedMsg{} }
	if m.quit {
		last = tea.Quit
	}
	return tea.Sequence(append(steps, last)...)
}

// pieces joins lines to texts of at most most lines.
func pieces(lines []string, most int) []string {
	var out []string
	for len(lines) > 0 {
		n := min(max(most, 1), len(lines))
		text := strings.Join(lines[:n], "\n")
		if text == "" {
			text = " " // nothing at all would be passed over
		}
		out, lines = append(out, text), lines[n:]
	}
	return out
}

// style is that of what is printed. Three dots take the room of three characters.
func (m *model) style() render.Style {
	width := m.width - 1
	if !m.look.Unicode {
		width -= 2
	}
	return m.look.style(max(width, 20))
}
