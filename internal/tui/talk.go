package tui

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/journal"
)

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
