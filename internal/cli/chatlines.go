package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/internal/tui"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
)

// lineFront is a conversation line by line: for a script, or on a terminal without cursor control.
type lineFront struct {
	a         *app
	json      bool
	person    bool // input is a person at a terminal
	lines     *bufio.Scanner
	cancelled bool // the last turn was cancelled
	who       toolcrib.Principal
}

// chatInLines reads one message per line until the end of the input.
func (a *app) chatInLines(ctx context.Context, c *chat, history *tui.History, asJSON bool) error {
	f := &lineFront{a: a, json: asJSON, person: a.inTerminal && a.errTerminal, lines: bufio.NewScanner(a.in)}
	f.lines.Buffer(nil, maxStdin)
	c.front = f
	if f.person {
		a.notice("toolcrib chat: /help lists the commands, ctrl-d leaves")
	}
	if err := c.began(ctx); err != nil {
		return err
	}
	for line, ok := f.read(); ok; line, ok = f.read() {
		if f.person { // input of a script is not saved in the history
			if told := history.Add(line); told != nil {
				a.notice("%v", told)
			}
		}
		err := c.do(ctx, line)
		switch code := codeOf(err); {
		case errors.Is(err, errLeave):
			return f.leave(ctx, c)
		case code == exitTerm, code == exitHangup:
			return err
		case err != nil:
			a.complain(errorText(err))
			c.leaves(code)
		case f.cancelled && !f.person:
			return silent(exitCanceled)
		case c.exit == exitParked && !f.person:
			return silent(c.exit) // without a user to decide, the session takes no further message
		}
	}
	if err := f.lines.Err(); err != nil {
		return fmt.Errorf("standard input: %w (a message has at most %d bytes)", err, maxStdin)
	}
	return f.leave(ctx, c)
}

// leave ends a conversation. For a script, the exit code reports the first failure of a turn.
func (f *lineFront) leave(ctx context.Context, c *chat) error {
	if f.person {
		fmt.Fprintln(f.a.err)
		return c.left(ctx)
	}
	return silent(c.exit)
}

