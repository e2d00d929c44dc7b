package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strings"

	"github.com/muesli/cancelreader"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/internal/tui"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
)

// lineFront is a conversation line by line: of a script, or on a terminal that
// cannot draw.
type lineFront struct {
	a         *app
	json      bool
	prompting bool          // a person is at a terminal
	script    *bufio.Reader // standard input that is no terminal
	cancelled bool          // the last turn was
	who       toolcrib.Principal
}

// chatInLines reads one message a line until there is no more.
func (a *app) chatInLines(ctx context.Context, c *chat, history *tui.History, asJSON bool) error {
	f := &lineFront{a: a, json: asJSON, prompting: a.inTerminal && a.errTerminal}
	c.front = f
	if f.prompting {
		look := tui.LookOf(os.Getenv, runtime.GOOS)
		signed := func(p []byte) []byte { return []byte(look.Signs(string(p))) } // that the terminal can show
		a.err = through{a.err, signed}
		if a.outTerminal {
			a.out.w = through{a.out.w, signed}
		}
		a.notice("toolcrib chat: /help lists the commands, ctrl-d leaves")
	} else {
		f.script = bufio.NewReader(a.in)
	}
	if err := c.began(ctx); err != nil {
		return err
	}
	for {
		line, err := f.read(ctx)
		if line != "" {
			if told := f.keep(history, line); told != nil {
				a.notice("%v", told)
			}
			done := f.told(c, c.do(ctx, line))
			switch {
			case errors.Is(done, errLeave):
				return f.leave(c)
			case done != nil:
				return done
			case f.cancelled && !f.prompting:
				return silent(exitCanceled)
			case c.exit == exitParked && !f.prompting:
				return silent(c.exit) // nobody is there to decide, and the session takes no other message
			}
		}
		if errors.Is(err, io.EOF) {
			return f.leave(c)
		}
		if err != nil {
			return err
		}
	}
}

// leave ends a conversation. A script learns what went wrong in any turn.
func (f *lineFront) leave(c *chat) error {
	if f.prompting {
		return c.left()
	}
	return silent(c.exit)
}

// keep keeps what a person has typed; what a script says is no history.
func (f *lineFront) keep(history *tui.History, line string) error {
	if !f.prompting {
		return nil
	}
	return history.Add(line)
}

// told prints an error of a turn; what it returns ends the conversation.
func (f *lineFront) told(c *chat, err error) error {
	code := codeOf(err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errLeave), code == exitTerm, code == exitHangup:
		return err
	}
	f.a.complain(errorText(err))
	c.leaves(code)
	return nil
}

