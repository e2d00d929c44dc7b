package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"unicode/utf8"

	"github.com/muesli/cancelreader"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/tui"
	"github.com/toolcrib/toolcrib/service"
)

// lineFront is a conversation line by line: of a script, or on a terminal that
// cannot draw.
type lineFront struct {
	a         *app
	json      bool
	look      tui.Look
	prompting bool          // a person is at a terminal
	script    *bufio.Reader // standard input that is no terminal
	cancelled bool          // the last turn was
	who       toolcrib.Principal
}

// chatInLines reads one message a line until there is no more.
func (a *app) chatInLines(ctx context.Context, c *chat, history *tui.History, asJSON bool) error {
	f := &lineFront{
		a: a, json: asJSON, look: tui.LookOf(os.Getenv, runtime.GOOS),
		prompting: a.inTerminal && a.errTerminal,
	}
	c.front = f
	if f.prompting {
		a.err = signed{a.err, f.look}
		if a.outTerminal {
			a.out.w = signed{a.out.w, f.look}
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

// told tells an error of a turn; what it returns ends the conversation.
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
		if message = strings.TrimSpace(message + line); !utf8.ValidString(message) {
			f.a.complain("a message is not valid UTF-8, and was passed over")
			message = ""
		}
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
	var show watcher = silentWatcher{}
	switch {
	case f.json:
		show = &jsonWatcher{out: f.a.out}
	case given == nil:
		show = f.a.live()
	}
	f.who = c.p.Who
	run, err := f.a.carry(ctx, show, f.who, approve, do)
	f.cancelled = run.Status == toolcrib.StatusCancelled
	return run, err
}

// signed writes with signs that the terminal can show.
type signed struct {
	w    io.Writer
	look tui.Look
}

func (s signed) Write(p []byte) (int, error) {
	if _, err := io.WriteString(s.w, s.look.Signs(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}
