// Package terminal reads lines with a person's answers from a terminal. Input that was typed before a
// question was completely shown is not an answer to it.
package terminal

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/muesli/cancelreader"
	"golang.org/x/term"
)

// Calm is how long nothing must have been typed before a new question can be answered: input that was
// typed ahead, for the shell or for the previous question, must not approve a call.
const Calm = 700 * time.Millisecond

const (
	step    = 100 * time.Millisecond // interval of checks for input
	maxLine = 64 << 10               // bytes of an answer
)

// Bracketed paste: a terminal in this mode puts marks around pasted text.
const (
	pasteOn, pasteOff     = "\x1b[?2004h", "\x1b[?2004l"
	pasteBegin, pasteStop = "\x1b[200~", "\x1b[201~"
)

// ErrTooLong is returned for an answer that is longer than 64 KiB.
var ErrTooLong = errors.New("the answer is longer than 64 KiB")

// Input reads a person's answers.
type Input struct {
	file     *os.File
	out      io.Writer
	reader   cancelreader.CancelReader
	lines    *bufio.Reader
	terminal bool
	paste    bool // whether the terminal marks pasted text
}

// Open returns the input of a terminal. out writes to the same terminal. If in is not a terminal, it
// is read as it is.
func Open(in *os.File, out io.Writer) (*Input, error) {
	reader, err := cancelreader.NewReader(in)
	if err != nil {
		return nil, err
	}
	terminal := term.IsTerminal(int(in.Fd()))
	return &Input{
		file: in, out: out, reader: reader, lines: bufio.NewReader(reader), terminal: terminal,
		paste: terminal && runtime.GOOS != "windows" && os.Getenv("TERM") != "dumb",
	}, nil
}

// Cancel ends a blocked read. Close must also be called.
func (in *Input) Cancel() { in.reader.Cancel() }

// Close releases the terminal, which stays open.
func (in *Input) Close() error { return in.reader.Close() }

// Settle discards input that was not read, and waits until nothing was typed for the duration calm, or
// until ctx ends.
func (in *Input) Settle(ctx context.Context, calm time.Duration) {
	_, _ = in.lines.Discard(in.lines.Buffered())
	if !in.terminal {
		return
	}
	quiet := time.Duration(0)
	_ = quietly(in.file, func(typed bool) bool {
		if quiet += step; typed {
			quiet = 0
		}
		return quiet < calm && ctx.Err() == nil
	})
}

// Drop discards input that was not read, before a question whose answer is read by other means.
func Drop(in *os.File) { _ = drop(in) } // it fails if in is not a terminal

// Line discards earlier input and returns the next line, without its line break. Pasted text keeps the
// marks around it, so that it is not read as a key; see [Pasted].
func (in *Input) Line() (string, error) {
	if in.terminal {
		Drop(in.file)
	}
	if in.paste {
		_, _ = io.WriteString(in.out, pasteOn)
		defer io.WriteString(in.out, pasteOff) //nolint:errcheck // it is the person's screen
	}
	var all strings.Builder
	for {
		piece, err := in.lines.ReadSlice('\n')
		all.Write(piece)
		switch text := all.String(); {
		case len(text) > maxLine:
			return "", ErrTooLong
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil:
			return "", err // a line without a line break may be incomplete
		case strings.Count(text, pasteBegin) <= strings.Count(text, pasteStop):
			return strings.TrimRight(text, "\r\n"), nil
		}
	}
}

// Hide discards input that was not read, and turns echo off until show is called. A question for a secret is shown
// after that, so that nothing of the answer is.
func Hide(in *os.File) (show func(), err error) {
	Drop(in)
	return hide(in)
}

// Hidden shows a question, and is then [Input.Line] without echo.
func (in *Input) Hidden(question string) (string, error) {
	if in.terminal {
		show, err := Hide(in.file)
		if err != nil {
			return "", err
		}
		defer io.WriteString(in.out, "\n") //nolint:errcheck // it is the person's screen
		defer show()
	}
	_, _ = io.WriteString(in.out, question)
	return in.Line()
}

// Pasted returns a line without the marks around pasted text.
func Pasted(line string) string {
	return strings.NewReplacer(pasteBegin, "", pasteStop, "").Replace(line)
}