// read reads the next message; one whose line ends with a backslash continues in the
// next. io.EOF may come with the last one.
func (f *lineFront) read(ctx context.Context) (string, error) {
	next := func() (string, error) { return readLine(f.script) }
	if f.prompting {
		reader, err := cancelreader.NewReader(f.a.in)
		if err != nil {
			return "", fmt.Errorf("the terminal: %v", err)
		}
		defer reader.Close() //nolint:errcheck // only read
		var stop func()
		ctx, stop = f.a.interruptible(ctx, "", io.Discard)
		defer stop()
		unhook := context.AfterFunc(ctx, func() { reader.Cancel() })
		defer unhook()
		// A terminal gives one line at a time, so nothing is lost with the buffer.
		buffered := bufio.NewReader(reader)
		next = func() (string, error) { return readLine(buffered) }
	}
	message, prompt := "", "> "
	for {
		if f.prompting {
			fmt.Fprint(f.a.err, prompt)
		}
		line, err := next()
		if cause := context.Cause(ctx); cause != nil {
			fmt.Fprintln(f.a.err)
			if code := codeOf(cause); code != exitCanceled {
				return "", &exitError{code: code}
			}
			return "", io.EOF // ctrl-c at the prompt leaves
		}
		if rest, more := strings.CutSuffix(line, `\`); more && err == nil && len(message) < maxStdin {
			message, prompt = message+rest+"\n", ". "
			continue
		}
		message = strings.TrimSpace(guard.Clean(message + line))
		if err != nil && f.prompting {
			fmt.Fprintln(f.a.err)
		}
		return message, err
	}
}

// readLine reads one line of at most maxStdin bytes, without its end.
func readLine(r *bufio.Reader) (string, error) {
	var line []byte
	for {
		piece, err := r.ReadSlice('\n')
		line = append(line, piece...)
		switch {
		case len(line) > maxStdin:
			return "", fmt.Errorf("a message has more than %d bytes", maxStdin)
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		}
		return strings.TrimRight(string(line), "\r\n"), err
	}
}

func (f *lineFront) note(text string) { f.a.notice("%s", text) }
func (f *lineFront) warn(text string) { f.a.complain(text) }
func (f *lineFront) status([]string)  {}

// print writes what a command has to say; among events it would be none.
func (f *lineFront) print(text string) {
	if f.json {
		fmt.Fprintln(f.a.err, guard.Visible(text))
		return
	}
	fmt.Fprintln(f.a.out, guard.Visible(text))
}

func (f *lineFront) parked(ctx context.Context, run *service.Run) { f.a.parked(ctx, f.who, run) }

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

// screenFront is a conversation on a terminal that can draw.
type screenFront struct {
	chat   *chat
	screen *tui.Screen
}

// chatOnScreen holds the conversation on the terminal.
func (a *app) chatOnScreen(ctx context.Context, c *chat, history *tui.History) error {
	f := &screenFront{chat: c}
	talk := tui.New(tui.Options{
		Talk: f, In: a.in, Out: os.Stdout, Environ: os.Environ(), Look: tui.LookOf(os.Getenv, runtime.GOOS), History: history,
	})
	f.screen, c.front = talk.Screen(), f
	// What is said beside the conversation would be written into the drawing.
	stderr, beside := a.err, a.beside
	a.err, a.beside = f.screen, f.screen
	defer func() { a.err, a.beside = stderr, beside }()
	// Ctrl-c is a key of the conversation. A signal from elsewhere ends it and leaves a run resumable.
	ctx, stop := a.interruptible(ctx, "a signal", io.Discard)
	defer stop()
	err := talk.Run(ctx)
	if cause := context.Cause(ctx); cause != nil {
		return &exitError{code: codeOf(cause)}
	}
	if err != nil {
		return err
	}
	return c.left()
}

// Begin implements [tui.Talk].
func (f *screenFront) Begin(ctx context.Context, s *tui.Screen) {
	s.Note("toolcrib chat: /help lists the commands, ctrl-d leaves")
	f.told(ctx, f.chat.began(ctx))
}

// Do implements [tui.Talk].
func (f *screenFront) Do(ctx context.Context, line string, _ *tui.Screen) (leave bool) {
	return f.told(ctx, f.chat.do(ctx, line))
}

// told prints an error; leave is set if it ends the conversation.
func (f *screenFront) told(ctx context.Context, err error) (leave bool) {
	switch {
	case err == nil:
	case errors.Is(err, errLeave):
		return true
	case ctxCause(ctx) != nil:
		return true
	case ctx.Err() != nil && (errors.Is(err, context.Canceled) || codeOf(err) == exitCanceled):
		f.note("stopped before it began")
	default:
		f.warn(err.Error())
	}
	return false
}

// Mode implements [tui.Talk].
func (f *screenFront) Mode() string { return f.chat.modeText() }

// NextMode implements [tui.Talk].
func (f *screenFront) NextMode() { f.chat.mode.Store((f.chat.mode.Load() + 1) % int32(len(modes))) }

// Complete implements [tui.Talk].
func (f *screenFront) Complete(line string) []string { return f.chat.complete(line) }

func (f *screenFront) note(text string)      { f.screen.Note(text) }
func (f *screenFront) warn(text string)      { f.screen.Warn(text) }
func (f *screenFront) print(text string)     { f.screen.Text(text) }
func (f *screenFront) status(parts []string) { f.screen.Status(parts) }

func (f *screenFront) parked(ctx context.Context, run *service.Run) {
	a := f.chat.a
	if run.Pending != nil && run.Pending.Error != nil {
		f.note("this turn waits for " + outageText(&run.Pending.Pending) + "; /decide asks it again, /cancel ends it")
		return
	}
	at := a.waitsIn(ctx, f.chat.who, run)
	if at == nil || at.Pending == nil { // it was decided meanwhile
		f.note("this turn waits; /decide continues it, /cancel ends it")
		return
	}
	ask := at.Pending.Ask()
	if text := a.anotherText(f.chat.who, at.User, ask.Kind); text != "" {
		_, commands := service.WayOn(a.self(), a.self(), at.ID, ask, true)
		f.note(text + ":\n  " + strings.Join(commands, "\n  or: "))
	}
	whose := "this turn"
	if at.ID != run.ID {
		whose = "agent " + at.Agent + " of this turn"
	}
	f.note(fmt.Sprintf("%s waits (%s); /decide continues it, /cancel ends it", whose, words(run.Status)))
}

// watching shows the frames of a run. Of one call without a model only what a person decided is
// worth a line: the conversation shows the rest.
func (f *screenFront) watching(given *toolcrib.ToolCall) func(journal.Frame) {
	return func(frame journal.Frame) {
		kind := toolcrib.Kind(frame.Event)
		if given != nil && kind != journal.KindConfirmationResolved && kind != journal.KindToolResult {
			return
		}
		if r, ok := frame.Data.(journal.ResultView); ok && given != nil && given.Name != undoTool {
			frame.Data = tui.Whole{ResultView: r} // the person made the call
		}
		f.screen.Frame(frame)
	}
}

// carry implements [front].
func (f *screenFront) carry(ctx context.Context, c *chat, _ agent.Approve, given *toolcrib.ToolCall,
	do driving,
) (service.Run, error) {
	ctx, stop := stoppable(ctx, agent.NameOf(c.who))
	defer stop()
	var log *slog.Logger
	if c.a.remote == nil {
		var err error
		if log, err = c.a.logger(f.screen, false); err != nil {
			return service.Run{}, err
		}
	}
	var said func() string
	if given == nil {
		said = func() string { return f.screen.Next(onlyText) }
	}
	return do(ctx, service.Front{
		Said: said, Watch: f.watching(given), Person: f, Log: log,
		Driving: func(before *service.Run) {
			if given != nil {
				f.screen.Frame(journal.Frame{Event: string(journal.KindToolCall), Data: journal.ViewCall(given)})
			}
			for _, seen := range openCalls(before) {
				view := journal.CallView{ID: seen.ID, Name: seen.Name, Arguments: seen.Arguments}
				f.screen.Frame(journal.Frame{Event: string(journal.KindToolCall), Data: view})
			}
		},
	})
}

// onlyText reports whether a message can be added to a turn as it is: it is no command, and
// names no file.
func onlyText(line string) bool {
	line = strings.TrimSpace(line)
	return habits[line] == "" && !strings.HasPrefix(line, "/") && !strings.HasPrefix(line, "!") &&
		!strings.Contains(line, "@")
}

// stoppable gives a context that ends as a run wants it: cancelled if the person
// stopped the turn, left as it is for anything else.
func stoppable(parent context.Context, by string) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(parent))
	unhook := context.AfterFunc(parent, func() {
		cause := context.Cause(parent)
		if errors.Is(cause, tui.ErrStopped) {
			cause = &agent.CancelError{By: by}
		}
		cancel(cause)
	})
	return ctx, func() {
		unhook()
		cancel(nil)
	}
}

// Answer implements [service.Person].
func (f *screenFront) Answer(ctx context.Context, q service.Question) (service.Answer, bool, error) {
	a, ok := f.screen.Ask(ctx, questionOf(q))
	return answerOf(a), ok && !a.Later, nil
}