// read reads the next message that is not empty. A backslash at the end of a line continues the message
// on the next line.
func (f *lineFront) read() (message string, ok bool) {
	for prompt := "> "; ; {
		if f.person {
			fmt.Fprint(f.a.err, prompt)
		}
		read := f.lines.Scan()
		line := guard.Clean(f.lines.Text())
		if rest, more := strings.CutSuffix(line, `\`); more && len(message) < maxStdin {
			message, prompt = message+rest+"\n", ". "
			continue
		}
		message, prompt = strings.TrimSpace(message+line), "> "
		if !read || message != "" {
			return message, message != ""
		}
	}
}

func (f *lineFront) Note(text string) { f.a.notice("%s", text) }
func (f *lineFront) Warn(text string) { f.a.complain(text) }
func (f *lineFront) Status([]string)  {}

// Text writes the output of a command. With events it writes nothing, because the text is not an event.
func (f *lineFront) Text(text string) {
	if f.json {
		fmt.Fprintln(f.a.err, guard.Visible(text))
		return
	}
	fmt.Fprintln(f.a.out, guard.Visible(text))
}

func (f *lineFront) parked(ctx context.Context, run *service.Run) { f.a.parked(ctx, f.who, run) }

func (f *lineFront) costs(run *service.Run) { f.Note(summary(run)) }

// carry implements [front].
func (f *lineFront) carry(ctx context.Context, c *chat, approve agent.Approve, given *toolcrib.ToolCall,
	do driving,
) (service.Run, error) {
	var live *render.Live
	var watch func(journal.Frame)
	switch {
	case f.json:
		watch = f.a.frameWriter()
	case given == nil:
		live = f.a.live()
	}
	f.who = c.who
	run, err := f.a.carry(ctx, live, watch, f.who, approve, do)
	f.cancelled = run.Status == toolcrib.StatusCancelled
	return run, err
}

// screenFront is a conversation on a terminal with cursor control.
type screenFront struct {
	*tui.Screen
	chat *chat
}

// chatOnScreen carries on a conversation on the terminal.
func (a *app) chatOnScreen(ctx context.Context, c *chat, history *tui.History) error {
	for {
		if err := a.onScreen(ctx, c, history); err != nil {
			return err
		}
		if !c.review {
			return c.left(ctx)
		}
		c.trusts(ctx)
	}
}

// onScreen shows a conversation on the terminal until the user leaves.
func (a *app) onScreen(ctx context.Context, c *chat, history *tui.History) error {
	f := &screenFront{chat: c}
	f.Screen = tui.New(tui.Options{
		Talk: f, In: a.in, Out: a.out.w.(tui.Terminal), Environ: os.Environ(), Color: a.style.Color, History: history,
		Stopped: c.stopped,
	})
	c.front = f
	// Messages outside the conversation would be written into the drawing.
	stderr, noticeTo := a.err, a.noticeTo
	a.err, a.noticeTo = f.Screen, f.Screen
	defer func() { a.err, a.noticeTo = stderr, noticeTo }()
	// Ctrl-c is a key of the conversation. Another process's signal ends the conversation and leaves a
	// run resumable.
	ctx, stop := a.interruptible(ctx, "a signal", io.Discard)
	defer stop()
	err := f.Run(ctx)
	if cause := context.Cause(ctx); cause != nil {
		return &exitError{code: codeOf(cause)}
	}
	return err
}

// Begin implements [tui.Talk].
func (f *screenFront) Begin(ctx context.Context) {
	if f.chat.review {
		f.chat.review = false
		f.chat.showStatus()
		return
	}
	f.Note("toolcrib chat: /help lists the commands, ctrl-d leaves")
	f.report(ctx, f.chat.began(ctx))
}

// Do implements [tui.Talk].
func (f *screenFront) Do(ctx context.Context, line string) (leave bool) {
	return f.report(ctx, f.chat.do(ctx, line))
}

// report prints an error. leave is set if the error ends the conversation.
func (f *screenFront) report(ctx context.Context, err error) (leave bool) {
	switch {
	case err == nil:
	case errors.Is(err, errLeave):
		return true
	case f.chat.ctxCause(ctx) != nil:
		return true
	case ctx.Err() != nil && (errors.Is(err, context.Canceled) || codeOf(err) == exitCanceled):
		f.Note("stopped before it began")
	default:
		f.Warn(err.Error())
	}
	return false
}

// Mode implements [tui.Talk].
func (f *screenFront) Mode() string { return f.chat.modeText() }

// NextMode implements [tui.Talk].
func (f *screenFront) NextMode() { f.chat.mode.Store((f.chat.mode.Load() + 1) % int32(len(modes))) }

// Complete implements [tui.Talk].
func (f *screenFront) Complete(line string) []string { return f.chat.complete(line) }

func (f *screenFront) parked(ctx context.Context, run *service.Run) {
	a, why := f.chat.a, words(run.Status)
	if run.Pending != nil && run.Pending.Error != nil {
		why = "for " + outageText(&run.Pending.Pending)
	} else if at := a.waitsIn(ctx, f.chat.who, run); at != nil && at.Pending != nil {
		ask := at.Pending.Ask()
		if text := a.anotherText(f.chat.who, at.User, ask.Kind); text != "" {
			_, commands := service.NextCommands(a.self(), a.self(), at.ID, ask, true)
			f.Note(text + ":\n  " + strings.Join(commands, "\n  or: "))
		}
	}
	f.Note("this turn waits (" + why + "); /decide continues it, /cancel ends it")
}

func (f *screenFront) costs(run *service.Run) { f.Note(summary(run)) }

// watching returns a function that shows the frames of a run. For a single call without a model it
// shows only the decisions of a person: the conversation shows the rest.
func (f *screenFront) watching(given *toolcrib.ToolCall) func(journal.Frame) {
	return func(frame journal.Frame) {
		kind := toolcrib.Kind(frame.Event)
		if given != nil && kind != journal.KindConfirmationResolved && kind != journal.KindToolResult {
			return
		}
		if r, ok := frame.Data.(journal.ResultView); ok && given != nil && given.Name != undoTool {
			frame.Data = tui.Whole{ResultView: r} // the person made the call
		}
		f.Frame(frame)
	}
}

// carry implements [front].
func (f *screenFront) carry(ctx context.Context, c *chat, _ agent.Approve, given *toolcrib.ToolCall,
	do driving,
) (service.Run, error) {
	var log *slog.Logger
	if c.a.remote == nil {
		var err error
		if log, err = c.a.logger(f.Screen, true); err != nil {
			return service.Run{}, err
		}
	}
	var said func() string
	if given == nil {
		said = func() string { return f.Next(ctx, onlyText) }
	}
	return do(ctx, service.Front{
		Said: said, Watch: f.watching(given), Person: f, Log: log,
		Driving: func(before *service.Run) {
			open := openCalls(before)
			if given != nil {
				open = append(open, journal.ViewCall(given))
			}
			for _, c := range open {
				f.Frame(journal.Frame{Event: string(journal.KindToolCall), Data: c})
			}
		},
	})
}

// onlyText reports whether a message can be added to a turn unchanged: it is not a command and names no
// file.
func onlyText(line string) bool {
	line = strings.TrimSpace(line)
	return habits[line] == "" && !strings.HasPrefix(line, "/") && !strings.HasPrefix(line, "!") &&
		!strings.Contains(line, "@")
}

// Answer implements [service.Person].
func (f *screenFront) Answer(ctx context.Context, q service.Question) (service.Answer, bool, error) {
	a, ok := f.Ask(ctx, questionOf(q))
	return answerOf(a), ok && !a.Later, nil
}
