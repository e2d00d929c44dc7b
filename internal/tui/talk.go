package tui

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/toolcrib/toolcrib"
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
}

// ErrStopped is why a turn ends that a person stopped.
var ErrStopped = errors.New("stopped by the person")

// Status is what the line at the bottom tells.
type Status struct {
	Parts []string // the most important first; what does not fit is left out
}

// Question is what a run waits for a person to say.
type Question struct {
	Ask journal.ConfirmationRequired // with the calls that are open
	// Choices tells what an answer to a question of the model must look like; Unit
	// of what a limit is to be raised by.
	Choices, Unit string
	// Problem says why the last answer to the same question would not do.
	Problem string
}

// Answer is a person's word on a [Question].
type Answer struct {
	Later    bool                            // nothing was decided
	Decision string                          // for all calls that Calls does not name; "" = only those
	Calls    map[string]journal.CallDecision // by call ID
	Reason   string
	Remember *journal.Remember
	Text     string // the answer to a question, or by how much a limit is raised
}

// Screen is the person's terminal, as a [Talk] sees it. Its methods may be called
// by any goroutine; but for Ask none of them blocks.
type Screen struct{ feed *feed }

type (
	frameItem    struct{ frame journal.Frame }
	noteItem     struct{ text string }
	warnItem     struct{ text string }
	textItem     struct{ text string }
	saidItem     struct{ text string }
	answerItem   struct{ text string }
	recallItem   struct{ call recalled }
	statusItem   struct{ status Status }
	questionItem struct {
		question Question
		reply    chan Answer
	}
	withdrawItem struct{ reply chan Answer }
)

// recalled is a call of a turn before, with its result.
type recalled struct {
	name      string
	arguments json.RawMessage
	result    render.Result
}

// Frame shows an event of the run.
func (s *Screen) Frame(f journal.Frame) {
	switch f.Event {
	case journal.FrameToken, journal.FrameThinking:
		s.feed.put(&streamItem{
			thought: f.Event == journal.FrameThinking, text: []byte(decode[struct{ Text string }](f.Data).Text),
		})
	default:
		s.feed.put(frameItem{f})
	}
}

// Note writes a dimmed line, Warn one that should be read, and Text what a command
// has to say. They are made visible.
func (s *Screen) Note(text string) { s.feed.put(noteItem{text}) }

// Warn writes what went wrong.
func (s *Screen) Warn(text string) { s.feed.put(warnItem{text}) }

// Text writes lines as they are.
func (s *Screen) Text(text string) { s.feed.put(textItem{text}) }

// Said, Answer and Recall show what was said before.
func (s *Screen) Said(text string) { s.feed.put(saidItem{text}) }

// Answer shows an answer of the model, which is Markdown.
func (s *Screen) Answer(text string) { s.feed.put(answerItem{text}) }

// Recall shows a call of a turn before.
func (s *Screen) Recall(name string, arguments json.RawMessage, r render.Result) {
	s.feed.put(recallItem{recalled{name, arguments, r}})
}

// Status changes the line at the bottom.
func (s *Screen) Status(status Status) { s.feed.put(statusItem{status}) }

// Write takes lines of a log.
func (s *Screen) Write(p []byte) (int, error) {
	if text := strings.TrimRight(string(p), "\n"); text != "" {
		s.Note(strings.TrimPrefix(plainText(text), "· "))
	}
	return len(p), nil
}

// plainText takes the colours out of a text.
func plainText(text string) string { return visible(ansi.Strip(text)) }

// Ask puts a question and waits for the answer. ok is false if ctx ended before
// there was one.
func (s *Screen) Ask(ctx context.Context, q Question) (answer Answer, ok bool) {
	reply := make(chan Answer, 1)
	s.feed.put(questionItem{q, reply})
	select {
	case answer = <-reply:
		return answer, true
	case <-ctx.Done():
		s.feed.put(withdrawItem{reply})
		return Answer{}, false
	}
}

// decode reads the data of a frame by its JSON, which is what is promised of it.
func decode[T any](data any) (v T) {
	if raw, err := json.Marshal(data); err == nil {
		_ = json.Unmarshal(raw, &v) // what cannot be read shows as nothing
	}
	return v
}

// The data of frames, as far as they are shown (contract §8).
type (
	messageFrame struct {
		Text     string `json:"text"`
		Thinking string `json:"thinking"`
	}
	callFrame struct {
		ID        string          `json:"id"`
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
		Delta     string          `json:"arguments_delta"`
	}
	progressFrame struct {
		ID       string  `json:"id"`
		Message  string  `json:"message"`
		Fraction float64 `json:"fraction"`
	}
	resultFrame struct {
		ToolCallID string                `json:"tool_call_id"`
		Name       string                `json:"name"`
		Status     toolcrib.ResultStatus `json:"status"`
		Content    string                `json:"content"`
		Reason     toolcrib.Reason       `json:"reason"`
		DurationMS int64                 `json:"duration_ms"`
		Truncated  bool                  `json:"truncated"`
		Untrusted  bool                  `json:"untrusted"`
	}
	resolvedFrame struct {
		Decision string `json:"decision"`
		By       string `json:"by"`
	}
	endFrame struct {
		Content    string              `json:"content"`
		Message    string              `json:"message"`
		StopReason toolcrib.StopReason `json:"stop_reason"`
		Truncated  bool                `json:"truncated"`
	}
)
