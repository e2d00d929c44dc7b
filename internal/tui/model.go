package tui

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"charm.land/bubbles/v2/textarea"
	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/internal/terminal"
)

// Bounds of the live region and of stored text.
const (
	maxInput      = 1 << 16 // bytes of a message
	maxInputRows  = 8       // visible rows of the input
	maxInputLines = 2000    // rows of the whole input
	maxTailRows   = 12      // rows of a streaming answer
	maxQueued     = 8       // messages that wait for the end of the turn
	spinEvery     = time.Second / 8
)

// model is the state of the screen. Only Update changes it.
type model struct {
	color   bool
	talk    Talk
	history *History
	stops   error           // see Options.Stopped
	ctx     context.Context // parent of the contexts of all operations
	busy    chan struct{}   // contains an element during an operation
	now     func() time.Time
	calm    time.Duration // see terminal.Calm; 0 means that a key answers at once

	width, height int
	input         textarea.Model
	standIns      standIns
	recall        int    // index into the history; its length if no message is recalled
	draft         string // the input before that
	hint          string // a line under the input, until the next key
	leaving       bool   // ctrl-c was pressed at an empty prompt
	after         bool   // leave at the end of the turn
	status        []string
	queued        []string // messages that wait
	search        *search  // nil without a search
	md            render.Markdown
	completing    bool              // the input is being completed
	held          []tea.KeyPressMsg // keys typed meanwhile

	working bool
	began   time.Time
	cancel  context.CancelCauseFunc // cancels the current operation
	stopped bool
	spin    int

	turn   turn
	asking *asking
	shelf  []shelved

	drawn    chan struct{} // closed once the live region is drawn; nil afterwards
	prints   []string      // lines to be printed
	printing bool
	quit     bool
	spoken   bool // something was printed, so a gap precedes the next text
	// The last printed text is a note, or a line of an answer.
	aside, answering bool
	noticed          map[string]bool
}

// The messages of the model.
type (
	showMsg      func(m *model)
	spinMsg      struct{}
	printedMsg   struct{}
	doneMsg      struct{ leave bool }
	leaveMsg     struct{}
	drawnMsg     struct{}
	completedMsg struct {
		line string
		all  []string
	}
)

func newModel(o Options) *model {
	m := &model{
		color: o.Color, talk: o.Talk, history: o.History, stops: o.Stopped, now: time.Now, calm: terminal.Calm,
		width: 80, height: 24, ctx: context.Background(), busy: make(chan struct{}, 1), md: render.Markdown{Color: o.Color},
		noticed: map[string]bool{},
	}
	m.input = newInput(o.Color)
	m.recall = len(m.history.Lines())
	m.resize(m.width, m.height)
	return m
}

func newInput(color bool) textarea.Model {
	in := textarea.New()
	in.ShowLineNumbers, in.DynamicHeight = false, true
	in.MinHeight, in.MaxHeight, in.MaxContentHeight, in.CharLimit = 1, maxInputRows, maxInputLines, maxInput
	in.SetPromptFunc(2, func(p textarea.PromptInfo) string {
		if p.LineNumber == 0 {
			return "❯ "
		}
		return "  "
	})
	plain := textarea.StyleState{}
	if color {
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
	return tea.Batch(m.wait(), m.carry(func(ctx context.Context) bool {
		m.talk.Begin(ctx)
		return false
	}))
}

// maxDraw bounds the wait for the first drawing.
const maxDraw = 2 * time.Second

// wait waits for the live region to be drawn.
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

// carry starts an operation on a goroutine of its own.
func (m *model) carry(do func(ctx context.Context) bool) tea.Cmd {
	parent, busy := m.ctx, m.busy
	ctx, cancel := context.WithCancelCause(parent)
	m.working, m.stopped, m.cancel, m.began, m.hint = true, false, cancel, m.now(), ""
	m.turn, m.md = turn{}, render.Markdown{Color: m.color}
	return tea.Batch(func() tea.Msg {
		defer cancel(nil)
		select {
		case busy <- struct{}{}:
		case <-parent.Done():
			return nil
		}
		defer func() { <-busy }()
		return doneMsg{leave: do(ctx)}
	}, m.tick())
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
	case showMsg:
		msg(m)
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
			m.asking.touched = m.now() // the question is visible from now on
		}
	case leaveMsg:
		m.quit = true
	case drawnMsg:
		m.drawn = nil
	case completedMsg:
		m.completed(msg)
		var cmds []tea.Cmd
		for len(m.held) > 0 && !m.completing {
			next := m.held[0]
			m.held = m.held[1:]
			cmds = append(cmds, m.key(next))
		}
		cmd = tea.Batch(cmds...)
	case tea.PasteMsg:
		m.hint, m.leaving = "", false
		m.paste(msg.Content)
	case tea.KeyPressMsg:
		if m.completing && msg.String() != "ctrl+c" {
			m.held = append(m.held, msg)
		} else {
			cmd = m.key(msg)
		}
	}
	return m, tea.Batch(cmd, m.flush())
}

// done handles the end of an operation.
func (m *model) done(msg doneMsg) tea.Cmd {
	m.endReply()
	m.working, m.cancel, m.asking = false, nil, m.dropQuestion()
	if msg.leave {
		m.quit = true
		return nil
	}
	if len(m.queued) > 0 {
		next := m.queued[0]
		m.queued = m.queued[1:]
		return m.send(next)
	}
	m.quit = m.quit || m.after
	return nil
}

// send starts the operation for a line that the user entered.
func (m *model) send(line string) tea.Cmd {
	m.said(line)
	return m.carry(func(ctx context.Context) bool { return m.talk.Do(ctx, line) })
}

// next removes the oldest waiting message and shows it, if fit returns true for it. Otherwise it
// returns "".
func (m *model) next(fit func(line string) bool) (line string) {
	if len(m.queued) > 0 && fit(m.queued[0]) {
		line, m.queued = m.queued[0], m.queued[1:]
		m.endReply()
		m.said(line)
	}
	return line
}

// said shows a message of the user.
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

// print prints lines above the live region. They must have passed [visible].
func (m *model) print(lines ...string) {
	m.prints = append(m.prints, fit(lines, m.width-1)...)
	m.spoken = m.spoken || len(lines) > 0
	m.aside, m.answering = false, false
}

// gap prints an empty line, unless it would be the first line or follow another empty line.
func (m *model) gap() {
	if !m.spoken {
		return
	}
	m.prints = append(m.prints, "")
	m.spoken = false
}

// flush returns the commands that print pending lines, one piece at a time and in order. A piece must
// fit on the terminal together with the live region, including one that was just drawn; otherwise rows
// of the live region would remain in the scrollback. So a piece gets at most a third of the rows, and
// the live region the rest.
func (m *model) flush() tea.Cmd {
	if m.printing || m.drawn != nil || len(m.prints) == 0 && !m.quit {
		return nil
	}
	var steps []tea.Cmd
	for rows := range slices.Chunk(m.prints, max(m.height/3, 1)) {
		steps = append(steps, tea.Println(cmp.Or(strings.Join(rows, "\n"), " "))) // an empty text would be skipped
	}
	m.prints, m.printing = nil, true
	last := func() tea.Msg { return printedMsg{} }
	if m.quit {
		last = tea.Quit
	}
	return tea.Sequence(append(steps, last)...)
}

// style returns the style of printed text.
func (m *model) style() render.Style { return render.Style{Color: m.color, Width: max(m.width-1, 20)} }
